"""What befalls agents and takes a minute or more by itself: each a story in a namespace of its own, told to its end.

Stories are told beside one another, in a world that they share.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tests.support import history
from tests.support.chaos import by_hand
from tests.support.controllers import controlling
from tests.support.faults import kill, start
from tests.support.machines import Machine
from tests.support.operators import Controller
from tests.support.scenes import AGES, Scene, halted, pause, scene, send
from tests.support.service import Service
from tests.support.video import long_clip
from tests.support.waiting import eventually
from vmafx.api.job import VmafxJob
from vmafx.clock import utc_now
from vmafx.devcluster import ClusterOptions, DevCluster, crds
from vmafx.devcluster.components import APISERVER, CONTROLLER_MANAGER, SCHEDULER
from vmafx.kube import Client, ObjectKey, load_config

ALONE = ClusterOptions(without=frozenset({SCHEDULER, CONTROLLER_MANAGER}), tethered=True)
CLIP = "middle.mkv", "middle.mkv"


class World(NamedTuple):
    """A cluster that forgets nothing, and clips."""

    cluster: DevCluster
    client: Client
    folder: Path
    score: float  # of the clip with itself, by hand

    async def submit(self, scene: Scene, name: str, **spec: Any) -> ObjectKey:
        return await scene.submit(name, *(self.folder / one for one in CLIP), **spec)

    def assert_scored(self, job: VmafxJob, node: str, attempts: int, failures: int) -> None:
        status = job.status
        assert (status.phase, status.score) == ("Succeeded", self.score), status
        assert (status.assignedNode, status.attempts, status.failures) == (node, attempts, failures)


@asynccontextmanager
async def new_world(folder: Path) -> AsyncIterator[World]:
    long_clip(folder / CLIP[0], frames=60)
    with DevCluster(folder / "cluster", ALONE) as cluster:
        start(cluster, APISERVER, [*kill(cluster, APISERVER), *history.KEEP_ALL])
        async with Client(load_config(cluster.kubeconfig)) as client:
            await crds.install_crds(client)
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
        assert retried.startswith("its node doomed has sent no heartbeat since ")
        assert "its jobs move to other nodes" in left
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
    too_late = one.has_said("result rejected: the attempt has ended") or one.has_said(
        "job stopped: the attempt has ended"
    )
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
        await first.says("cannot report a result")
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


Story = Callable[[World], Awaitable[None]]
STORIES: dict[str, Story] = {"lost": lost, "cut off": cut_off}
# In these nothing is to happen for as long as a fault lasts: for `make soak`.
LONG_STORIES: dict[str, Story] = {
    "nobody there": nobody_there,
    "clock ahead": clocks_apart(90),
    "clock behind": clocks_apart(-90),
}


async def tell_all(world: World, say: Callable[[str], None]) -> None:
    """Every story, side by side."""

    async def tell(name: str, story: Story) -> None:
        await story(world)
        say(f"the story of {name!r} ended well")

    async with asyncio.TaskGroup() as telling:
        for name, story in (STORIES | LONG_STORIES).items():
            telling.create_task(tell(name, story))
