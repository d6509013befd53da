"""Deletes finished jobs once their TTL (spec.ttlSecondsAfterFinished) has passed."""

import asyncio
import heapq
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import NamedTuple

from vmafx.api.job import FINISHED, JobView
from vmafx.kube import JOBS, Client, ObjectKey
from vmafx.kube.errors import Conflict, KubeError, NotFound
from vmafx.logs import log
from vmafx.runtime.store import ObjectChange

JOB_VIEW = JOBS.seen_as(JobView)
BETWEEN_PAGES = 0.2  # seconds: nobody waits for this, and the server has better things to do
RETRY_AFTER = 30.0  # seconds, if the server did not let us
SLACK = 1000  # entries that no longer count, beyond as many as do


class _Due(NamedTuple):
    at: datetime
    key: ObjectKey
    uid: str
    version: str  # only that very state is deleted


class FinishedJobCleaner:
    """Hears of jobs that end, and deletes them in their time, while it leads: who begins to lead looks back."""

    def __init__(self, client: Client, namespace: str, now: Callable[[], datetime]) -> None:
        self._client, self._namespace, self._now = client, namespace, now
        self._known: dict[ObjectKey, _Due] = {}
        self._line: list[_Due] = []  # the next one first; an entry counts only if it is still known
        self._more = asyncio.Event()
        self._leading = False

    def job_changed(self, change: ObjectChange[JobView]) -> None:
        if self._leading:
            self._known.pop(change.key, None)
            if change.new is not None:
                self._expect(change.key, change.new)

    def _expect(self, key: ObjectKey, job: JobView) -> None:
        finished, seconds = job.status.finishedAt, job.spec.ttlSecondsAfterFinished
        if job.status.phase not in FINISHED or job.metadata.deletionTimestamp is not None:
            return
        if seconds is None or finished is None:
            return
        try:
            at = finished + timedelta(seconds=seconds)
        except OverflowError:  # beyond the last year that there is
            return
        due = self._known[key] = _Due(at, key, job.metadata.uid, job.metadata.resourceVersion)
        heapq.heappush(self._line, due)
        if len(self._line) > 2 * len(self._known) + SLACK:  # most are of jobs that changed or went before their time
            self._line = list(self._known.values())
            heapq.heapify(self._line)
        self._more.set()

    async def run(self) -> None:
        """While leading: look through what ended before us, and delete what is due."""
        self._leading = True
        async with asyncio.TaskGroup() as group:
            group.create_task(self._look_back())
            group.create_task(self._delete_when_due())

    async def _look_back(self) -> None:
        for phase in FINISHED:
            while True:
                try:
                    await self._read(f"status.phase={phase},spec.ttlSecondsAfterFinished!=")
                    break
                except KubeError as error:
                    log.warn("jobs that are over cannot be read; trying again", error=str(error))
                    await asyncio.sleep(RETRY_AFTER)

    async def _read(self, mortal: str) -> None:
        async for page in self._client.pages(JOB_VIEW, self._namespace, fields=mortal):
            for job in page.items:
                self._expect(ObjectKey(job.metadata.namespace, job.metadata.name), job)
            await asyncio.sleep(BETWEEN_PAGES)

    async def _delete_when_due(self) -> None:
        while True:
            self._more.clear()
            while self._line and self._known.get(self._line[0].key) != self._line[0]:
                heapq.heappop(self._line)
            left = (self._line[0].at - self._now()).total_seconds() if self._line else None
            if left is not None and left <= 0:
                await self._delete(heapq.heappop(self._line))
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._more.wait()

    async def _delete(self, due: _Due) -> None:
        self._known.pop(due.key, None)
        try:
            try:
                await self._client.delete(JOB_VIEW, due.key, uid=due.uid, version=due.version)
            except Conflict:  # changed since, which a watch that was broken off did not tell
                self._expect(due.key, await self._client.get(JOB_VIEW, due.key))
        except NotFound:
            return
        except KubeError as error:
            log.warn("a job whose time is up cannot be deleted", key=str(due.key), error=str(error))
            again = due._replace(at=self._now() + timedelta(seconds=RETRY_AFTER))
            self._known[due.key] = again
            heapq.heappush(self._line, again)
