"""Benchmark of jobs on agents: the operator, one controller and simulated agents, on a fresh API server.

Run by `make bench-agents`. First, 50 agents with 100 slots run 5,000 empty jobs: an agent pulls a job and reports a
score at once. Then 1,000 idle agents send heartbeats every 10 seconds and wait for work, for a minute.

- jobs/s: from the first creation sent to the last job seen Succeeded; submit to done: from sending the creation to the
  event in the driver's watch. All jobs are submitted at once, so most of that is queueing.
- CPU ms/job: user and kernel time of the operator and of the controller, in the run and the 2 seconds after.
- writes per job: requests counted by the API server, less the creations. Heartbeats are listed separately.

Finally all jobs are read back: the run fails if one lacks its own score.
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
from bench.api_requests import WRITES, request_counts, total
from bench.contest import NAMESPACE, Operator, control_plane, running, servers_of, wait_until_idle
from bench.contestants import OURS, log
from bench.driver import FRAMES, Driver, score_of
from bench.load import percentile
from bench.usage import CORES, cpu_seconds, memory_mib

from vmafx.devcluster import DevCluster, crds
from vmafx.devcluster.cluster import free_port
from vmafx.jobs.attempt import AttemptResult, encode_result
from vmafx.kube import JOBS, NODES, Client, Config, load_config
from vmafx.wire import controller_pb2 as wire
from vmafx.wire.controller_pb2_grpc import VmafxControllerStub

SLOTS = 100  # per agent, so that no job waits for one
HEARTBEAT, WAIT = 10.0, 30
WITHIN, TAIL = 600.0, 2.0
CHANNELS = 50  # shared by the simulated agents; sockets are not measured


class Agent:
    """One simulated agent."""

    def __init__(self, stub: VmafxControllerStub, name: str) -> None:
        self._stub, self._name = stub, name
        self._capability = wire.NodeCapability(gpu_vendor="cpu", concurrency=SLOTS)
        self._running: dict[str, str] = {}

    async def register(self) -> None:
        session = await self._stub.RegisterNode(wire.RegisterNodeRequest(name=self._name, capability=self._capability))
        self._node, self._token = session.node_id, session.session_token

    def _jobs(self) -> wire.RunningJobs:
        return wire.RunningJobs(jobs=[wire.RunningJob(id=one, name=name) for one, name in self._running.items()])

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._send_heartbeats())
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
        reply = await self._stub.ReportResult(
            wire.ReportResultRequest(
                node_id=self._node, session_token=self._token, job_id=attempt, name=name, final=True, answer=answer
            )
        )
        if not reply.ok:
            raise SystemExit(f"the result of {name} was rejected")
        del self._running[attempt]

    async def _send_heartbeats(self) -> None:
        while True:
            reply = await self._stub.Heartbeat(
                wire.HeartbeatRequest(node_id=self._node, session_token=self._token, running_job_ids=self._jobs())
            )
            if not reply.ok:
                raise SystemExit(f"the session of {self._name} is no longer valid")
            await asyncio.sleep(HEARTBEAT)


@asynccontextmanager
async def agents(port: int, count: int) -> AsyncIterator[None]:
    """Run `count` registered agents."""
    async with AsyncExitStack() as stack:
        options = [("grpc.use_local_subchannel_pool", 1)]
        stubs = [
            VmafxControllerStub(
                await stack.enter_async_context(grpc.aio.insecure_channel(f"127.0.0.1:{port}", options))
            )
            for _ in range(min(CHANNELS, count))
        ]
        agents = [Agent(stubs[number % len(stubs)], f"agent-{number:04}") for number in range(count)]
        for batch in (agents[first : first + 50] for first in range(0, count, 50)):
            await asyncio.gather(*(agent.register() for agent in batch))
        tasks = [asyncio.ensure_future(agent.run()) for agent in agents]
        try:
            yield
        finally:
            failed = [task for task in tasks if task.done()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for task in failed:
                raise SystemExit(f"an agent failed: {task.exception()!r}")


class Controller(msgspec.Struct, frozen=True):
    pid: int
    grpc: int
    http: int


@asynccontextmanager
async def run_controller(cluster: DevCluster) -> AsyncIterator[Controller]:
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
    """A controller, an operator and `count` healthy agents; the operator is idle."""
    config = load_config(cluster.kubeconfig)
    async with Client(config) as client:
        await crds.install_crds(client)
        async with (
            run_controller(cluster) as controller,
            running(OURS, cluster, f"http://127.0.0.1:{controller.http}") as operator,
        ):
            await _serving(controller.grpc)
            async with agents(controller.grpc, count):
                await operator.ready()
                while not await _all_healthy(client, count):
                    operator.check()
                    await asyncio.sleep(0.2)
                await wait_until_idle(operator.pid)
                yield controller, operator


async def _serving(port: int) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        async with asyncio.timeout(60):
            await channel.channel_ready()


async def _all_healthy(client: Client, count: int) -> bool:
    nodes = (await client.list(NODES, NAMESPACE)).items
    return len(nodes) == count and all(node.status.healthy for node in nodes)


async def busy(cluster: DevCluster, count: int, jobs: int) -> None:
    config = load_config(cluster.kubeconfig)
    async with fleet(cluster, count) as (controller, operator), Driver(config, jobs) as driver:
        before, sent = await asyncio.to_thread(request_counts, config), driver.sent()
        cpu, started = _cpu(controller, operator, cluster), time.perf_counter()
        await driver.create(0)
        while not await driver.all_done():
            operator.check()
            if time.perf_counter() - started > WITHIN:
                operator.fail(f"did not finish within {WITHIN:.0f} s")
            await asyncio.sleep(0.1)
        await asyncio.sleep(TAIL)
        spent = [now - then for now, then in zip(_cpu(controller, operator, cluster), cpu, strict=True)]
        requests = await asyncio.to_thread(request_counts, config)
        requests.subtract(before)
        requests.subtract(driver.sent() - sent)
        times = driver.times.values()
        to_done = sorted((one.done - one.created) * 1000 for one in times)
        seconds = max(one.done for one in times) - started
        peak = [memory_mib(pid, "VmHWM") for pid in (operator.pid, controller.pid)]
        await _read_back(config, list(driver.times))
    print(f"\n{count} agents of {SLOTS} slots, {jobs:,} empty jobs, all at once; all jobs read back without problems\n")
    print("| | |\n|---|---|")
    print(f"| jobs/s | {jobs / seconds:.1f} |")
    print(f"| submit to done, p50 / p99 ms | {percentile(0.5, to_done):.0f} / {percentile(0.99, to_done):.0f} |")
    print(f"| writes of jobs and Pods per job (goal 2) | {total(requests, WRITES, 'vmafxjobs', 'pods') / jobs:.3f} |")
    print(f"| writes of nodes and events per job | {total(requests, WRITES, 'vmafxnodes', 'events') / jobs:.3f} |")
    for name, value in zip(("operator", "controller", "API server and etcd"), spent, strict=True):
        print(f"| CPU of {name}, ms/job | {value * 1000 / jobs:.2f} |")
    print(f"| peak MiB of operator / controller | {peak[0]:.1f} / {peak[1]:.1f} |")


async def idle(cluster: DevCluster, count: int, seconds: float) -> None:
    config = load_config(cluster.kubeconfig)
    async with fleet(cluster, count) as (controller, operator):
        before, cpu, started = (
            await asyncio.to_thread(request_counts, config),
            _cpu(controller, operator, cluster),
            time.perf_counter(),
        )
        await asyncio.sleep(seconds)
        spent = [now - then for now, then in zip(_cpu(controller, operator, cluster), cpu, strict=True)]
        took = time.perf_counter() - started
        requests = await asyncio.to_thread(request_counts, config)
        requests.subtract(before)
        resident = [memory_mib(pid, "VmRSS") for pid in (operator.pid, controller.pid)]
    print(f"\n{count:,} idle agents, {took:.0f} seconds ({CORES} cores)\n")
    print("| | |\n|---|---|")
    print(f"| API writes per second | {total(requests, WRITES) / took:.1f} |")
    for name, value in zip(("operator", "controller", "API server and etcd"), spent, strict=True):
        print(f"| CPU of {name}, % of a core | {value / took * 100:.1f} |")
    print(f"| resident MiB of operator / controller | {resident[0]:.1f} / {resident[1]:.1f} |")


def _cpu(controller: Controller, operator: Operator, cluster: DevCluster) -> list[float]:
    return [cpu_seconds(operator.pid), cpu_seconds(controller.pid), sum(map(cpu_seconds, servers_of(cluster).values()))]


async def _read_back(config: Config, names: list[str]) -> None:
    async with Client(config) as client:
        jobs = {job.metadata.name: job for job in (await client.list(JOBS, NAMESPACE)).items}
    wrong = [name for name in names if name not in jobs or jobs[name].status.score != score_of(name)]
    if wrong:
        raise SystemExit(f"{len(wrong)} jobs have a wrong score, such as {wrong[0]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=5000, help="0 skips this part")
    parser.add_argument("--idle", type=int, default=1000, help="idle agents; 0 skips this part")
    parser.add_argument("--idle-for", type=float, default=60.0, help="seconds")
    arguments = parser.parse_args()
    if arguments.jobs:
        with _logged_control_plane() as cluster, asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
            loop.run(busy(cluster, arguments.agents, arguments.jobs))
    if arguments.idle:
        with _logged_control_plane() as cluster, asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
            loop.run(idle(cluster, arguments.idle, arguments.idle_for))


@contextmanager
def _logged_control_plane() -> Iterator[DevCluster]:
    log("starting a control plane, an operator, a controller and agents")
    with control_plane() as cluster:
        yield cluster


if __name__ == "__main__":
    main()
