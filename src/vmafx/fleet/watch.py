"""Caches of jobs, nodes, trainings and the queue, kept up to date by watches; and one job followed to its end."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Collection, Iterable, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Any, Self

from vmafx.api.job import FINISHED, Phase
from vmafx.api.training import TrainingView
from vmafx.clock import utc_now
from vmafx.fleet.errors import NoSuchJob, explain_errors
from vmafx.fleet.queue import JobQueue, QueueRow, make_queue, read_durations, read_queue
from vmafx.fleet.reader import (
    ALL_PHASES,
    FLEET_JOBS,
    FLEET_NODES,
    FLEET_TRAININGS,
    FleetJob,
    FleetNode,
    FleetReader,
    phase_selector,
)
from vmafx.kube import Client, ObjectKey
from vmafx.kube.errors import Expired, NotFound
from vmafx.kube.watch import Added, Deleted, Modified
from vmafx.runtime.informer import Informer, StoreFilter
from vmafx.runtime.store import ObjectChange
from vmafx.scheduling.durations import JobDuration
from vmafx.scheduling.forecast import job_duration
from vmafx.scheduling.requirements import node_offer

MAX_DURATIONS = 5_000  # of finished jobs that are remembered
FIRST_POLL_AFTER, POLL_INTERVAL = 1.0, 5.0  # seconds; most jobs are placed before the first poll
POLL_PAUSE = 20.0  # times as long as the last poll took, since each reads the whole queue


def fleet_jobs_informer(
    client: Client, namespace: str, phases: Collection[Phase] = ALL_PHASES, labels: str = "", names: Sequence[str] = ()
) -> Informer[FleetJob]:
    """An informer of jobs in these phases, with these names if any are given.

    When a job leaves the phases, the informer reports that change and then drops the job.
    """

    def wanted(job: FleetJob) -> bool:
        return job.status.phase in phases and (not names or job.metadata.name in names)

    only = f"metadata.name={names[0]}" if len(names) == 1 else ""
    fields = ",".join(filter(None, (phase_selector(phases), only)))
    return Informer(client, FLEET_JOBS, namespace=namespace, labels=labels, keep=StoreFilter(wanted, fields))


def fleet_nodes_informer(client: Client, namespace: str) -> Informer[FleetNode]:
    return Informer(client, FLEET_NODES, namespace=namespace)


def fleet_training_informer(client: Client, key: ObjectKey) -> Informer[TrainingView]:
    """An informer of one training."""
    keep: StoreFilter[TrainingView] = StoreFilter(
        lambda training: training.metadata.name == key.name, f"metadata.name={key.name}"
    )
    return Informer(client, FLEET_TRAININGS, namespace=key.namespace, keep=keep)


class LiveCaches:
    """Runs informers, as an async context manager.

    Entering it fills the caches, and raises if the server cannot be read. Later errors are logged and retried.
    """

    def __init__(self, client: Client, *informers: Informer[Any], labels: str = "") -> None:
        self._client, self._informers, self._labels = client, informers, labels
        self._changes: list[ObjectChange[Any]] = []
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        for informer in self._informers:
            await self._check(informer)
        self._running = [asyncio.create_task(informer.run()) for informer in self._informers]
        for informer in self._informers:
            await informer.synced.wait()
            informer.on_change(self._record)
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def changes(self, within: float | None = None) -> list[ObjectChange[Any]]:
        """Wait for changes, at most `within` seconds, and return those since the last call."""
        try:
            async with asyncio.timeout(within):
                await self._changed.wait()
        except TimeoutError:
            return []
        self._changed.clear()
        changes, self._changes = self._changes, []
        return changes

    def _record(self, change: ObjectChange[Any]) -> None:
        self._changes.append(change)
        self._changed.set()

    async def _check(self, informer: Informer[Any]) -> None:
        """Raise at once what an informer would retry forever: no permission, no CRDs, an invalid label selector."""
        pages = self._client.pages(informer.resource, informer.namespace, labels=self._labels, page=1)
        async with aclosing(pages):
            with explain_errors():
                await anext(aiter(pages))


class LiveQueue:
    """The queue, computed from live caches. Jobs that finish meanwhile improve the estimates."""

    def __init__(self, jobs: Informer[FleetJob], nodes: Informer[FleetNode], history: Iterable[JobDuration]) -> None:
        self._jobs, self._nodes = jobs, nodes
        self._history = deque(history, maxlen=MAX_DURATIONS)
        jobs.on_change(self._record_duration)

    @classmethod
    async def read(cls, reader: FleetReader, jobs: Informer[FleetJob], nodes: Informer[FleetNode]) -> Self:
        return cls(jobs, nodes, await read_durations(reader, jobs.store.values(), nodes.store.values()))

    def at(self, now: datetime) -> JobQueue:
        return make_queue(self._jobs.store.values(), self._nodes.store.values(), self._history, now)

    def job(self, key: ObjectKey) -> FleetJob | None:
        return self._jobs.store.get(key)

    def _record_duration(self, change: ObjectChange[FleetJob]) -> None:
        job = change.new
        if job is not None and job.status.phase == "Succeeded":
            node = self._nodes.store.get(ObjectKey(job.metadata.namespace, job.status.assignedNode or ""))
            if node is not None and (duration := job_duration(job, node_offer(node))) is not None:
                self._history.append(duration)


async def follow_job(client: Client, key: ObjectKey, version: str) -> AsyncGenerator[FleetJob]:
    """Each state of a job after resource version `version`, until it ends; NoSuchJob if it is deleted before that."""
    deleted = NoSuchJob(f"job {key.name} was deleted before it ended")
    while True:
        watch = client.watch(FLEET_JOBS, key.namespace, version=version, fields=f"metadata.name={key.name}")
        try:
            async with aclosing(aiter(watch)) as batches:
                async for batch in batches:
                    for event in batch:
                        if isinstance(event, Deleted):
                            raise deleted
                        if isinstance(event, Added | Modified):
                            yield event.object
                            if event.object.status.phase in FINISHED:
                                return
        except Expired:  # events were missed; the job may have ended meanwhile
            try:
                job = await client.get(FLEET_JOBS, key)
            except NotFound:
                raise deleted from None
            yield job
            if job.status.phase in FINISHED:
                return
            version = job.metadata.resourceVersion


async def follow_position(client: Client, key: ObjectKey, waiting: asyncio.Event) -> AsyncGenerator[QueueRow]:
    """The row of a job in the queue, every POLL_INTERVAL seconds while `waiting` is set."""
    await asyncio.sleep(FIRST_POLL_AFTER)
    while True:
        await waiting.wait()
        began = time.monotonic()
        queue = await read_queue(FleetReader(client, key.namespace), utc_now())
        row = next((row for row in queue.jobs if row.key == key), None)
        if row is not None and waiting.is_set():
            yield row
        await asyncio.sleep(max(POLL_INTERVAL, (time.monotonic() - began) * POLL_PAUSE))
