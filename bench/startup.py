"""Benchmark of operators starting with many finished jobs, and idling: ours, one in Go and one on kopf, in turns.

Run by `make bench-start`. Each contestant runs jobs as Pods and writes the health of 50 nodes; in every round all of
them use the same API server, one after the other. Finished jobs are cloned in etcd from one created through the API;
they have no Pods, as after garbage collection. One job is waiting and one node is already healthy: the time until
that job has a Pod shows when the operator really works. CPU and memory are read from /proc.

The Go operator is on controller-runtime 0.25, and caches all jobs, as operators usually do; "unfinished only" is
the same program with a cache of unfinished jobs only, as in ours. The kopf operator is on kopf 1.45, with
raw event handlers, its lightest form.
"""

import argparse
import asyncio
import time
from contextlib import aclosing, suppress

import msgspec
import uvloop
from bench.clones import ORIGINAL, all_served, clone_jobs, create_job
from bench.contest import (
    NAMESPACE,
    NODE_COUNT,
    READY_WITHIN,
    SERVER_IDLE_SHARE,
    all_healthy,
    control_plane,
    controller,
    node_names,
    prepare,
    running,
    servers_of,
    wait_until_idle,
)
from bench.contestants import KOPF, OURS, add_choice, chosen, in_turns, log
from bench.go_variants import GO, GO_UNFINISHED
from bench.tables import Goal, Row, heading, lines
from bench.usage import cpu_seconds, memory_mib

from vmafx.devcluster import DevCluster
from vmafx.kube import JOBS, NODES, Client, ObjectKey, load_config
from vmafx.kube.core import PODS
from vmafx.kube.errors import NotFound
from vmafx.operator.job.pod_cache import PodView

CONTESTANTS = (OURS, GO, GO_UNFINISHED, KOPF)
GOALS_FROM = 50_000  # finished jobs
POD = PODS.decoded_as(PodView)
WAITING = ObjectKey(NAMESPACE, "waiting")


class Start(msgspec.Struct, frozen=True):
    """The figures of one start."""

    ready_s: float
    pod_s: float
    cpu_s: float
    memory_mib: float
    peak_mib: float
    idle_cpu_s: float


ROWS = (
    Row("seconds until ready", lambda one: one.ready_s),
    Row("seconds until the first Pod", lambda one: one.pod_s, Goal(0.4)),
    Row("CPU-s until settled", lambda one: one.cpu_s, Goal(0.25)),
    Row("resident MiB then", lambda one: one.memory_mib, Goal(0.45)),
    Row("peak MiB", lambda one: one.peak_mib),
    Row("CPU-s while idle", lambda one: one.idle_cpu_s),
)


async def finish_one(client: Client) -> None:
    """Create the finished job that is cloned."""
    job = await create_job(client, ORIGINAL)
    done = {"type": "Complete", "status": "True", "reason": "Scored", "lastTransitionTime": "2026-11-15T12:00:09Z"}
    status = {
        "phase": "Succeeded",
        "score": 93.218734,
        "assignedNode": "node-00",
        "controllerJobID": f"{job.metadata.uid}-0",
        "startedAt": "2026-11-15T12:00:00Z",
        "finishedAt": "2026-11-15T12:00:09Z",
        "attempts": 1,
        "frames": 300,
        "conditions": [done],
    }
    await client.patch_status(JOBS, ORIGINAL, status)


async def reset(client: Client) -> None:
    """The same state for every contestant: a waiting job, a healthy node, and nodes without a status."""
    with suppress(NotFound):
        await client.delete(JOBS, WAITING)
    with suppress(NotFound):
        await client.delete(POD, ObjectKey(NAMESPACE, f"{WAITING.name}-0"), grace_seconds=0)
    await create_job(client, WAITING)
    for number, name in enumerate(node_names()):
        status = {"healthy": None if number else True, "conditions": None, "observedGeneration": None}
        await client.patch_status(NODES, ObjectKey(NAMESPACE, name), status)


async def first_pod(client: Client, version: str) -> float:
    """The time at which the first Pod appears."""
    async with asyncio.timeout(READY_WITHIN), aclosing(aiter(client.watch(POD, NAMESPACE, version=version))) as batches:
        await anext(batches)
        return time.perf_counter()


async def measure(cluster: DevCluster, name: str, idle: float) -> Start:
    """Start a contestant, wait until it is ready and idle, measure it idling, and stop it."""
    async with Client(load_config(cluster.kubeconfig)) as client, controller() as address:
        await reset(client)
        version = (await client.list(POD, NAMESPACE)).metadata.resourceVersion
        pod = asyncio.create_task(first_pod(client, version))
        for pid in servers_of(cluster).values():  # outstanding work of the API server must not be measured
            await wait_until_idle(pid, SERVER_IDLE_SHARE)
        async with running(name, cluster, address) as operator:
            ready = await operator.ready()
            try:
                pod_s = await pod - operator.started
            except TimeoutError:
                operator.fail(f"created no Pod within {READY_WITHIN:.0f} s")
            await wait_until_idle(operator.pid)
            settled, memory = cpu_seconds(operator.pid), memory_mib(operator.pid, "VmRSS")
            peak = memory_mib(operator.pid, "VmHWM")
            await asyncio.sleep(idle)
            if not await all_healthy(client):
                operator.fail("did not write the health of all nodes")
            return Start(ready, pod_s, settled, memory, peak, cpu_seconds(operator.pid) - settled)


async def create_objects(cluster: DevCluster) -> None:
    async with Client(load_config(cluster.kubeconfig)) as client:
        await prepare(client)
        await finish_one(client)


def run(sizes: list[int], names: list[str], rounds: int, idle: float) -> None:
    with control_plane() as cluster, asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        loop.run(create_objects(cluster))
        existing = 1
        for size in sizes:
            loop.run(clone_jobs(cluster, existing, size - existing))
            loop.run(all_served(cluster, size))
            existing = size
            results: dict[str, list[Start]] = {name: [] for name in names}
            for number in range(rounds):
                for name in in_turns(names, number):
                    log(f"{size} jobs, round {number + 1} of {rounds}: {name}")
                    results[name].append(loop.run(measure(cluster, name, idle)))
            print(f"\n{size:,} finished jobs, {NODE_COUNT} nodes; medians of {rounds} rounds\n")
            heading(names)
            lines(names, ROWS if size >= GOALS_FROM else [row._replace(goal=None) for row in ROWS], results)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10000,50000", help="numbers of finished jobs, ascending")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--idle", type=float, default=20.0, help="seconds of idle time to measure")
    add_choice(parser, CONTESTANTS)
    arguments = parser.parse_args()
    sizes = [int(size) for size in arguments.sizes.split(",")]
    run(sizes, chosen(arguments.only, arguments.against, CONTESTANTS), arguments.rounds, arguments.idle)


if __name__ == "__main__":
    main()
