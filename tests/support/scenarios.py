"""Faults of agents that last a minute or more, each as a scenario in its own namespace.

The scenarios run in parallel on one cluster.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tests.support import job_history
from tests.support.chaos import score_of
from tests.support.faults import kill, start
from tests.support.inprocess_controller import running_controller
from tests.support.machines import Machine
from tests.support.operator_process import Controller
from tests.support.process_fleet import LONG_TIMEOUT, ProcessFleet, halt_worker, pause, process_fleet, send
from tests.support.replica_proxy import ReplicaProxy
from tests.support.video import long_clip
from tests.support.waiting import eventually
from vmafx.api.job import VmafxJob
from vmafx.clock import utc_now
from vmafx.devcluster import ClusterOptions, DevCluster, crds
from vmafx.devcluster.components import APISERVER, CONTROLLER_MANAGER, SCHEDULER
from vmafx.kube import Client, ObjectKey, load_config

CLUSTER_OPTIONS = ClusterOptions(without=frozenset({SCHEDULER, CONTROLLER_MANAGER}), tethered=True)
CLIP = "middle.mkv", "middle.mkv"


class ScenarioCluster(NamedTuple):
    """A control plane that keeps its whole history, and a clip."""

    cluster: DevCluster
    client: Client
    folder: Path
    score: float  # of the clip against itself, by `vmafx score`

    async def submit(self, fleet: ProcessFleet, name: str, **spec: Any) -> ObjectKey:
        return await fleet.submit(name, *(self.folder / one for one in CLIP), **spec)

    def assert_scored(self, job: VmafxJob, node: str, attempts: int, failures: int) -> None:
        status = job.status
        assert (status.phase, status.score) == ("Succeeded", self.score), status
        assert (status.assignedNode, status.attempts, status.failures) == (node, attempts, failures)


@asynccontextmanager
async def scenario_cluster(folder: Path) -> AsyncIterator[ScenarioCluster]:
    long_clip(folder / CLIP[0], frames=60)
    with DevCluster(folder / "cluster", CLUSTER_OPTIONS) as cluster:
        start(cluster, APISERVER, [*kill(cluster, APISERVER), *job_history.KEEP_ALL])
        async with Client(load_config(cluster.kubeconfig)) as client:
            await crds.install_crds(client)
            yield ScenarioCluster(cluster, client, folder, await asyncio.to_thread(score_of, folder, CLIP))


async def lost(shared: ScenarioCluster) -> None:
    """An agent is killed while it runs a job, and does not come back."""
    async with process_fleet(shared.cluster, shared.client, "lost", shared.folder) as fleet:
        doomed = await fleet.machine("doomed")
        key = await shared.submit(fleet, "job")
        await halt_worker(doomed)
        await fleet.machine("spare")
        doomed.go()
        job = await fleet.finished(key)
        shared.assert_scored(job, "spare", attempts=2, failures=1)
        assert job.status.excludedNodes == ("doomed",)
        assert await fleet.ready("doomed") == "AgentLost"
        retried, left = await event(fleet, "job", "Retrying"), await event(fleet, "doomed", "AgentLost")
        assert retried.startswith("its node doomed has sent no heartbeat since ")
        assert "its jobs move to other nodes" in left
        await fleet.check_invariants()


async def event(fleet: ProcessFleet, name: str, reason: str) -> str:
    """The note of an event; events are written asynchronously."""

    async def exists() -> bool:
        return reason in await fleet.events(name)

    await eventually(exists, f"{name} has an event {reason}")
    return (await fleet.events(name))[reason]


async def cut_off(shared: ScenarioCluster) -> None:
    """One agent is stopped, another loses its network; both come back after their jobs were moved."""
    async with (
        process_fleet(shared.cluster, shared.client, "cut-off", shared.folder) as fleet,
        ReplicaProxy(fleet.replicas[0].grpc) as network,
    ):
        sleeper = await fleet.machine("sleeper", "--label", "who=sleeper")
        astray = await fleet.machine("astray", "--label", "who=astray", controller=network.address)
        keys = {one.name: await shared.submit(fleet, one.name) for one in (sleeper, astray)}
        workers = await asyncio.gather(halt_worker(sleeper), halt_worker(astray))
        had = {(await fleet.job(key)).status.assignedNode for key in keys.values()}
        assert had == {"sleeper", "astray"}
        spare = await fleet.machine("spare")
        sleeper.signal(signal.SIGSTOP)
        network.passing.clear()
        for worker in workers:
            send(worker, signal.SIGCONT)  # they finish, but their scores no longer count
        for key in keys.values():
            shared.assert_scored(await fleet.finished(key), "spare", attempts=2, failures=1)
        sleeper.signal(signal.SIGCONT)
        network.passing.set()
        for one in (sleeper, astray):
            await eventually(
                partial(result_rejected, one), f"the result of {one.name} is rejected", within=LONG_TIMEOUT
            )
            await fleet.becomes(one.name, "Healthy")
            assert not one.spooled()
            assert one.exits() == []
        spare.go()
        key = await shared.submit(fleet, "later")
        assert (await fleet.finished(key)).status.assignedNode in {"sleeper", "astray"}
        await fleet.check_invariants()


def result_rejected(one: Machine) -> bool:
    """Either when it reported its result, or before that by a heartbeat."""
    too_late = one.has_logged("result rejected: the attempt has ended") or one.has_logged(
        "job stopped: the attempt has ended"
    )
    return (too_late or one.has_logged("scored")) and not one.spooled()


async def controllers_down(shared: ScenarioCluster) -> None:
    """The controllers are down for 90 seconds: no job is moved, whatever its agent did in the meantime."""
    async with process_fleet(shared.cluster, shared.client, "controllers-down", shared.folder, replicas=2) as fleet:
        first = await fleet.machine("first")
        done = await shared.submit(fleet, "done")
        worker = await halt_worker(first)
        second = await fleet.machine("second")
        going_on = await shared.submit(fleet, "going-on")
        other = await halt_worker(second)
        await fleet.machine("spare")
        for one in fleet.replicas:
            one.kill()
        send(worker, signal.SIGCONT)
        await first.wait_for_log("cannot report a result")
        await fleet.becomes("spare", "HeartbeatStale")
        await pause(30)
        for one in fleet.replicas:
            one.start()
        later = await shared.submit(fleet, "later")
        shared.assert_scored(await fleet.finished(done), "first", attempts=1, failures=0)
        send(other, signal.SIGCONT)
        shared.assert_scored(await fleet.finished(going_on), "second", attempts=1, failures=0)
        assert (await fleet.finished(later)).status.attempts == 1
        assert [one.exits() for one in fleet.machines] == [[], [], []]
        await fleet.check_invariants()


def clock_skew(seconds: int) -> Callable[[ScenarioCluster], Coroutine[Any, Any, None]]:
    """The controller's clock is off by this much, and the operator restarts with empty caches."""

    async def scenario(shared: ScenarioCluster) -> None:
        name = "clock-ahead" if seconds > 0 else "clock-behind"
        async with process_fleet(shared.cluster, shared.client, name, shared.folder, replicas=0) as fleet:
            health = Controller()
            await health.start()
            skew = timedelta(seconds=seconds)
            async with running_controller(shared.client, name, now=lambda: utc_now() + skew) as port:
                first = fleet.start_operator(health.address)
                machine = await fleet.machine("machine", controller=f"127.0.0.1:{port}")
                key = await shared.submit(fleet, "job")
                worker = await halt_worker(machine)
                await first.aclose()
                fleet.start_operator(health.address)
                await fleet.machine("spare", controller=f"127.0.0.1:{port}")
                await pause(80)  # longer than an agent may be silent
                for one in ("machine", "spare"):
                    await fleet.becomes(one, "Healthy")
                send(worker, signal.SIGCONT)
                shared.assert_scored(await fleet.finished(key), "machine", attempts=1, failures=0)
                await fleet.check_invariants()
            await health.runner.cleanup()

    return scenario


Scenario = Callable[[ScenarioCluster], Awaitable[None]]
SCENARIOS: dict[str, Scenario] = {"lost": lost, "cut off": cut_off}
# Nothing may happen while these faults last, so they take long: for `make soak`.
LONG_SCENARIOS: dict[str, Scenario] = {
    "controllers down": controllers_down,
    "clock ahead": clock_skew(90),
    "clock behind": clock_skew(-90),
}


async def run_all(shared: ScenarioCluster, log: Callable[[str], None]) -> None:
    """Run all scenarios in parallel."""

    async def run(name: str, scenario: Scenario) -> None:
        await scenario(shared)
        log(f"scenario {name!r} passed")

    async with asyncio.TaskGroup() as group:
        for name, scenario in (SCENARIOS | LONG_SCENARIOS).items():
            group.create_task(run(name, scenario))
