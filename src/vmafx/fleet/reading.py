"""Reads jobs and nodes, and no more of them than are asked for."""

import asyncio
from collections.abc import Collection, Iterable
from contextlib import aclosing
from typing import TypeVar, get_args

from vmafx.api.job import FINISHED, Phase
from vmafx.fleet.errors import NoSuchJob, NoSuchNode, explained
from vmafx.fleet.views import SEEN_JOBS, SEEN_NODES, SeenJob, SeenNode
from vmafx.kube import NAMESPACES, Client, Key
from vmafx.kube.decoding import Page, Unreadable
from vmafx.kube.errors import Forbidden, NotFound

T = TypeVar("T")
PHASES: tuple[Phase, ...] = get_args(Phase)
UNFINISHED: tuple[Phase, ...] = tuple(phase for phase in PHASES if phase not in FINISHED)
OVER: tuple[Phase, ...] = tuple(phase for phase in PHASES if phase in FINISHED)
RUNNING: tuple[Phase, ...] = ("Running",)
LOOKED_AT = 500  # finished jobs of a namespace, for how long they took


class Reader:
    """Reads one namespace, or all of them if that is empty. What it could not read is in `unreadable`."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client, self.namespace = client, namespace
        self.unreadable: list[Unreadable] = []

    async def jobs(self, phases: Collection[Phase] = PHASES, labels: str = "") -> list[SeenJob]:
        with explained():
            page = await self.client.list(SEEN_JOBS, self.namespace, labels=labels, fields=fields_of(phases))
        return self._readable(page)

    async def named(self, names: Iterable[str]) -> list[SeenJob]:
        """These very jobs; NoSuchJob if one is not there."""
        return list(await asyncio.gather(*map(self._job, names)))

    async def named_nodes(self, names: Iterable[str]) -> list[SeenNode]:
        """These very nodes; NoSuchNode if one is not there."""
        return list(await asyncio.gather(*map(self._node, names)))

    async def nodes(self) -> list[SeenNode]:
        with explained():
            return self._readable(await self.client.list(SEEN_NODES, self.namespace))

    async def succeeded(self, namespaces: Iterable[str]) -> list[SeenJob]:
        """Some of the jobs that went well: of each namespace those that the server lists first, which is by name.

        There may be very many, and the server cannot sort them by their end. So a part is read, the same every time,
        and whoever wants the latest takes them from there.
        """
        found = await asyncio.gather(*map(self._succeeded, namespaces))
        return [job for some in found for job in some]

    async def ended(self) -> tuple[list[SeenJob], bool]:
        """Some of the jobs that are over, those that the server lists first, and whether these are all."""
        pages = self.client.pages(SEEN_JOBS, self.namespace, fields=fields_of(OVER), page=LOOKED_AT)
        async with aclosing(pages) as parts:
            with explained():
                page = await anext(aiter(parts))
        return page.items, not page.metadata.continue_

    async def _job(self, name: str) -> SeenJob:
        key = Key(self.namespace, name)
        try:
            with explained():
                return await self.client.get(SEEN_JOBS, key)
        except (NotFound, ValueError) as error:
            raise NoSuchJob(f"there is no job {name} in namespace {self.namespace}") from error

    async def _node(self, name: str) -> SeenNode:
        try:
            with explained():
                return await self.client.get(SEEN_NODES, Key(self.namespace, name))
        except (NotFound, ValueError) as error:
            raise NoSuchNode(f"there is no node {name} in namespace {self.namespace}") from error

    async def _succeeded(self, namespace: str) -> list[SeenJob]:
        pages = self.client.pages(SEEN_JOBS, namespace, fields="status.phase=Succeeded", page=LOOKED_AT)
        async with aclosing(pages) as parts:
            with explained():
                return (await anext(aiter(parts))).items

    def _readable(self, page: Page[T]) -> list[T]:
        self.unreadable += page.unreadable
        return page.items


async def is_missing(client: Client, namespace: str) -> bool:
    """Whether there is no such namespace, as far as we may know. The server finds nothing in it, which is no error."""
    try:
        await client.get(NAMESPACES, Key("", namespace))
    except (NotFound, ValueError):
        return True
    except Forbidden:
        return False
    return False


def fields_of(phases: Collection[Phase]) -> str:
    """The field selector for jobs in these phases."""
    return ",".join(f"status.phase!={phase}" for phase in PHASES if phase not in phases)
