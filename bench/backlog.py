"""Benchmark of a large backlog: how soon the first of many waiting jobs is placed when nodes appear.

Run by `make bench-backlog`. Waiting jobs are cloned in etcd; there is no node. The operator starts, and 1,000 nodes
with one slot each are created by 8 creators: in the case "new", the jobs have no status, and nodes appear as soon as
the operator is ready; in the case "settled", every job already says why it waits, and the operator is idle. There is no
kubelet, so that no slot becomes free again.

- first placement: from sending the first creation of a node to the watch event of the first job that is Running.
- 1,000 placements: the same, to the last. Writes and the operator's CPU are counted until then.
- memory of a waiting job: resident memory of the operator then, less that with the smallest backlog, for each job more.

Each run has a fresh etcd and API server. The goal is a first placement within 1.2 of that with the smallest backlog.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Iterator
from contextlib import aclosing

import msgspec
import uvloop
from bench.api_requests import WRITES, request_counts, total
from bench.clones import ORIGINAL, all_served, clone_jobs, create_job
from bench.contest import (
    NAMESPACE,
    SERVER_IDLE_SHARE,
    Operator,
    control_plane,
    controller,
    running,
    servers_of,
    wait_until_idle,
)
from bench.contestants import OURS, REVISION, log
from bench.usage import cpu_seconds, memory_mib

from vmafx.api.job import JobView
from vmafx.api.meta import ObjectMeta
from vmafx.api.node import VmafxNode, VmafxNodeSpec
from vmafx.devcluster import DevCluster, crds
from vmafx.kube import JOBS, NODES, Client, Config, load_config
from vmafx.kube.watch import Modified

NODE_COUNT, CREATORS = 1_000, 8
GOAL = 1.2  # first placement, relative to that with the smallest backlog
PLACED_WITHIN = 900.0  # seconds
JOB = JOBS.decoded_as(JobView)
WAITS = {
    "type": "Scheduled",
    "status": "False",
    "reason": "NoNodes",
    "message": f"there is no VmafxNode in namespace {NAMESPACE}",
    "lastTransitionTime": "2026-11-15T12:00:00Z",
}
CASES = ("new", "settled")


class Run(msgspec.Struct, frozen=True):
    """The figures of one run."""

    first_s: float
    all_s: float
    job_writes: int
    node_writes: int
    cpu_s: float
    memory_mib: float


def run(name: str, size: int, *, settled: bool) -> Run:
    with control_plane() as cluster, asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        return loop.run(_run(cluster, name, size, settled=settled))


async def _run(cluster: DevCluster, name: str, size: int, *, settled: bool) -> Run:
    config = load_config(cluster.kubeconfig)
    async with Client(config) as client, controller() as address:
        await crds.install_crds(client)
        await create_job(client, ORIGINAL)
        if settled:
            await client.patch_status(JOBS, ORIGINAL, {"conditions": [WAITS]})
        await clone_jobs(cluster, 1, size - 1)
        await all_served(cluster, size)
        for pid in servers_of(cluster).values():
            await wait_until_idle(pid, SERVER_IDLE_SHARE)
        async with running(name, cluster, address) as operator:
            await operator.ready()
            if settled:
                await wait_until_idle(operator.pid)
            return await _measure(config, client, operator)


async def _measure(config: Config, client: Client, operator: Operator) -> Run:
    before, cpu = await asyncio.to_thread(request_counts, config), cpu_seconds(operator.pid)
    version = (await client.list(NODES, NAMESPACE)).metadata.resourceVersion
    placed = asyncio.create_task(_placements(config, version))
    started = time.perf_counter()
    numbers = iter(range(NODE_COUNT))
    await asyncio.gather(*(_create_nodes(client, numbers) for _ in range(CREATORS)))
    await operator.wait_until(lambda: asyncio.sleep(0, placed.done()), PLACED_WITHIN)
    first, last = placed.result()
    requests = await asyncio.to_thread(request_counts, config)
    requests.subtract(before)
    return Run(
        first_s=first - started,
        all_s=last - started,
        job_writes=total(requests, WRITES, "vmafxjobs"),
        node_writes=total(requests, WRITES, "vmafxnodes") - NODE_COUNT,
        cpu_s=cpu_seconds(operator.pid) - cpu,
        memory_mib=memory_mib(operator.pid, "VmRSS"),
    )


async def _create_nodes(client: Client, numbers: Iterator[int]) -> None:
    for number in numbers:
        spec = VmafxNodeSpec(gpuVendor="cpu", capacity=1, image="vmafx-worker:bench")
        await client.create(NODES, VmafxNode(metadata=ObjectMeta(name=f"node-{number:04}"), spec=spec), NAMESPACE)


async def _placements(config: Config, version: str) -> tuple[float, float]:
    """When the first job and when the last of NODE_COUNT were Running."""
    times: dict[str, float] = {}
    async with Client(config) as client, aclosing(aiter(client.watch(JOB, NAMESPACE, version=version))) as batches:
        async for batch in batches:
            now = time.perf_counter()
            for event in batch:
                if isinstance(event, Modified) and event.object.status.phase == "Running":
                    times.setdefault(event.object.metadata.name, now)
            if len(times) >= NODE_COUNT:
                break
    return min(times.values()), max(times.values())


def report(title: str, results: dict[int, list[Run]]) -> None:
    """Print a table of medians, with the ratio of each first placement to that of the smallest backlog."""
    medians = {
        size: Run(*(statistics.median(values) for values in zip(*map(msgspec.structs.astuple, runs), strict=True)))
        for size, runs in results.items()
    }
    least, smallest = next(iter(medians.items()))
    print(f"\n{title}; medians of {len(results[least])} rounds\n")
    print(
        "| waiting jobs | first placement, s | ratio | goal | 1,000 placements, s "
        "| writes of jobs | of nodes | CPU-s | MiB | KiB a waiting job |\n|" + "---|" * 10
    )
    for size, one in medians.items():
        ratio, goal, per_job = one.first_s / smallest.first_s, "", ""
        if size > least:
            goal = f"{GOAL}: {'met' if ratio <= GOAL else '**missed**'}"
            per_job = f"{(one.memory_mib - smallest.memory_mib) * 1024 / (size - least):.2f}"
        print(
            f"| {size:,} | {one.first_s:.3f} | {ratio:.2f} | {goal} | {one.all_s:.2f} "
            f"| {one.job_writes:,.0f} | {one.node_writes:,.0f} | {one.cpu_s:.2f} | {one.memory_mib:.1f} | {per_job} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1000,10000,100000", help="numbers of waiting jobs, ascending")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--against", default="", metavar="REVISION", help="run the operator of this git revision")
    parser.add_argument("--only", choices=CASES, help="one of the two cases")
    arguments = parser.parse_args()
    sizes = [int(size) for size in arguments.sizes.split(",")]
    name = f"{REVISION}{arguments.against}" if arguments.against else OURS
    for case in [arguments.only] if arguments.only else CASES:
        results: dict[int, list[Run]] = {size: [] for size in sizes}
        for number in range(arguments.rounds):
            for size in sizes:
                one = run(name, size, settled=case == "settled")
                log(f"{case}, round {number + 1} of {arguments.rounds}, {size:,} jobs: first after {one.first_s:.3f} s")
                results[size].append(one)
        report(f"{name}: {NODE_COUNT:,} nodes, {case}", results)


if __name__ == "__main__":
    main()
