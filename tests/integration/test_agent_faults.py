"""What befalls agents and their controllers, one thing at a time and all at once; judged by etcd's whole log.

What takes a minute or two by itself runs beside all else: `begun` starts it, and the last tests wait for it.
"""

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support import history
from tests.support.chaos import Chaos, by_hand
from tests.support.chaos_agents import AgentFleet
from tests.support.chaos_plan import Fault, make_plan
from tests.support.controllers import calling, controlling
from tests.support.faults import kill, start
from tests.support.machines import Machine
from tests.support.operators import Controller
from tests.support.scenes import AGES, Scene, halted, pause, scene, send
from tests.support.service import Service
from tests.support.video import lossless
from tests.support.video import scene as pictures
from tests.support.waiting import eventually
from vmafx.api.job import VmafxJob
from vmafx.devcluster import DevCluster, Options, crds
from vmafx.devcluster.components import APISERVER, MANAGER, SCHEDULER
from vmafx.kube import Client, Key, load_config
from vmafx.times import utc_now
from vmafx.wire import controller_pb2 as wire

FAULTS: dict[Fault, int] = {
    "kill operator": 2, "kill controller": 2, "kill agent": 2, "kill worker": 2, "kill apiserver": 1, "kill etcd": 1,
    "delete agent": 1, "cut connections": 1,
}  # fmt: skip
ALONE = Options(without=frozenset({SCHEDULER, MANAGER}), tethered=True)
CLIP = "middle.mkv", "middle.mkv"
pytestmark = pytest.mark.usefixtures("begun")


class World(NamedTuple):
    """A cluster that forgets nothing, and clips."""

    cluster: DevCluster
    client: Client
    folder: Path
    score: float  # of the clip with itself, by hand

    async def submit(self, scene: Scene, name: str, **spec: Any) -> Key:
        return await scene.submit(name, *(self.folder / one for one in CLIP), **spec)

    def assert_scored(self, job: VmafxJob, node: str, attempts: int, failures: int) -> None:
        status = job.status
        assert (status.phase, status.score) == ("Succeeded", self.score), status
        assert (status.assignedNode, status.attempts, status.failures) == (node, attempts, failures)


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    folder = tmp_path_factory.mktemp("world")
    lossless(pictures(frames=60, size=(640, 360)), folder / CLIP[0])
    with DevCluster(folder / "cluster", ALONE) as cluster:
        start(cluster, APISERVER, [*kill(cluster, APISERVER), *history.KEEP_ALL])
        async with Client(load_config(cluster.kubeconfig)) as client:
            await crds.install(client)
            yield World(cluster, client, folder, await asyncio.to_thread(by_hand, folder, CLIP))


async def lost(world: World) -> None:
    """An agent that is killed for good while it works."""
    async with scene(world.cluster, world.client, "lost", world.folder) as stage:
        doomed = await stage.machine("doomed")
        key = await world.submit(stage, "job")
        await halted(doomed)
        await stage.machine("spare")
        doomed.go()
        job = await stage.finished(key)
        world.assert_scored(job, "spare", attempts=2, failures=1)
        assert job.status.excludedNodes == ("doomed",)
        assert await stage.ready("doomed") == "AgentLost"
        retried, left = await event(stage, "job", "Retrying"), await event(stage, "doomed", "AgentLost")
        assert retried.startswith("its node doomed has not been heard of since ")
        assert "its jobs go elsewhere" in left
        await stage.judge()


async def event(stage: Scene, name: str, reason: str) -> str:
    """What it says; it is written beside what it tells of, and maybe later."""

    async def there() -> bool:
        return reason in await stage.events(name)

    await eventually(there, f"{reason} is told of {name}")
    return (await stage.events(name))[reason]


async def cut_off(world: World) -> None:
    """An agent that is stopped, and one whose network passes nothing on; both come back when their jobs are gone."""
    async with (
        scene(world.cluster, world.client, "cut-off", world.folder) as stage,
        Service(stage.replicas[0].grpc) as network,
    ):
        sleeper = await stage.machine("sleeper", "--label", "who=sleeper")
        astray = await stage.machine("astray", "--label", "who=astray", door=network.address)
        keys = {one.name: await world.submit(stage, one.name) for one in (sleeper, astray)}
        workers = await asyncio.gather(halted(sleeper), halted(astray))
        had = {(await stage.job(key)).status.assignedNode for key in keys.values()}
        assert had == {"sleeper", "astray"}
        spare = await stage.machine("spare")
        sleeper.signal(signal.SIGSTOP)
        network.passing.clear()
        for worker in workers:
            send(worker, signal.SIGCONT)  # they go on and find their scores, which count for nothing
        for key in keys.values():
            world.assert_scored(await stage.finished(key), "spare", attempts=2, failures=1)
        sleeper.signal(signal.SIGCONT)
        network.passing.set()
        for one in (sleeper, astray):
            await eventually(partial(refused, one), f"{one.name} is refused", within=AGES)
            await stage.becomes(one.name, "Healthy")
            assert not one.spooled()
            assert one.exits() == []
        spare.go()
        key = await world.submit(stage, "later")
        assert (await stage.finished(key)).status.assignedNode in {"sleeper", "astray"}
        await stage.judge()


def refused(one: Machine) -> bool:
    """It was told in one of two ways: when it reported its result, or before, by a heartbeat."""
    too_late = one.has_said("the result does not count") or one.has_said("stopped: the attempt is over")
    return (too_late or one.has_said("scored")) and not one.spooled()


async def nobody_there(world: World) -> None:
    """The controllers are away for a minute and a half: no job moves, whatever its agent did meanwhile."""
    async with scene(world.cluster, world.client, "nobody-there", world.folder, replicas=2) as stage:
        first = await stage.machine("first")
        done = await world.submit(stage, "done")
        worker = await halted(first)
        second = await stage.machine("second")
        going_on = await world.submit(stage, "going-on")
        other = await halted(second)
        await stage.machine("spare")
        for one in stage.replicas:
            one.kill()
        send(worker, signal.SIGCONT)
        await first.says("a result cannot be reported")
        await stage.becomes("spare", "HeartbeatStale")
        await pause(30)
        for one in stage.replicas:
            one.start()
        later = await world.submit(stage, "later")
        world.assert_scored(await stage.finished(done), "first", attempts=1, failures=0)
        send(other, signal.SIGCONT)
        world.assert_scored(await stage.finished(going_on), "second", attempts=1, failures=0)
        assert (await stage.finished(later)).status.attempts == 1
        assert [one.exits() for one in stage.machines] == [[], [], []]
        await stage.judge()


def clocks_apart(seconds: int) -> Callable[[World], Coroutine[Any, Any, None]]:
    """The controller's clock goes wrong by so much; and the operator begins anew, knowing nothing."""

    async def story(world: World) -> None:
        name = "clock-ahead" if seconds > 0 else "clock-behind"
        async with scene(world.cluster, world.client, name, world.folder, replicas=0) as stage:
            health = Controller()
            await health.start()
            apart = timedelta(seconds=seconds)
            async with controlling(world.client, name, now=lambda: utc_now() + apart) as port:
                first = stage.operate(health.address)
                machine = await stage.machine("machine", door=f"127.0.0.1:{port}")
                key = await world.submit(stage, "job")
                worker = await halted(machine)
                await first.aclose()
                stage.operate(health.address)
                await stage.machine("spare", door=f"127.0.0.1:{port}")
                await pause(80)  # longer than silence may last
                for one in ("machine", "spare"):
                    await stage.becomes(one, "Healthy")
                send(worker, signal.SIGCONT)
                world.assert_scored(await stage.finished(key), "machine", attempts=1, failures=0)
                await stage.judge()
            await health.runner.cleanup()

    return story


STORIES: dict[str, Callable[[World], Awaitable[None]]] = {
    "lost": lost,
    "cut off": cut_off,
    "nobody there": nobody_there,
    "clock ahead": clocks_apart(90),
    "clock behind": clocks_apart(-90),
}


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


async def test_whatever_is_killed_every_job_ends_once_and_well(tmp_path: Path) -> None:
    """`make soak ARGS="--runtime agent"` does it longer."""
    seed, jobs = 1, 24
    with DevCluster(tmp_path / "cluster", ALONE) as cluster:
        plan = make_plan(seed, jobs, Counter(FAULTS))
        chaos = Chaos(cluster, tmp_path, plan, AgentFleet(seed), replicas=1, say=print, at_once=8)
        await chaos.run(within=540)
        assert chaos.done.total() == jobs
        assert chaos.moments > 3 * jobs


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
