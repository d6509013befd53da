"""Reads jobs, nodes and trainings from the API server: only fields that are shown, and only requested objects."""

import asyncio
from collections.abc import Collection, Iterable
from contextlib import aclosing
from typing import TypeVar, get_args

from vmafx.api.job import FINISHED, JobProgress, JobStatusView, JobView, Phase
from vmafx.api.node import NodeStatusView, NodeView
from vmafx.api.training import TrainingView
from vmafx.fleet.errors import NoSuchJob, NoSuchNode, NoSuchTraining, UnreadableTraining, explain_errors
from vmafx.kube import JOBS, NAMESPACES, NODES, TRAININGS, Client, ObjectKey
from vmafx.kube.decoding import ListPage, UnreadableObject
from vmafx.kube.errors import Forbidden, NotFound, UnreadableResponse

T = TypeVar("T")
ALL_PHASES: tuple[Phase, ...] = get_args(Phase)
UNFINISHED_PHASES: tuple[Phase, ...] = tuple(phase for phase in ALL_PHASES if phase not in FINISHED)
FINISHED_PHASES: tuple[Phase, ...] = tuple(phase for phase in ALL_PHASES if phase in FINISHED)
RUNNING: tuple[Phase, ...] = ("Running",)
MAX_FINISHED = 500  # finished jobs that are read at once


class FleetJobStatus(JobStatusView):
    score: float | None = None
    message: str | None = None
    progress: JobProgress | None = None
    frames: int | None = None


class FleetJob(JobView):
    """The fields of a VmafxJob that are shown."""

    status: FleetJobStatus = FleetJobStatus()


class FleetNodeStatus(NodeStatusView):
    detectedDevice: str | None = None


class FleetNode(NodeView):
    """The fields of a VmafxNode that are shown."""

    status: FleetNodeStatus = FleetNodeStatus()


FLEET_JOBS = JOBS.decoded_as(FleetJob)
FLEET_NODES = NODES.decoded_as(FleetNode)
FLEET_TRAININGS = TRAININGS.decoded_as(TrainingView)


class FleetReader:
    """Reads one namespace, or all if `namespace` is empty. `unreadable` collects objects that could not be decoded."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client, self.namespace = client, namespace
        self.unreadable: list[UnreadableObject] = []

    async def jobs(self, phases: Collection[Phase] = ALL_PHASES, labels: str = "") -> list[FleetJob]:
        with explain_errors():
            page = await self.client.list(FLEET_JOBS, self.namespace, labels=labels, fields=phase_selector(phases))
        return self._readable(page)

    async def nodes(self) -> list[FleetNode]:
        with explain_errors():
            return self._readable(await self.client.list(FLEET_NODES, self.namespace))

    async def trainings(self) -> list[TrainingView]:
        with explain_errors():
            return self._readable(await self.client.list(FLEET_TRAININGS, self.namespace))

    async def training(self, name: str) -> TrainingView:
        """The training with this name; NoSuchTraining if it does not exist, UnreadableTraining if it is damaged."""
        try:
            with explain_errors():
                return await self.client.get(FLEET_TRAININGS, ObjectKey(self.namespace, name))
        except (NotFound, ValueError) as error:
            raise NoSuchTraining(f"training {name} not found in namespace {self.namespace}") from error
        except UnreadableResponse as error:
            raise UnreadableTraining(
                f"training {name} in namespace {self.namespace} cannot be read: {error.__cause__ or error}"
            ) from error

    async def named_jobs(self, names: Iterable[str]) -> list[FleetJob]:
        """The jobs with these names; NoSuchJob if one does not exist."""
        return list(await asyncio.gather(*map(self._job, names)))

    async def named_nodes(self, names: Iterable[str]) -> list[FleetNode]:
        """The nodes with these names; NoSuchNode if one does not exist."""
        return list(await asyncio.gather(*map(self._node, names)))

    async def succeeded(self, namespaces: Iterable[str]) -> list[FleetJob]:
        """The first MAX_FINISHED succeeded jobs of each namespace, in the server's order, which is by name.

        There may be very many, and the server cannot sort them by their end.
        """
        pages = await asyncio.gather(*map(self._succeeded, namespaces))
        return [job for page in pages for job in page]

    async def ended(self) -> tuple[list[FleetJob], bool]:
        """The first MAX_FINISHED jobs that ended, in the server's order, and whether these are all."""
        pages = self.client.pages(FLEET_JOBS, self.namespace, fields=phase_selector(FINISHED_PHASES), page=MAX_FINISHED)
        async with aclosing(pages):
            with explain_errors():
                page = await anext(aiter(pages))
        return page.items, not page.metadata.continue_

    async def _job(self, name: str) -> FleetJob:
        try:
            with explain_errors():
                return await self.client.get(FLEET_JOBS, ObjectKey(self.namespace, name))
        except (NotFound, ValueError) as error:
            raise NoSuchJob(f"job {name} not found in namespace {self.namespace}") from error

    async def _node(self, name: str) -> FleetNode:
        try:
            with explain_errors():
                return await self.client.get(FLEET_NODES, ObjectKey(self.namespace, name))
        except (NotFound, ValueError) as error:
            raise NoSuchNode(f"node {name} not found in namespace {self.namespace}") from error

    async def _succeeded(self, namespace: str) -> list[FleetJob]:
        pages = self.client.pages(FLEET_JOBS, namespace, fields="status.phase=Succeeded", page=MAX_FINISHED)
        async with aclosing(pages):
            with explain_errors():
                return (await anext(aiter(pages))).items

    def _readable(self, page: ListPage[T]) -> list[T]:
        self.unreadable += page.unreadable
        return page.items


async def namespace_exists(client: Client, namespace: str) -> bool:
    """False if the server says so; True also if the user may not read namespaces.

    A list in a namespace that does not exist is empty, not an error.
    """
    try:
        await client.get(NAMESPACES, ObjectKey("", namespace))
    except (NotFound, ValueError):
        return False
    except Forbidden:
        return True
    return True


def phase_selector(phases: Collection[Phase]) -> str:
    """The field selector for jobs in these phases."""
    return ",".join(f"status.phase!={phase}" for phase in ALL_PHASES if phase not in phases)
