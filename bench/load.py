"""What it costs an operator to run jobs, and how fast it does: ours, Go's and kopf's, in turns.

Run by `make bench-load`. A burst: all jobs at once, by 32 creators. A rate: so many jobs a second, whatever becomes of
them, for 20 seconds. The driver plays the kubelet: it ends every Pod well as soon as it is there. Each run has a fresh
etcd and API server, 50 nodes that always have room, and an operator that is ready and calm.

- jobs/s: from the first creation sent to the last job seen Succeeded.
- create to Pod, create to Succeeded: from sending the creation, or with a rate from when it was due, to the event in
  the driver's watch.
- CPU ms/job: user and kernel time of the operator, in the run and the 2 seconds after.
- the API server's and etcd's CPU, in the same time: with the driver's own requests, which are the same for all.
- writes and reads for a job: what the API server counted, less what the driver sent (asked.py). Writes of nodes are
  apart: ours tells in each node's status how many jobs it has, every 5 seconds; the others do not. So are events, which
  ours writes for scores, up to 10 a second. A watch that the API server ends and the operator resumes is no read.
- other programs: CPU that neither the operator nor the control plane nor the driver took. Runs in which that is over a
  tenth of the machine are left out of the medians.

In the end everything is read back: one job without its own score, its node or its one Pod, and the run fails. The Go
operator (controller-runtime 0.25) makes the Pod and then writes that the job runs, which is quicker; ours writes first,
since what is written is the fence behind which no other attempt counts.
"""

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable

import msgspec
import uvloop
from bench.asked import READS, WRITES, asked, total
from bench.contest import (
    GO,
    KOPF,
    NODE_COUNT,
    OURS,
    SERVER_CALM,
    Operator,
    add_choice,
    all_healthy,
    calm,
    chosen,
    control_plane,
    controller,
    in_turns,
    prepare,
    running,
    say,
    servers_of,
)
from bench.driver import Driver, problems
from bench.tables import Goal, Row, heading, lines
from bench.usage import Window, memory_mib

from vmafx.devcluster import DevCluster
from vmafx.kube import Client, Config, load_config

CONTESTANTS = (OURS, GO, KOPF)
RATE_FOR = 20  # seconds
WITHIN = 300.0  # seconds
TAIL = 2.0  # seconds, for what is written after the last result
DISTURBED = 0.10  # of the machine


class Load(msgspec.Struct, frozen=True):
    """What is asked of the contestants."""

    title: str
    jobs: int
    rate: float = 0.0  # jobs/s; 0 for all at once


class Run(msgspec.Struct, frozen=True):
    """What came of it."""

    jobs_s: float
    to_pod: list[float]  # ms, sorted
    to_done: list[float]
    cpu_ms: float
    servers_ms: float
    peak_mib: float
    writes: float
    node_writes: float
    event_writes: float
    reads: float
    foreign: float


def run(name: str, load: Load) -> Run:
    with control_plane() as cluster, asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        return loop.run(_run(cluster, name, load))


async def _run(cluster: DevCluster, name: str, load: Load) -> Run:
    config = load_config(cluster.kubeconfig)
    async with Client(config) as client, controller() as address:
        await prepare(client)
        async with running(name, cluster, address) as operator, Driver(config, load.jobs) as driver:
            servers = servers_of(cluster)
            await operator.ready()
            await _until(lambda: all_healthy(client), operator)
            await calm(operator.pid)
            for pid in servers:
                await calm(pid, SERVER_CALM)
            measured = await _measure(config, operator, driver, load, servers)
        if wrong := await problems(client, list(driver.times)):
            raise SystemExit(f"{name}: {len(wrong)} problems, such as: {'; '.join(wrong[:5])}")
        return measured


async def _measure(config: Config, operator: Operator, driver: Driver, load: Load, servers: list[int]) -> Run:
    before, sent_before = await asyncio.to_thread(asked, config), driver.sent()
    window, began = Window(operator.pid, servers), time.perf_counter()
    await driver.create(load.rate)
    await _until(driver.all_done, operator)
    await asyncio.sleep(TAIL)
    cpu, served = window.operator_s(), window.servers_s()
    foreign, peak = window.foreign_share(), memory_mib(operator.pid, "VmHWM")
    requests = await asyncio.to_thread(asked, config)
    requests.subtract(before)
    requests.subtract(driver.sent() - sent_before)
    times = driver.times.values()
    return Run(
        jobs_s=load.jobs / (max(one.done for one in times) - began),
        to_pod=sorted((one.pod - one.created) * 1000 for one in times),
        to_done=sorted((one.done - one.created) * 1000 for one in times),
        cpu_ms=cpu * 1000 / load.jobs,
        servers_ms=served * 1000 / load.jobs,
        peak_mib=peak,
        writes=total(requests, WRITES, "vmafxjobs", "pods") / load.jobs,
        node_writes=total(requests, WRITES, "vmafxnodes") / load.jobs,
        event_writes=total(requests, WRITES, "events") / load.jobs,
        reads=total(requests, READS) / load.jobs,
        foreign=foreign,
    )


async def _until(holds: Callable[[], Awaitable[bool]], operator: Operator) -> None:
    deadline = time.perf_counter() + WITHIN
    while not await holds():
        operator.check()
        if time.perf_counter() > deadline:
            operator.fail(f"did not do its work within {WITHIN:.0f} s")
        await asyncio.sleep(0.1)


def at(share: float, values: list[float]) -> float:
    """The value below which this share of them is; they are sorted."""
    return values[min(int(share * len(values)), len(values) - 1)]


COMMON = (
    Row("create to Pod, p50 ms", lambda one: at(0.5, one.to_pod)),
    Row("create to Pod, p99 ms", lambda one: at(0.99, one.to_pod)),
)
COSTS = (
    Row("operator's CPU, ms/job", lambda one: one.cpu_ms, Goal(0.75)),
    Row("API server's and etcd's CPU, ms/job", lambda one: one.servers_ms),
    Row("peak MiB", lambda one: one.peak_mib, Goal(50, ratio=False)),
    Row("writes/job", lambda one: one.writes, Goal(3, ratio=False)),
    Row("writes of nodes/job", lambda one: one.node_writes),
    Row("writes of events/job", lambda one: one.event_writes),
    Row("reads/job", lambda one: one.reads, Goal(0, ratio=False)),
    Row("other programs, % of the machine", lambda one: one.foreign * 100),
)
BURST = (
    Row("jobs/s", lambda one: one.jobs_s, Goal(1, least=True)),
    *COMMON,
    Row("create to Succeeded, p50 ms", lambda one: at(0.5, one.to_done)),
    Row("create to Succeeded, p99 ms", lambda one: at(0.99, one.to_done)),
    *COSTS,
)
RATE = (
    *COMMON,
    Row("create to Succeeded, p50 ms", lambda one: at(0.5, one.to_done), Goal(1)),
    Row("create to Succeeded, p99 ms", lambda one: at(0.99, one.to_done), Goal(1)),
    *COSTS,
)


class Scores:
    """The runs of each load and contestant; those beside which other programs ran are set apart."""

    def __init__(self) -> None:
        self._good: dict[tuple[str, str], list[Run]] = {}
        self._disturbed: dict[tuple[str, str], list[Run]] = {}

    def add(self, load: Load, name: str, run: Run) -> None:
        kept = self._disturbed if run.foreign > DISTURBED else self._good
        kept.setdefault((load.title, name), []).append(run)

    def of(self, load: Load, name: str) -> list[Run]:
        """The undisturbed runs; if there is none, the others: `notes` says so."""
        return self._good.get((load.title, name)) or self._disturbed[load.title, name]

    def notes(self) -> list[str]:
        return [
            f"{title}, {name}: {len(runs)} disturbed by other programs (over {DISTURBED:.0%} of the machine), "
            + ("left out" if (title, name) in self._good else "**and shown, since no other run is there**")
            for (title, name), runs in self._disturbed.items()
        ]


def contest(loads: list[Load], names: list[str], rounds: int) -> Scores:
    """All of them, in turns."""
    scores = Scores()
    for number in range(rounds):
        for load in loads:
            for name in in_turns(names, number):
                one = run(name, load)
                scores.add(load, name, one)
                say(
                    f"round {number + 1} of {rounds}, {load.title}, {name}: {one.jobs_s:.1f} jobs/s, "
                    f"{one.cpu_ms:.2f} ms/job, Succeeded after {at(0.5, one.to_done):.0f} ms (p99 "
                    f"{at(0.99, one.to_done):.0f}), other programs {one.foreign:.0%}"
                )
    return scores


def report(loads: list[Load], names: list[str], scores: Scores, rounds: int) -> None:
    print(f"\nJobs run on {NODE_COUNT} nodes; medians of {rounds} rounds; no problems when all was read back\n")
    heading(names)
    for load in loads:
        rows = RATE if load.rate else BURST
        shown = [row._replace(title=f"{load.title}: {row.title}") for row in rows]
        lines(names, shown, {name: scores.of(load, name) for name in names})
    for note in scores.notes():
        print(f"\n{note}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2000, help="of the burst; 0 leaves it out")
    parser.add_argument("--rate", type=float, default=20.0, help=f"jobs/s, for {RATE_FOR} s; 0 leaves it out")
    parser.add_argument("--rounds", type=int, default=3)
    add_choice(parser, CONTESTANTS)
    arguments = parser.parse_args()
    loads = [Load(f"burst of {arguments.jobs:,}", arguments.jobs)] if arguments.jobs else []
    if arguments.rate:
        loads.append(Load(f"{arguments.rate:g} a second", int(arguments.rate * RATE_FOR), arguments.rate))
    names = chosen(arguments.only, arguments.against, CONTESTANTS)
    report(loads, names, contest(loads, names, arguments.rounds), arguments.rounds)


if __name__ == "__main__":
    main()
