"""Reads jobs and nodes from the API server: the fields that people look at, and only the objects asked for."""

import asyncio
from collections.abc import Collection, Iterable
from contextlib import aclosing
from typing import TypeVar, get_args

from vmafx.api.job import FINISHED, JobProgress, JobStatusView, JobView, Phase
from vmafx.api.node import NodeStatusView, NodeView
from vmafx.fleet.errors import NoSuchJob, NoSuchNode, explain_errors
from vmafx.kube import JOBS, NAMESPACES, NODES, Client, ObjectKey
from vmafx.kube.decoding import ListPage, UnreadableObject
from vmafx.kube.errors import Forbidden, NotFound


class FleetJobStatus(JobStatusView):
    score: float | None = None
    message: str | None = None
    progress: JobProgress | None = None
    frames: int | None = None


class FleetJob(JobView):
    """A VmafxJob as it is looked at."""

    status: FleetJobStatus = FleetJobStatus()


class FleetNodeStatus(NodeStatusView):
    detectedDevice: str | None = None


class FleetNode(NodeView):
    """A VmafxNode as it is looked at."""

    status: FleetNodeStatus = FleetNodeStatus()


FLEET_JOBS = JOBS.seen_as(FleetJob)
FLEET_NODES = NODES.seen_as(FleetNode)


T = TypeVar("T")
ALL_PHASES: tuple[Phase, ...] = get_args(Phase)
UNFINISHED_PHASES: tuple[Phase, ...] = tuple(phase for phase in ALL_PHASES if phase not in FINISHED)
FINISHED_PHASES: tuple[Phase, ...] = tuple(phase for phase in ALL_PHASES if phase in FINISHED)
RUNNING: tuple[Phase, ...] = ("Running",)
PAGE_SIZE = 500  # finished jobs of a namespace, for how long they took


class FleetReader:
    """Reads one namespace, or all of them if that is empty. What it could not read is in `unreadable`."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client, self.namespace = client, namespace
        self.unreadable: list[UnreadableObject] = []

    async def jobs(self, phases: Collection[Phase] = ALL_PHASES, labels: str = "") -> list[FleetJob]:
        with explain_errors():
            page = await self.client.list(FLEET_JOBS, self.namespace, labels=labels, fields=phase_selector(phases))
        return self._readable(page)

    async def named(self, names: Iterable[str]) -> list[FleetJob]:
        """These very jobs; NoSuchJob if one is not there."""
        return list(await asyncio.gather(*map(self._job, names)))

    async def named_nodes(self, names: Iterable[str]) -> list[FleetNode]:
        """These very nodes; NoSuchNode if one is not there."""
        return list(await asyncio.gather(*map(self._node, names)))

    async def nodes(self) -> list[FleetNode]:
        with explain_errors():
            return self._readable(await self.client.list(FLEET_NODES, self.namespace))

    async def succeeded(self, namespaces: Iterable[str]) -> list[FleetJob]:
        """Some of the jobs that went well: of each namespace those that the server lists first, which is by name.

        There may be very many, and the server cannot sort them by their end. So a part is read, the same every time,
        and whoever wants the latest takes them from there.
        """
        found = await asyncio.gather(*map(self._succeeded, namespaces))
        return [job for some in found for job in some]

    async def ended(self) -> tuple[list[FleetJob], bool]:
        """Some of the jobs that are over, those that the server lists first, and whether these are all."""
        pages = self.client.pages(FLEET_JOBS, self.namespace, fields=phase_selector(FINISHED_PHASES), page=PAGE_SIZE)
        async with aclosing(pages) as parts:
            with explain_errors():
                page = await anext(aiter(parts))
        return page.items, not page.metadata.continue_

    async def _job(self, name: str) -> FleetJob:
        key = ObjectKey(self.namespace, name)
        try:
            with explain_errors():
                return await self.client.get(FLEET_JOBS, key)
        except (NotFound, ValueError) as error:
            raise NoSuchJob(f"there is no job {name} in namespace {self.namespace}") from error

    async def _node(self, name: str) -> FleetNode:
        try:
            with explain_errors():
                return await self.client.get(FLEET_NODES, ObjectKey(self.namespace, name))
        except (NotFound, ValueError) as error:
            raise NoSuchNode(f"there is no node {name} in namespace {self.namespace}") from error

    async def _succeeded(self, namespace: str) -> list[FleetJob]:
        pages = self.client.pages(FLEET_JOBS, namespace, fields="status.phase=Succeeded", page=PAGE_SIZE)
        async with aclosing(pages) as parts:
            with explain_errors():
                return (await anext(aiter(parts))).items

    def _readable(self, page: ListPage[T]) -> list[T]:
        self.unreadable += page.unreadable
        return page.items


async def is_missing(client: Client, namespace: str) -> bool:
    """Whether there is no such namespace, as far as we may know. The server finds nothing in it, which is no error."""
    try:
        await client.get(NAMESPACES, ObjectKey("", namespace))
    except (NotFound, ValueError):
        return True
    except Forbidden:
        return False
    return False


def phase_selector(phases: Collection[Phase]) -> str:
    """The field selector for jobs in these phases."""
    return ",".join(f"status.phase!={phase}" for phase in ALL_PHASES if phase not in phases)
