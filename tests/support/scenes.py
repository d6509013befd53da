"""A stage for one fault: operator, controllers and agents as processes in a namespace of their own, and the judge."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support import history
from tests.support.laws import broken_laws
from tests.support.machines import ControllerProcess, Machine, controllers, known_speed, running
from tests.support.operators import operator
from tests.support.service import Service
from tests.support.waiting import eventually
from vmafx.api.job import FINISHED, VmafxJob, VmafxJobSpec
from vmafx.api.meta import ObjectMeta
from vmafx.devcluster import DevCluster
from vmafx.kube import JOBS, NAMESPACES, NODES, Client, ObjectKey, Resource
from vmafx.kube.resources import UntypedObject

EVENTS: Resource[UntypedObject] = Resource("events.k8s.io", "v1", "events", "Event", dict)
AGES = 180.0  # seconds for what takes a minute or two by itself


class Scene:
    """`replicas` are in front of `door` for agents, and of another for the operator's questions."""

    def __init__(self, cluster: DevCluster, client: Client, namespace: str, folder: Path) -> None:
        self.cluster, self.client, self.namespace, self.folder = cluster, client, namespace, folder
        self.replicas: list[ControllerProcess] = []
        self.machines: list[Machine] = []
        self._there = AsyncExitStack()

    async def begin(self, replicas: int) -> None:
        there = self._there
        self.replicas = there.enter_context(controllers(self.cluster, self.namespace, self.folder, replicas=replicas))
        for one in self.replicas:
            await one.ready()
        self.door = await there.enter_async_context(Service(*(one.grpc for one in self.replicas)))
        health = await there.enter_async_context(Service(*(one.http for one in self.replicas)))
        self.operate(f"http://{health.address}")

    def operate(self, health: str) -> AsyncExitStack:
        """An operator; it ends with what is given back, or with the scene."""
        ending = AsyncExitStack()
        variables = {"VMAFX_CONTROLLER_HTTP_ADDR": health}
        ending.enter_context(operator(self.cluster, self.namespace, self.folder, **variables))
        self._there.push_async_callback(ending.aclose)
        return ending

    async def end(self) -> None:
        await self._there.aclose()

    async def machine(self, name: str, *flags: str, door: str = "", folder: str = "") -> Machine:
        """A machine whose agent has registered. `folder`: where it keeps things, if its name is taken."""
        place = self.folder / folder
        place.mkdir(exist_ok=True)
        speed = await known_speed(self.folder)
        made = Machine(name, door or self.door.address, place, speed, "--capacity", "1", *flags)
        self.machines.append(made)
        await self._there.enter_async_context(running(made))
        await made.says("registered")
        return made

    async def submit(self, name: str, reference: Path, distorted: Path, **spec: Any) -> ObjectKey:
        wanted = VmafxJobSpec(reference.as_uri(), distorted.as_uri(), **spec)
        await self.client.create(JOBS, VmafxJob(metadata=ObjectMeta(name=name), spec=wanted), self.namespace)
        return ObjectKey(self.namespace, name)

    async def job(self, key: ObjectKey) -> VmafxJob:
        return await self.client.get(JOBS, key)

    async def reaches(self, key: ObjectKey, holds: Callable[[VmafxJob], bool], what: str) -> VmafxJob:
        async def look() -> bool:
            return holds(await self.job(key))

        try:
            await eventually(look, what, within=AGES)
        except AssertionError:
            raise AssertionError("\n".join([what, *await self._story()])) from None
        return await self.job(key)

    async def _story(self) -> list[str]:
        """What happened, for whoever has to find out why."""
        told = await history.read(self.cluster, self.namespace)
        moments = [f"{one.revision} {history.written_at(one.new)} {one.name}: {one.new}" for one in told]
        return [*moments, *(f"{machine.name}: {line}" for machine in self.machines for line in machine.life.said)]

    async def finished(self, key: ObjectKey) -> VmafxJob:
        return await self.reaches(key, lambda job: job.status.phase in FINISHED, f"{key.name} is over")

    async def ready(self, node: str) -> str:
        """Why it is, or is not."""
        status = (await self.client.get(NODES, ObjectKey(self.namespace, node))).status
        return next((one.reason for one in status.conditions if one.type == "Ready"), "")

    async def becomes(self, node: str, reason: str) -> None:
        async def look() -> bool:
            return await self.ready(node) == reason

        await eventually(look, f"{node} becomes {reason}", within=AGES)

    async def events(self, name: str) -> dict[str, str]:
        found = (await self.client.list(EVENTS, self.namespace)).items
        return {one["reason"]: one["note"] for one in found if one["regarding"]["name"] == name}

    async def judge(self) -> list[history.Moment]:
        """The whole story, which broke no law."""
        told = await history.read(self.cluster, self.namespace)
        said = [one for machine in self.machines for one in machine.said()]
        assert broken_laws(told, said) == []
        return told


@asynccontextmanager
async def scene(
    cluster: DevCluster, client: Client, name: str, folder: Path, *, replicas: int = 1
) -> AsyncIterator[Scene]:
    """With no controller of its own if `replicas` is 0, and then no operator either."""
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    place = folder / name
    place.mkdir()
    made = Scene(cluster, client, name, place)
    try:
        if replicas:
            await made.begin(replicas)
        yield made
    finally:
        await made.end()


async def halted(machine: Machine) -> int:
    """The worker that it runs, stopped in its tracks with all that it runs itself: it takes its time, and no CPU."""
    found: list[int] = []

    def works() -> bool:
        found[:] = machine.workers()
        return bool(found)

    await eventually(works, f"{machine.name} works", within=AGES)
    send(found[0], signal.SIGSTOP)
    return found[0]


def send(worker: int, number: signal.Signals) -> None:
    os.killpg(worker, number)


async def pause(seconds: float) -> None:
    """The time that a fault lasts."""
    await asyncio.sleep(seconds)
