"""What it costs to run jobs on agents: the operator, one controller, and simulated agents, on a fresh API server.

Run by `make bench-agents`. First 50 agents of 100 slots run 5,000 jobs of no work: each pulls, and reports a score at
once. Then 1,000 agents have nothing to do for a minute but to say so every 10 seconds and to wait for work.

- jobs/s: from the first creation sent to the last job seen Succeeded; submit to done: from sending the creation to the
  event in the driver's watch. All jobs come at once, so most of that is queueing.
- CPU ms/job: user and kernel time of the operator and of the controller, in the run and the 2 seconds after.
- writes for a job: what the API server counted, less the creations. Heartbeats are apart.

In the end everything is read back: one job without its own score, and the run fails.
"""

import argparse
import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

import grpc
import msgspec
import uvloop
from bench.asked import WRITES, asked, total
from bench.contest import NAMESPACE, OURS, Operator, calm, control_plane, running, say, servers_of
from bench.driver import FRAMES, Driver, score_of
from bench.load import at
from bench.usage import CORES, cpu_seconds, memory_mib

from vmafx.devcluster import DevCluster, crds
from vmafx.devcluster.cluster import free_port
from vmafx.jobs.attempt import AttemptResult, encode_result
from vmafx.kube import JOBS, NODES, Client, Config, load_config
from vmafx.wire import controller_pb2 as wire
from vmafx.wire.controller_pb2_grpc import VmafxControllerStub

SLOTS = 100  # so that no job waits for one
HEARTBEAT, WAIT = 10.0, 30
WITHIN, TAIL = 600.0, 2.0
CHANNELS = 50  # that simulated agents share: sockets are not what is measured


class Agent:
    """One simulated agent."""

    def __init__(self, stub: VmafxControllerStub, name: str) -> None:
        self._stub, self._name = stub, name
        self._capability = wire.NodeCapability(gpu_vendor="cpu", concurrency=SLOTS)
        self._running: dict[str, str] = {}

    async def register(self) -> None:
        said = await self._stub.RegisterNode(wire.RegisterNodeRequest(name=self._name, capability=self._capability))
        self._node, self._token = said.node_id, said.session_token

    def _jobs(self) -> wire.RunningJobs:
        return wire.RunningJobs(jobs=[wire.RunningJob(id=one, name=name) for one, name in self._running.items()])

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._beat())
            while True:
                answer = await self._stub.PullWork(
                    wire.PullWorkRequest(
                        node_id=self._node, session_token=self._token, capability=self._capability,
                        running_job_ids=self._jobs(), wait_seconds=WAIT,
                    ),
                    timeout=WAIT + 15,
                )  # fmt: skip
                if answer.HasField("job"):
                    self._running[answer.job.id] = answer.job.name
                    group.create_task(self._report(answer.job.id, answer.job.name))

    async def _report(self, attempt: str, name: str) -> None:
        answer = encode_result(AttemptResult(attempt, score_of(name), FRAMES)).decode()
        said = await self._stub.ReportResult(
            wire.ReportResultRequest(
                node_id=self._node, session_token=self._token, job_id=attempt, name=name, final=True, answer=answer
            )
        )
        if not said.ok:
            raise SystemExit(f"the result of {name} was refused")
        del self._running[attempt]

    async def _beat(self) -> None:
        while True:
            said = await self._stub.Heartbeat(
                wire.HeartbeatRequest(node_id=self._node, session_token=self._token, running_job_ids=self._jobs())
            )
            if not said.ok:
                raise SystemExit(f"{self._name} was told to register again")
            await asyncio.sleep(HEARTBEAT)


@asynccontextmanager
async def agents(port: int, count: int) -> AsyncIterator[None]:
    """So many, registered and at work."""
    async with AsyncExitStack() as stack:
        options = [("grpc.use_local_subchannel_pool", 1)]
        stubs = [
            VmafxControllerStub(
                await stack.enter_async_context(grpc.aio.insecure_channel(f"127.0.0.1:{port}", options))
            )
            for _ in range(min(CHANNELS, count))
        ]
        made = [Agent(stubs[number % len(stubs)], f"agent-{number:04}") for number in range(count)]
        for some in (made[first : first + 50] for first in range(0, count, 50)):
            await asyncio.gather(*(agent.register() for agent in some))
        tasks = [asyncio.ensure_future(agent.run()) for agent in made]
        try:
            yield
        finally:
            ended = [task for task in tasks if task.done()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for task in ended:
                raise SystemExit(f"an agent ended: {task.exception()!r}")


class Controller(msgspec.Struct, frozen=True):
    pid: int
    grpc: int
    http: int


@asynccontextmanager
async def controller(cluster: DevCluster) -> AsyncIterator[Controller]:
    ports = free_port(), free_port()
    flags = ["--auth=insecure", f"--grpc-address=127.0.0.1:{ports[0]}", f"--http-address=127.0.0.1:{ports[1]}"]
    command = [sys.executable, "-m", "vmafx.controller.main", *flags, "--log-level=error"]
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    process = await asyncio.create_subprocess_exec(*command, env=environment)
    try:
        yield Controller(process.pid, *ports)
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def fleet(cluster: DevCluster, count: int) -> AsyncIterator[tuple[Controller, Operator]]:
    """Controller, operator, and so many agents that are healthy; all calm."""
    config = load_config(cluster.kubeconfig)
    async with Client(config) as client:
        await crds.install_crds(client)
        async with controller(cluster) as door, running(OURS, cluster, f"http://127.0.0.1:{door.http}") as operator:
            await _serving(door.grpc)
            async with agents(door.grpc, count):
                await operator.ready()
                while not await _all_healthy(client, count):
                    operator.check()
                    await asyncio.sleep(0.2)
                await calm(operator.pid)
                yield door, operator


async def _serving(port: int) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        async with asyncio.timeout(60):
            await channel.channel_ready()


async def _all_healthy(client: Client, count: int) -> bool:
    nodes = (await client.list(NODES, NAMESPACE)).items
    return len(nodes) == count and all(node.status.healthy for node in nodes)


async def busy(cluster: DevCluster, count: int, jobs: int) -> None:
    config = load_config(cluster.kubeconfig)
    async with fleet(cluster, count) as (door, operator), Driver(config, jobs) as driver:
        before, sent = await asyncio.to_thread(asked, config), driver.sent()
        cpu, began = _cpu(door, operator, cluster), time.perf_counter()
        await driver.create(0)
        while not await driver.all_done():
            operator.check()
            if time.perf_counter() - began > WITHIN:
                operator.fail(f"did not do its work within {WITHIN:.0f} s")
            await asyncio.sleep(0.1)
        await asyncio.sleep(TAIL)
        spent = [now - then for now, then in zip(_cpu(door, operator, cluster), cpu, strict=True)]
        requests = await asyncio.to_thread(asked, config)
        requests.subtract(before)
        requests.subtract(driver.sent() - sent)
        times = driver.times.values()
        to_done = sorted((one.done - one.created) * 1000 for one in times)
        seconds = max(one.done for one in times) - began
        peak = [memory_mib(pid, "VmHWM") for pid in (operator.pid, door.pid)]
        await _read_back(config, list(driver.times))
    print(f"\n{count} agents of {SLOTS} slots, {jobs:,} jobs of no work, all at once; all read back, no problems\n")
    print("| | |\n|---|---|")
    print(f"| jobs/s | {jobs / seconds:.1f} |")
    print(f"| submit to done, p50 / p99 ms | {at(0.5, to_done):.0f} / {at(0.99, to_done):.0f} |")
    print(f"| writes of jobs and Pods for a job (goal 2) | {total(requests, WRITES, 'vmafxjobs', 'pods') / jobs:.3f} |")
    print(f"| writes of nodes, events for a job | {total(requests, WRITES, 'vmafxnodes', 'events') / jobs:.3f} |")
    for name, value in zip(("operator", "controller", "API server and etcd"), spent, strict=True):
        print(f"| CPU of {name}, ms/job | {value * 1000 / jobs:.2f} |")
    print(f"| peak MiB of operator / controller | {peak[0]:.1f} / {peak[1]:.1f} |")


async def idle(cluster: DevCluster, count: int, seconds: float) -> None:
    config = load_config(cluster.kubeconfig)
    async with fleet(cluster, count) as (door, operator):
        before, cpu, began = await asyncio.to_thread(asked, config), _cpu(door, operator, cluster), time.perf_counter()
        await asyncio.sleep(seconds)
        spent = [now - then for now, then in zip(_cpu(door, operator, cluster), cpu, strict=True)]
        took = time.perf_counter() - began
        requests = await asyncio.to_thread(asked, config)
        requests.subtract(before)
        resident = [memory_mib(pid, "VmRSS") for pid in (operator.pid, door.pid)]
    print(f"\n{count:,} idle agents, {took:.0f} seconds ({CORES} cores)\n")
    print("| | |\n|---|---|")
    print(f"| API writes a second | {total(requests, WRITES) / took:.1f} |")
    for name, value in zip(("operator", "controller", "API server and etcd"), spent, strict=True):
        print(f"| CPU of {name}, % of a core | {value / took * 100:.1f} |")
    print(f"| resident MiB of operator / controller | {resident[0]:.1f} / {resident[1]:.1f} |")


def _cpu(door: Controller, operator: Operator, cluster: DevCluster) -> list[float]:
    return [cpu_seconds(operator.pid), cpu_seconds(door.pid), sum(map(cpu_seconds, servers_of(cluster)))]


async def _read_back(config: Config, names: list[str]) -> None:
    async with Client(config) as client:
        jobs = {job.metadata.name: job for job in (await client.list(JOBS, NAMESPACE)).items}
    wrong = [name for name in names if name not in jobs or jobs[name].status.score != score_of(name)]
    if wrong:
        raise SystemExit(f"{len(wrong)} jobs without their own score, such as {wrong[0]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=5000, help="0 leaves them out")
    parser.add_argument("--idle", type=int, default=1000, help="agents with nothing to do; 0 leaves them out")
    parser.add_argument("--idle-for", type=float, default=60.0, help="seconds")
    asked_for = parser.parse_args()
    if asked_for.jobs:
        with _cluster() as cluster, asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
            loop.run(busy(cluster, asked_for.agents, asked_for.jobs))
    if asked_for.idle:
        with _cluster() as cluster, asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
            loop.run(idle(cluster, asked_for.idle, asked_for.idle_for))


@contextmanager
def _cluster() -> Iterator[DevCluster]:
    say("starting a control plane, an operator, a controller and agents")
    with control_plane() as cluster:
        yield cluster


if __name__ == "__main__":
    main()
