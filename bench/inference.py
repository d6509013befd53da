"""Benchmark of operators running inference services: ours and one in Go, in turns.

Run by `make bench-inference`. Each run has a fresh etcd and API server without a controller manager, so no Pods appear
and the status of Deployments stays empty. Each service has a canary of 25 %: two Deployments, three Services and one
PodDisruptionBudget; with --autoscaled also a HorizontalPodAutoscaler.

- create: all services at once, by 32 creators. Seconds are from the first creation sent to the last child, or status
  with the current generation, seen in the driver's watch.
- resync: the driver sets a label of each service. Nothing has to change, so nothing should be written.
- restart: the operator is stopped and started again beside the existing services. Nothing should be written.
- CPU: user and kernel time of the operator, in each phase and until it is idle; for a restart, since its start.
- writes and reads: requests counted by the API server, less those of the driver (api_requests.py). Writes of status are
  all writes of the service itself. Reads of Services are not counted, because the API server has its own. It also
  writes an event now and then, when its repair of cluster IPs sees a Service before its address.
- reconciliations: from the metrics of the operator.
- other programs: CPU used by neither the operator nor the control plane nor the driver while services are created. Runs
  in which that exceeds 10 % of the machine are excluded from the medians.

Finally all objects are read back: the run fails if a service lacks a child, or if a child has other replicas, another
image, model or selector than it should. All contestants run all their kinds; there are no jobs and no nodes.
"""

import argparse
import asyncio
import time

import msgspec
import uvloop
from bench.api_requests import READS, WRITES, RequestCounts, request_counts, total
from bench.contest import (
    SERVER_IDLE_SHARE,
    Operator,
    control_plane,
    controller,
    running,
    servers_of,
    wait_until_idle,
)
from bench.contestants import OURS, add_choice, chosen, in_turns, log
from bench.go_variants import GO
from bench.inference_driver import AUTOSCALERS, BUDGETS, DEPLOYMENTS, SERVICES, InferenceDriver, problems
from bench.load import DISTURBED, WITHIN, percentile
from bench.tables import Goal, Row, heading, lines
from bench.usage import Window, cpu_seconds, memory_mib

from vmafx.devcluster import DevCluster, crds
from vmafx.kube import INFERENCE_SERVICES, Client, Config, load_config

CONTESTANTS = (OURS, GO)
VARIABLES = {"VMAFX_SERVING_IMAGE": "vmafx-serving:bench", "INFERENCE": "1"}  # the second is for Go's
STATUS, EVENTS = INFERENCE_SERVICES.plural, "events"
CHILDREN = tuple(resource.plural for resource in (DEPLOYMENTS, SERVICES, AUTOSCALERS, BUDGETS))
READ = (STATUS, DEPLOYMENTS.plural, AUTOSCALERS.plural, BUDGETS.plural, "pods")


class Load(msgspec.Struct, frozen=True):
    """The services of one benchmark."""

    services: int
    autoscaled: bool


class Phase(msgspec.Struct, frozen=True):
    """What one phase took: CPU seconds in all, requests and reconciliations per service."""

    cpu_s: float
    children: float
    status: float
    events: float
    reads: float
    reconciliations: float

    @property
    def writes(self) -> float:
        return self.children + self.status


class Create(msgspec.Struct, frozen=True):
    applied_s: float
    status_s: float
    to_applied: list[float]  # ms, sorted
    servers_s: float
    peak_mib: float
    foreign: float
    cost: Phase


class Restart(msgspec.Struct, frozen=True):
    ready_s: float
    idle_s: float
    memory_mib: float
    peak_mib: float
    cost: Phase


class Run(msgspec.Struct, frozen=True):
    """The figures of one run."""

    services: int
    empty_mib: float
    create: Create
    resync: Phase
    idle_mib: float
    restart: Restart


class Meter:
    """Requests and reconciliations from one moment to another."""

    def __init__(self, config: Config, driver: InferenceDriver) -> None:
        self._config, self._driver = config, driver
        self._before: RequestCounts = RequestCounts()
        self._reconciled = 0

    async def start(self, operator: Operator | None) -> None:
        """Count from now on; without an operator, all reconciliations of the one that is started next."""
        self._before = await self._requests()
        self._reconciled = await operator.reconciliations() if operator else 0

    async def read(self, operator: Operator, cpu_s: float) -> Phase:
        requests, services = await self._requests(), len(self._driver.times)
        requests.subtract(self._before)
        return Phase(
            cpu_s=cpu_s,
            children=total(requests, WRITES, *CHILDREN) / services,
            status=total(requests, WRITES, STATUS) / services,
            events=total(requests, WRITES, EVENTS) / services,
            reads=total(requests, READS, *READ) / services,
            reconciliations=(await operator.reconciliations() - self._reconciled) / services,
        )

    async def _requests(self) -> RequestCounts:
        counts = await asyncio.to_thread(request_counts, self._config)
        counts.subtract(self._driver.sent())
        return counts


def run(name: str, load: Load) -> Run:
    with control_plane() as cluster, asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        return loop.run(_run(cluster, name, load))


async def _run(cluster: DevCluster, name: str, load: Load) -> Run:
    config, servers = load_config(cluster.kubeconfig), list(servers_of(cluster).values())
    async with Client(config) as client, controller() as address:
        await crds.install_crds(client)
        async with InferenceDriver(config, load.services, autoscaled=load.autoscaled) as driver:
            meter = Meter(config, driver)
            async with running(name, cluster, address, VARIABLES) as operator:
                await operator.ready()
                await _all_idle(operator, servers)
                empty = memory_mib(operator.pid, "VmRSS")
                create = await _create(operator, driver, meter, servers)
                await _all_idle(operator, servers)
                resync = await _resync(operator, driver, meter)
                idle = memory_mib(operator.pid, "VmRSS")
            for pid in servers:
                await wait_until_idle(pid, SERVER_IDLE_SHARE)
            await meter.start(None)
            async with running(name, cluster, address, VARIABLES) as operator:
                restart = await _restart(operator, meter)
        if wrong := await problems(client, list(driver.times), autoscaled=load.autoscaled):
            raise SystemExit(f"{name}: {len(wrong)} problems, such as: {'; '.join(wrong[:5])}")
        return Run(load.services, empty, create, resync, idle, restart)


async def _create(operator: Operator, driver: InferenceDriver, meter: Meter, servers: list[int]) -> Create:
    await meter.start(operator)
    window, started = Window(operator.pid, servers), time.perf_counter()
    await driver.create()
    await operator.wait_until(driver.all_done, WITHIN)
    foreign = window.foreign_share()
    await wait_until_idle(operator.pid)  # including what it writes after the last child
    cpu, served = window.operator_s(), window.servers_s()
    times = driver.times.values()
    return Create(
        applied_s=max(one.applied for one in times) - started,
        status_s=max(one.status for one in times) - started,
        to_applied=sorted((one.applied - one.created) * 1000 for one in times),
        servers_s=served,
        peak_mib=memory_mib(operator.pid, "VmHWM"),
        foreign=foreign,
        cost=await meter.read(operator, cpu),
    )


async def _resync(operator: Operator, driver: InferenceDriver, meter: Meter) -> Phase:
    await meter.start(operator)
    before = cpu_seconds(operator.pid)
    await driver.touch()
    await wait_until_idle(operator.pid)
    return await meter.read(operator, cpu_seconds(operator.pid) - before)


async def _restart(operator: Operator, meter: Meter) -> Restart:
    ready = await operator.ready()
    idle = await wait_until_idle(operator.pid) - operator.started
    cpu = cpu_seconds(operator.pid)
    memory, peak = memory_mib(operator.pid, "VmRSS"), memory_mib(operator.pid, "VmHWM")
    return Restart(ready, idle, memory, peak, await meter.read(operator, cpu))


async def _all_idle(operator: Operator, servers: list[int]) -> None:
    await wait_until_idle(operator.pid)
    for pid in servers:
        await wait_until_idle(pid, SERVER_IDLE_SHARE)


def _per_service(seconds: float, one: Run) -> float:
    return seconds * 1000 / one.services


IDLE_MIB = Goal(60, ratio=False)
NONE = Goal(0, ratio=False)
ROWS = (
    Row("create: seconds until all children exist", lambda one: one.create.applied_s),
    Row("create: seconds until all have a status", lambda one: one.create.status_s),
    Row("create: creation to last child, p50 ms", lambda one: percentile(0.5, one.create.to_applied)),
    Row("create: creation to last child, p99 ms", lambda one: percentile(0.99, one.create.to_applied)),
    Row("create: operator's CPU, ms/service", lambda one: _per_service(one.create.cost.cpu_s, one), Goal(0.75)),
    Row("create: API server's and etcd's CPU, ms/service", lambda one: _per_service(one.create.servers_s, one)),
    Row("create: writes of children/service", lambda one: one.create.cost.children, Goal(1)),
    Row("create: writes of status/service", lambda one: one.create.cost.status, Goal(1)),
    Row("create: writes of events/service", lambda one: one.create.cost.events),
    Row("create: reads/service", lambda one: one.create.cost.reads, NONE),
    Row("create: reconciliations/service", lambda one: one.create.cost.reconciliations),
    Row("create: peak MiB", lambda one: one.create.peak_mib),
    Row("resync: reconciliations/service", lambda one: one.resync.reconciliations),
    Row("resync: writes of children and status/service", lambda one: one.resync.writes, NONE),
    Row("resync: writes of events/service", lambda one: one.resync.events, NONE),
    Row("resync: operator's CPU, ms/service", lambda one: _per_service(one.resync.cpu_s, one), Goal(0.75)),
    Row("idle: resident MiB without services", lambda one: one.empty_mib, IDLE_MIB),
    Row("idle: resident MiB with all services", lambda one: one.idle_mib, IDLE_MIB),
    Row("restart: seconds until ready", lambda one: one.restart.ready_s),
    Row("restart: seconds until idle", lambda one: one.restart.idle_s),
    Row("restart: reconciliations/service", lambda one: one.restart.cost.reconciliations),
    Row("restart: writes of children and status/service", lambda one: one.restart.cost.writes, NONE),
    Row("restart: writes of events/service", lambda one: one.restart.cost.events, NONE),
    Row("restart: operator's CPU-s", lambda one: one.restart.cost.cpu_s),
    Row("restart: resident MiB then", lambda one: one.restart.memory_mib, IDLE_MIB),
    Row("restart: peak MiB", lambda one: one.restart.peak_mib),
    Row("other programs, % of the machine", lambda one: one.create.foreign * 100),
)


def contest(load: Load, names: list[str], rounds: int) -> dict[str, list[Run]]:
    """Run all contestants, in turns."""
    results: dict[str, list[Run]] = {name: [] for name in names}
    for number in range(rounds):
        for name in in_turns(names, number):
            one = run(name, load)
            results[name].append(one)
            create, resync = (_per_service(phase.cpu_s, one) for phase in (one.create.cost, one.resync))
            log(
                f"round {number + 1} of {rounds}, {name}: {one.create.applied_s:.1f} s, {create:.2f} ms/service, "
                f"{one.create.cost.writes:.2f} writes/service; resync {resync:.2f} ms/service, "
                f"{one.resync.writes:.2f} writes/service; restart {one.restart.idle_s:.1f} s; "
                f"idle {one.idle_mib:.1f} MiB; other programs {one.create.foreign:.0%}"
            )
    return results


def report(load: Load, names: list[str], results: dict[str, list[Run]], rounds: int) -> None:
    kind = "autoscaled inference services" if load.autoscaled else "inference services"
    print(f"\n{load.services:,} {kind}; medians of {rounds} rounds; all objects read back without problems\n")
    heading(names)
    good = {name: [one for one in runs if one.create.foreign <= DISTURBED] for name, runs in results.items()}
    lines(names, ROWS, {name: good[name] or results[name] for name in names})
    for name in names:
        if disturbed := len(results[name]) - len(good[name]):
            used = "excluded" if good[name] else "**included, because there are no other runs**"
            print(f"\n{name}: {disturbed} disturbed by other programs (over {DISTURBED:.0%} of the machine), {used}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--services", type=int, default=1000)
    parser.add_argument("--autoscaled", action="store_true", help="services with a HorizontalPodAutoscaler")
    parser.add_argument("--rounds", type=int, default=3)
    add_choice(parser, CONTESTANTS)
    arguments = parser.parse_args()
    load = Load(arguments.services, arguments.autoscaled)
    names = chosen(arguments.only, arguments.against, CONTESTANTS)
    report(load, names, contest(load, names, arguments.rounds), arguments.rounds)


if __name__ == "__main__":
    main()
