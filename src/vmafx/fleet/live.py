"""Jobs, nodes and the queue, kept up to date for as long as somebody looks."""

import asyncio
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Any, Self

from vmafx.api.job import Phase
from vmafx.fleet.errors import explained
from vmafx.fleet.queue import Queue, line_up, read_runs
from vmafx.fleet.reading import PHASES, Reader, fields_of
from vmafx.fleet.views import SEEN_JOBS, SEEN_NODES, SeenJob, SeenNode
from vmafx.kube import Client, Key
from vmafx.runtime.informer import Informer, Keep
from vmafx.runtime.store import Change
from vmafx.scheduling.durations import Run
from vmafx.scheduling.prospects import run_of
from vmafx.scheduling.reading import offer_of

LEARNT = 5_000  # runs that are remembered


def jobs_in(
    client: Client, namespace: str, phases: Collection[Phase] = PHASES, labels: str = "", names: Sequence[str] = ()
) -> Informer[SeenJob]:
    """Jobs in these phases, of these names if any are said; those that leave the phases are told of once more."""

    def wanted(job: SeenJob) -> bool:
        return job.status.phase in phases and (not names or job.metadata.name in names)

    only = f"metadata.name={names[0]}" if len(names) == 1 else ""
    fields = ",".join(filter(None, (fields_of(phases), only)))
    return Informer(client, SEEN_JOBS, namespace=namespace, labels=labels, keep=Keep(wanted, fields))


def nodes_in(client: Client, namespace: str) -> Informer[SeenNode]:
    return Informer(client, SEEN_NODES, namespace=namespace)


class Live:
    """Runs informers. Use as an async context manager: once inside, all is read, and errors were raised.

    From then on a server that does not answer is waited for, and told of in the log.
    """

    def __init__(self, client: Client, *informers: Informer[Any], labels: str = "") -> None:
        self._client, self._informers, self._labels = client, informers, labels
        self._changes: list[Change[Any]] = []
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        for informer in self._informers:
            await self._try(informer)
        self._running = [asyncio.create_task(informer.run()) for informer in self._informers]
        for informer in self._informers:
            await informer.synced.wait()
            informer.on_change(self._note)
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def changes(self, within: float | None = None) -> list[Change[Any]]:
        """What changed since this was last asked, as soon as there is something; nothing after so many seconds."""
        try:
            async with asyncio.timeout(within):
                await self._changed.wait()
        except TimeoutError:
            return []
        self._changed.clear()
        told, self._changes = self._changes, []
        return told

    def _note(self, change: Change[Any]) -> None:
        self._changes.append(change)
        self._changed.set()

    async def _try(self, informer: Informer[Any]) -> None:
        """An informer is patient with every no; a person is to be told at once, of labels that make no sense too."""
        pages = self._client.pages(informer.resource, informer.namespace, labels=self._labels, page=1)
        async with aclosing(pages) as parts:
            with explained():
                await anext(aiter(parts))


class LiveQueue:
    """The queue by caches that are kept up to date; what ends meanwhile teaches how long jobs take."""

    def __init__(self, jobs: Informer[SeenJob], nodes: Informer[SeenNode], runs: Iterable[Run]) -> None:
        self._jobs, self._nodes = jobs, nodes
        self._runs = deque(runs, maxlen=LEARNT)
        jobs.on_change(self._learn)

    @classmethod
    async def read(cls, reader: Reader, jobs: Informer[SeenJob], nodes: Informer[SeenNode]) -> Self:
        return cls(jobs, nodes, await read_runs(reader, jobs.store.values(), nodes.store.values()))

    def at(self, now: datetime) -> Queue:
        return line_up(self._jobs.store.values(), self._nodes.store.values(), self._runs, now)

    def job(self, key: Key) -> SeenJob | None:
        return self._jobs.store.get(key)

    def _learn(self, change: Change[SeenJob]) -> None:
        job = change.new
        if job is not None and job.status.phase == "Succeeded":
            node = self._nodes.store.get(Key(job.metadata.namespace, job.status.assignedNode or ""))
            if node is not None and (run := run_of(job, offer_of(node))) is not None:
                self._runs.append(run)
