"""Faults of agents and controllers, one at a time, judged by the whole history in etcd.

Stories that take minutes run concurrently: the fixture `begun` starts them, and the last tests wait for them.
`make soak` has more of them.
"""

import asyncio
import signal
from collections.abc import AsyncIterator

import pytest

from tests.support import job_history
from tests.support.inprocess_controller import controller_stub
from tests.support.process_fleet import halt_worker, process_fleet, send
from tests.support.scenarios import SCENARIOS, ScenarioCluster, scenario_cluster
from tests.support.waiting import eventually
from vmafx.wire import controller_pb2 as wire

pytestmark = [pytest.mark.usefixtures("begun"), pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ScenarioCluster]:
    async with scenario_cluster(tmp_path_factory.mktemp("shared")) as shared:
        yield shared


@pytest.fixture(scope="module")
async def begun(
    shared: ScenarioCluster, request: pytest.FixtureRequest
) -> AsyncIterator[dict[str, "asyncio.Task[None]"]]:
    """The long stories that this run selects, as tasks."""
    calls = [getattr(item, "callspec", None) for item in request.session.items]
    selected = [call.params["story"] for call in calls if call is not None and "story" in call.params]
    tasks = {name: asyncio.ensure_future(SCENARIOS[name](shared)) for name in selected}
    yield tasks
    for task in tasks.values():
        task.cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)


async def test_an_agent_may_alternate_between_two_controllers(shared: ScenarioCluster) -> None:
    """Each connection reaches the other replica, and each job cuts it: both replicas answer the same."""
    async with process_fleet(shared.cluster, shared.client, "turns", shared.folder, replicas=2) as fleet:
        machine = await fleet.machine("machine", "--capacity", "2")
        keys = [await shared.submit(fleet, f"job-{one}") for one in range(4)]
        for key in keys:
            fleet.proxy.cut()
            await fleet.finished(key)
        assert {one.grpc for one in fleet.replicas} == set(fleet.proxy.went)
        async with controller_stub(fleet.replicas[0].grpc) as first, controller_stub(fleet.replicas[1].grpc) as second:
            for key in keys:
                job = await fleet.job(key)
                shared.assert_scored(job, "machine", attempts=1, failures=0)
                asked = wire.GetJobRequest(job_id=job.metadata.uid)
                assert await first.GetJob(asked) == await second.GetJob(asked)
        assert machine.exits() == []
        moments = await fleet.check_invariants()
        assert len(sessions(moments)) == 1


def sessions(moments: list[job_history.Change]) -> set[str]:
    """The sessions of all registrations in the job_history."""
    nodes = [one.new or {} for one in moments if one.kind == "node"]
    return {one["status"]["agentSession"] for one in nodes if "agentSession" in one.get("status", {})}


@pytest.mark.parametrize("busy", [True, False], ids=["busy", "idle"])
async def test_of_two_agents_with_one_name_the_older_exits(shared: ScenarioCluster, busy: bool) -> None:
    async with process_fleet(shared.cluster, shared.client, f"namesakes-{busy}".lower(), shared.folder) as fleet:
        older = await fleet.machine("machine")
        key = await shared.submit(fleet, "job") if busy else None
        worker = await halt_worker(older) if busy else None
        older.stay_away()
        newer = await fleet.machine("machine", folder="newer")
        if worker is not None:  # so that the older agent reports a score first
            send(worker, signal.SIGCONT)
        key = key or await shared.submit(fleet, "job")
        await eventually(older.exits, "the older agent exits")
        assert older.exits() == [2]
        await older.wait_for_log("agent exits")  # its last line may be read after its exit
        why = older.life.log[-1]["error"]
        assert "another agent has registered as" in why
        assert "--name" in why
        shared.assert_scored(await fleet.finished(key), "machine", attempts=1, failures=0)
        assert newer.exits() == []
        moments = await fleet.check_invariants()
        assert len(sessions(moments)) == 2


@pytest.mark.parametrize("story", SCENARIOS)
async def test_a_long_story_ends_well(story: str, begun: dict[str, "asyncio.Task[None]"]) -> None:
    await begun[story]
