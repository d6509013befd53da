"""Faults of agents and controllers, one at a time, judged by the whole history in etcd.

Stories that take minutes run concurrently: the fixture `begun` starts them, and the last tests wait for them.
`make soak` has more of them.
"""

import asyncio
import signal
from collections.abc import AsyncIterator

import pytest

from tests.support import history
from tests.support.controllers import calling
from tests.support.scenes import halted, scene, send
from tests.support.stories import STORIES, World, new_world
from tests.support.waiting import eventually
from vmafx.wire import controller_pb2 as wire

pytestmark = [pytest.mark.usefixtures("begun"), pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with new_world(tmp_path_factory.mktemp("world")) as world:
        yield world


@pytest.fixture(scope="module")
async def begun(world: World, request: pytest.FixtureRequest) -> AsyncIterator[dict[str, "asyncio.Task[None]"]]:
    """The long stories that this run selects, as tasks."""
    calls = [getattr(item, "callspec", None) for item in request.session.items]
    selected = [call.params["story"] for call in calls if call is not None and "story" in call.params]
    tasks = {name: asyncio.ensure_future(STORIES[name](world)) for name in selected}
    yield tasks
    for task in tasks.values():
        task.cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)


async def test_an_agent_may_alternate_between_two_controllers(world: World) -> None:
    """Each connection reaches the other replica, and each job cuts it: both replicas answer the same."""
    async with scene(world.cluster, world.client, "turns", world.folder, replicas=2) as stage:
        machine = await stage.machine("machine", "--capacity", "2")
        keys = [await world.submit(stage, f"job-{one}") for one in range(4)]
        for key in keys:
            stage.door.cut()
            await stage.finished(key)
        assert {one.grpc for one in stage.replicas} == set(stage.door.went)
        async with calling(stage.replicas[0].grpc) as first, calling(stage.replicas[1].grpc) as second:
            for key in keys:
                job = await stage.job(key)
                world.assert_scored(job, "machine", attempts=1, failures=0)
                asked = wire.GetJobRequest(job_id=job.metadata.uid)
                assert await first.GetJob(asked) == await second.GetJob(asked)
        assert machine.exits() == []
        moments = await stage.judge()
        assert len(sessions(moments)) == 1


def sessions(moments: list[history.Moment]) -> set[str]:
    """The sessions of all registrations in the history."""
    nodes = [one.new or {} for one in moments if one.kind == "node"]
    return {one["status"]["agentSession"] for one in nodes if "agentSession" in one.get("status", {})}


@pytest.mark.parametrize("busy", [True, False], ids=["busy", "idle"])
async def test_of_two_agents_with_one_name_the_older_exits(world: World, busy: bool) -> None:
    async with scene(world.cluster, world.client, f"namesakes-{busy}".lower(), world.folder) as stage:
        older = await stage.machine("machine")
        key = await world.submit(stage, "job") if busy else None
        worker = await halted(older) if busy else None
        older.stay_away()
        newer = await stage.machine("machine", folder="newer")
        if worker is not None:  # so that the older agent reports a score first
            send(worker, signal.SIGCONT)
        key = key or await world.submit(stage, "job")
        await eventually(older.exits, "the older agent exits")
        assert older.exits() == [2]
        await older.says("agent exits")  # its last line may be read after its exit
        why = older.life.said[-1]["why"]
        assert "another agent has registered as" in why
        assert "--name" in why
        world.assert_scored(await stage.finished(key), "machine", attempts=1, failures=0)
        assert newer.exits() == []
        moments = await stage.judge()
        assert len(sessions(moments)) == 2


@pytest.mark.parametrize("story", STORIES)
async def test_a_long_story_ends_well(story: str, begun: dict[str, "asyncio.Task[None]"]) -> None:
    await begun[story]
