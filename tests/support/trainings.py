"""Trainings on a real control plane: the reconciler in this process, and a kubelet for their trainers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.support.operator_context import context
from tests.support.pod_runner import PodRunner
from tests.support.setting_defaults import defaults
from tests.support.waiting import eventually
from vmafx.api.kinds import VmafxModelTraining
from vmafx.kube import TRAININGS, Client, ObjectKey, Resource
from vmafx.kube.core import EVENTS, PERSISTENT_VOLUME_CLAIMS
from vmafx.kube.errors import NotFound
from vmafx.kube.resources import UntypedObject
from vmafx.operator.training.kind import set_up
from vmafx.operator.training.settings import TrainingSettings

IMAGE = "registry.example.com/vmafx:1"


class Trainings:
    """Creates, changes and reads trainings and their children through the API server."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client, self.namespace = client, namespace

    async def create(self, name: str = "t", **spec: Any) -> VmafxModelTraining:
        return await self.client.create(TRAININGS, training_body(name, **spec), self.namespace)

    async def change(self, name: str = "t", **spec: Any) -> None:
        await self.client.merge_patch(TRAININGS, ObjectKey(self.namespace, name), {"spec": spec})

    async def delete(self, name: str = "t") -> None:
        """Delete a training, and wait until the garbage collector has deleted its children."""
        await self.client.delete(TRAININGS, ObjectKey(self.namespace, name))
        await self.gone(TRAININGS.decoded_as(dict), name)

    async def training(self, name: str = "t") -> VmafxModelTraining:
        return await self.client.get(TRAININGS, ObjectKey(self.namespace, name))

    async def get(self, kind: Resource[UntypedObject], name: str) -> UntypedObject | None:
        try:
            return await self.client.get(kind, ObjectKey(self.namespace, name))
        except NotFound:
            return None

    async def gone(self, kind: Resource[UntypedObject], name: str) -> None:
        async def is_gone() -> bool:
            return await self.get(kind, name) is None

        await eventually(is_gone, f"{kind.kind} {name} is gone")

    async def claim(self, name: str = "t") -> UntypedObject | None:
        return await self.get(PERSISTENT_VOLUME_CLAIMS, f"vmafx-trainer-{name}")

    async def until(self, condition: str, status: str = "True", reason: str = "", name: str = "t") -> str:
        """Wait for a condition that is about the latest generation; return its message."""
        found = None

        async def holds() -> bool:
            nonlocal found
            training = await self.training(name)
            current = training.status.observedGeneration == training.metadata.generation
            found = next((one for one in training.status.conditions if one.type == condition), None)
            return current and found is not None and found.status == status and reason in {"", found.reason}

        try:
            await eventually(holds, f"{condition} is {status} {reason}", within=90)
        except AssertionError as error:
            raise AssertionError(f"{error}; status: {(await self.training(name)).status}") from None
        assert found is not None
        return str(found.message)

    async def until_phase(self, phase: str, name: str = "t") -> None:
        async def holds() -> bool:
            return (await self.training(name)).status.phase == phase

        await eventually(holds, f"{name} is {phase}", within=90)

    async def events(self, name: str = "t") -> list[tuple[str, str, str]]:
        """Type, reason and note of the events about a training, the oldest first."""
        found = [
            one for one in (await self.client.list(EVENTS, self.namespace)).items if one["regarding"]["name"] == name
        ]
        found.sort(key=lambda one: str(one["eventTime"]))
        return [(one["type"], one["reason"], one["note"]) for one in found]

    async def until_event(self, reason: str, name: str = "t") -> str:
        """Wait for an event with this reason; return its note."""
        notes: list[str] = []

        async def emitted() -> bool:
            notes[:] = [note for _, found, note in await self.events(name) if found == reason]
            return bool(notes)

        await eventually(emitted, f"an event {reason}", within=60)
        return notes[0]


def training_body(name: str = "t", **spec: Any) -> UntypedObject:
    return {
        "apiVersion": TRAININGS.api_version,
        "kind": TRAININGS.kind,
        "metadata": {"name": name},
        "spec": {"baseModel": "vmaf_v0.6.1", **spec},
    }


@asynccontextmanager
async def reconciling_trainings(client: Client, namespace: str, address: str, **settings: Any) -> AsyncIterator[None]:
    """Run the reconciler of trainings. It reads the status of trainers every second."""
    values = {"worker_image": IMAGE, "trainer_address": address, "poll_interval": 1, **settings}
    made, stop = context(client, namespace), asyncio.Event()
    set_up(made, defaults(TrainingSettings, **values))
    running = asyncio.create_task(made.manager.run(stop))
    try:
        await eventually(lambda: made.manager.not_ready() is None, "the caches are synced", every=0.02)
        yield
    finally:
        stop.set()
        await running


@asynccontextmanager
async def training_fleet(
    client: Client, namespace: str, kubelet: PodRunner, address: str, **settings: Any
) -> AsyncIterator[Trainings]:
    """Run the reconciler of trainings, and a kubelet for their trainers."""
    async with kubelet, reconciling_trainings(client, namespace, address, **settings):
        yield Trainings(client, namespace)
