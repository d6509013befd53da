"""What befalls agents and their controllers, one thing at a time; judged by etcd's whole log.

What takes a minute or two by itself runs beside all else: `begun` starts it, and the last tests wait for it.
`make soak` has more of that kind.
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
    """The long stories that are to be told in this run."""
    asked = [getattr(one, "callspec", None) for one in request.session.items]
    wanted = [one.params["story"] for one in asked if one is not None and "story" in one.params]
    tasks = {name: asyncio.ensure_future(STORIES[name](world)) for name in wanted}
    yield tasks
    for task in tasks.values():
        task.cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)


async def test_one_agent_and_two_controllers_that_take_turns(world: World) -> None:
    """Each connection is another replica's, and none lasts: both tell the same, and write what one would."""
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
        told = await stage.judge()
        assert len(sessions(told)) == 1


def sessions(told: list[history.Moment]) -> set[str]:
    """Of all that ever registered."""
    nodes = [one.new or {} for one in told if one.kind == "node"]
    return {one["status"]["agentSession"] for one in nodes if "agentSession" in one.get("status", {})}


@pytest.mark.parametrize("busy", [True, False], ids=["busy", "idle"])
async def test_of_two_agents_with_one_name_the_older_ends(world: World, busy: bool) -> None:
    async with scene(world.cluster, world.client, f"namesakes-{busy}".lower(), world.folder) as stage:
        older = await stage.machine("machine")
        key = await world.submit(stage, "job") if busy else None
        worker = await halted(older) if busy else None
        older.stay_away()
        newer = await stage.machine("machine", folder="newer")
        if worker is not None:  # it finds a score, and is the first to tell
            send(worker, signal.SIGCONT)
        key = key or await world.submit(stage, "job")
        await eventually(older.exits, "the older ends")
        assert older.exits() == [2]
        await older.says("the agent ends")  # its last word may be heard after its end
        why = older.life.said[-1]["why"]
        assert "another agent has registered as" in why
        assert "--name" in why
        world.assert_scored(await stage.finished(key), "machine", attempts=1, failures=0)
        assert newer.exits() == []
        told = await stage.judge()
        assert len(sessions(told)) == 2


@pytest.mark.parametrize("story", STORIES)
async def test_in_its_own_time(story: str, begun: dict[str, "asyncio.Task[None]"]) -> None:
    await begun[story]
