"""Benchmark of operators running jobs: ours, one in Go and one on kopf, in turns.

Run by `make bench-load`. Burst: all jobs at once, by 32 creators. Rate: a fixed number of jobs per second for 20
seconds (open loop). The driver acts as the kubelet: every Pod succeeds as soon as it exists. Each run has a fresh
etcd and API server, 50 nodes with free slots, and an operator that is ready and idle.

`--crds ours`: all contestants use our CRDs. `--crds own`: Go and kopf use light CRDs of their own (peer-go/crds), which
have only the fields that they use, and no rules. Default: both, a table each; ours is in both tables with the same
runs. `--causes` runs ours, Go and the variants of Go (go_variants.py) on our CRDs: each variant does one thing as
ours does, so its difference to Go is the cost of that. "Go, all" does all of them, and shows what they do not explain.

- jobs/s: from the first creation sent to the last job seen Succeeded.
- create to Pod, create to Succeeded: from sending the creation, or with a rate from when it was due, to the event in
  the driver's watch.
- CPU ms/job: user and kernel time of the operator, in the run and the 2 seconds after.
- the API server's CPU, also with etcd's, in the same time: includes the driver's requests, which are the same for all.
  Its ratio to the operator's CPU, for the Go operator on our CRDs and on light ones, shows what our rules cost.
- writes and reads per job: requests counted by the API server, less those of the driver (api_requests.py). Writes of
  nodes are listed separately: only ours writes the number of jobs to each node's status, every 5 seconds. So are
  events, which ours writes for scores: 100 at once, then up to 10 per second. A resumed watch does not count as a read.
- other programs: CPU used by neither the operator nor the control plane nor the driver. Runs in which that exceeds 10 %
  of the machine are excluded from the medians.

Finally all objects are read back: the run fails if a job lacks its own score, its node or its one Pod. The Go operator
(controller-runtime 0.25) creates the Pod before it writes the job's status, which is faster; ours writes the status
first, as the fence that invalidates all other attempts.
"""

import argparse
import asyncio
import time
from typing import Literal, NamedTuple

import msgspec
import uvloop
from bench.api_requests import READS, WRITES, request_counts, total
from bench.contest import (
    NODE_COUNT,
    SERVER_IDLE_SHARE,
    Operator,
    all_healthy,
    control_plane,
    controller,
    prepare,
    running,
    servers_of,
    wait_until_idle,
)
from bench.contestants import KOPF, OURS, add_choice, chosen, in_turns, log
from bench.driver import Driver, problems
from bench.go_variants import CAUSES, GO, GO_ALL
from bench.tables import Goal, Row, heading, lines
from bench.usage import Window, memory_mib

from vmafx.devcluster import DevCluster
from vmafx.devcluster.components import APISERVER
from vmafx.kube import Client, Config, load_config

CONTESTANTS, VARIANTS = (OURS, GO, KOPF), (OURS, GO, *CAUSES, GO_ALL)
Crds = Literal["own", "ours"]
CRDS: dict[Crds, str] = {"own": "Go and kopf on light CRDs of their own", "ours": "All on our CRDs"}
RATE_FOR = 20  # seconds
WITHIN = 300.0  # seconds
TAIL = 2.0  # seconds, for writes after the last result
DISTURBED = 0.10  # share of the machine used by other programs


class Load(msgspec.Struct, frozen=True):
    """The jobs of one benchmark."""

    title: str
    jobs: int
    rate: float = 0.0  # jobs/s; 0 for all at once


class Entry(NamedTuple):
    """A contestant on light CRDs or on ours."""

    name: str
    light: bool

    def __str__(self) -> str:
        return f"{self.name} on light CRDs" if self.light else self.name


def entry(name: str, crds: Crds) -> Entry:
    """Our operator, of any revision, always uses our CRDs."""
    return Entry(name, light=crds == "own" and not name.startswith(OURS))


class Run(msgspec.Struct, frozen=True):
    """The figures of one run."""

    jobs_s: float
    to_pod: list[float]  # ms, sorted
    to_done: list[float]
    cpu_ms: float
    apiserver_ms: float
    servers_ms: float  # the API server and etcd
    peak_mib: float
    writes: float
    node_writes: float
    event_writes: float
    reads: float
    foreign: float


def run(who: Entry, load: Load) -> Run:
    with control_plane() as cluster, asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        return loop.run(_run(cluster, who, load))


async def _run(cluster: DevCluster, who: Entry, load: Load) -> Run:
    config = load_config(cluster.kubeconfig)
    async with Client(config) as client, controller() as address:
        await prepare(client, light=who.light)
        async with running(who.name, cluster, address) as operator, Driver(config, load.jobs) as driver:
            servers = servers_of(cluster)
            await operator.ready()
            await operator.wait_until(lambda: all_healthy(client), WITHIN)
            await wait_until_idle(operator.pid)
            for pid in servers.values():
                await wait_until_idle(pid, SERVER_IDLE_SHARE)
            measured = await _measure(config, operator, driver, load, servers)
        if wrong := await problems(client, list(driver.times)):
            raise SystemExit(f"{who}: {len(wrong)} problems, such as: {'; '.join(wrong[:5])}")
        return measured


async def _measure(config: Config, operator: Operator, driver: Driver, load: Load, servers: dict[str, int]) -> Run:
    before, sent_before = await asyncio.to_thread(request_counts, config), driver.sent()
    window, started = Window(operator.pid, list(servers.values())), time.perf_counter()
    await driver.create(load.rate)
    await operator.wait_until(driver.all_done, WITHIN)
    await asyncio.sleep(TAIL)
    cpu, served, served_all = window.operator_s(), window.server_s(servers[APISERVER]), window.servers_s()
    foreign, peak = window.foreign_share(), memory_mib(operator.pid, "VmHWM")
    requests = await asyncio.to_thread(request_counts, config)
    requests.subtract(before)
    requests.subtract(driver.sent() - sent_before)
    times = driver.times.values()
    return Run(
        jobs_s=load.jobs / (max(one.done for one in times) - started),
        to_pod=sorted((one.pod - one.created) * 1000 for one in times),
        to_done=sorted((one.done - one.created) * 1000 for one in times),
        cpu_ms=cpu * 1000 / load.jobs,
        apiserver_ms=served * 1000 / load.jobs,
        servers_ms=served_all * 1000 / load.jobs,
        peak_mib=peak,
        writes=total(requests, WRITES, "vmafxjobs", "pods") / load.jobs,
        node_writes=total(requests, WRITES, "vmafxnodes") / load.jobs,
        event_writes=total(requests, WRITES, "events") / load.jobs,
        reads=total(requests, READS) / load.jobs,
        foreign=foreign,
    )


def percentile(share: float, values: list[float]) -> float:
    """A percentile of sorted values."""
    return values[min(int(share * len(values)), len(values) - 1)]


COMMON = (
    Row("create to Pod, p50 ms", lambda one: percentile(0.5, one.to_pod)),
    Row("create to Pod, p99 ms", lambda one: percentile(0.99, one.to_pod)),
)
COSTS = (
    Row("operator's CPU, ms/job", lambda one: one.cpu_ms, Goal(0.75)),
    Row("API server's CPU, ms/job", lambda one: one.apiserver_ms),
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
    Row("create to Succeeded, p50 ms", lambda one: percentile(0.5, one.to_done)),
    Row("create to Succeeded, p99 ms", lambda one: percentile(0.99, one.to_done)),
    *COSTS,
)
LATENCY_GOAL = Goal(1.2)  # ours writes the placement before it creates the Pod, see docs/operator.md
RATE = (
    *COMMON,
    Row("create to Succeeded, p50 ms", lambda one: percentile(0.5, one.to_done), LATENCY_GOAL),
    Row("create to Succeeded, p99 ms", lambda one: percentile(0.99, one.to_done), LATENCY_GOAL),
    *COSTS,
)


def rows(load: Load, crds: Crds) -> list[Row]:
    goal = Goal(5.5, ratio=False, contestant=GO) if crds == "ours" and not load.rate else None
    ratios = (
        Row("API server's CPU to the operator's", lambda one: one.apiserver_ms / one.cpu_ms, goal),
        Row("API server's and etcd's CPU to the operator's", lambda one: one.servers_ms / one.cpu_ms),
    )
    return [row._replace(title=f"{load.title}: {row.title}") for row in (RATE if load.rate else BURST) + ratios]


class Scores:
    """The runs of each load and contestant; runs disturbed by other programs are kept apart."""

    def __init__(self) -> None:
        self._good: dict[tuple[str, Entry], list[Run]] = {}
        self._disturbed: dict[tuple[str, Entry], list[Run]] = {}

    def add(self, load: Load, who: Entry, run: Run) -> None:
        kept = self._disturbed if run.foreign > DISTURBED else self._good
        kept.setdefault((load.title, who), []).append(run)

    def of(self, load: Load, who: Entry) -> list[Run]:
        """The undisturbed runs, or the disturbed ones if there are no others; see `notes`."""
        return self._good.get((load.title, who)) or self._disturbed[load.title, who]

    def notes(self) -> list[str]:
        return [
            f"{title}, {who}: {len(runs)} disturbed by other programs (over {DISTURBED:.0%} of the machine), "
            + ("excluded" if (title, who) in self._good else "**included, because there are no other runs**")
            for (title, who), runs in self._disturbed.items()
        ]


def contest(loads: list[Load], entries: list[Entry], rounds: int) -> Scores:
    """Run all loads with all contestants, in turns."""
    scores = Scores()
    for number in range(rounds):
        for load in loads:
            for who in in_turns(entries, number):
                one = run(who, load)
                scores.add(load, who, one)
                log(
                    f"round {number + 1} of {rounds}, {load.title}, {who}: {one.jobs_s:.1f} jobs/s, "
                    f"{one.cpu_ms:.2f} ms/job, API server {one.apiserver_ms:.2f} ms/job, Succeeded after "
                    f"{percentile(0.5, one.to_done):.0f} ms (p99 {percentile(0.99, one.to_done):.0f}), "
                    f"other programs {one.foreign:.0%}"
                )
    return scores


def report(loads: list[Load], names: list[str], tables: list[Crds], scores: Scores, rounds: int) -> None:
    print(f"\nJobs run on {NODE_COUNT} nodes; medians of {rounds} rounds; all objects read back without problems")
    for crds in tables:
        print(f"\n{CRDS[crds]}:\n")
        heading(names)
        for load in loads:
            lines(names, rows(load, crds), {name: scores.of(load, entry(name, crds)) for name in names})
    for note in scores.notes():
        print(f"\n{note}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2000, help="jobs in the burst; 0 skips it")
    parser.add_argument("--rate", type=float, default=20.0, help=f"jobs/s, for {RATE_FOR} s; 0 skips it")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--causes", action="store_true", help="ours, Go and its variants (default for --crds: ours)")
    parser.add_argument("--crds", choices=(*CRDS, "both"), help="CRDs that Go and kopf use (default: both)")
    everyone = tuple(dict.fromkeys(CONTESTANTS + VARIANTS))
    add_choice(parser, everyone)
    arguments = parser.parse_args()
    loads = [Load(f"burst of {arguments.jobs:,}", arguments.jobs)] if arguments.jobs else []
    if arguments.rate:
        loads.append(Load(f"{arguments.rate:g} a second", int(arguments.rate * RATE_FOR), arguments.rate))
    default = VARIANTS if arguments.causes else CONTESTANTS
    names = chosen(arguments.only, arguments.against, everyone if arguments.only else default)
    crds = arguments.crds or ("ours" if arguments.causes else "both")
    tables: list[Crds] = [one for one in CRDS if crds in (one, "both")]
    if not any(entry(name, "own").light for name in names):
        tables = ["ours"]
    entries = list(dict.fromkeys(entry(name, one) for one in tables for name in names))
    report(loads, names, tables, contest(loads, entries, arguments.rounds), arguments.rounds)


if __name__ == "__main__":
    main()
