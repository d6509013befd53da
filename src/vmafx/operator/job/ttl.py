"""Deletes finished jobs once their TTL (spec.ttlSecondsAfterFinished) has passed."""

import asyncio
import heapq
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import NamedTuple

from vmafx.api.job import FINISHED, JobView
from vmafx.kube import JOBS, Client, ObjectKey, key_of
from vmafx.kube.errors import Conflict, KubeError, NotFound
from vmafx.logs import log
from vmafx.runtime.informer import Informer
from vmafx.runtime.store import ObjectChange

JOB_VIEW = JOBS.decoded_as(JobView)
PAGE_INTERVAL = 0.2  # seconds between pages of the initial list, to spare the API server
RETRY_AFTER = 30.0  # seconds
MAX_STALE_ENTRIES = 1000  # in the heap, beyond the number of scheduled deletions


class _Deletion(NamedTuple):
    due: datetime
    key: ObjectKey
    uid: str
    version: str  # delete only this version of the job


class FinishedJobCleaner:
    """Schedules the deletion of finished jobs: by the events of `jobs`, and by lists for what it has no events of."""

    def __init__(self, client: Client, jobs: Informer[JobView], now: Callable[[], datetime]) -> None:
        self._client, self._jobs, self._now = client, jobs, now
        self._scheduled: dict[ObjectKey, _Deletion] = {}
        self._heap: list[_Deletion] = []  # an entry that is not in _scheduled is stale
        self._wake = asyncio.Event()
        self._leading = False

    def job_changed(self, change: ObjectChange[JobView]) -> None:
        if self._leading:
            self._scheduled.pop(change.key, None)
            if change.new is not None:
                self._schedule(change.key, change.new)

    def _schedule(self, key: ObjectKey, job: JobView) -> None:
        finished, ttl = job.status.finishedAt, job.spec.ttlSecondsAfterFinished
        if job.status.phase not in FINISHED or job.metadata.deletionTimestamp is not None:
            return
        if ttl is None or finished is None:
            return
        try:
            due = finished + timedelta(seconds=ttl)
        except OverflowError:  # later than datetime can represent
            return
        deletion = self._scheduled[key] = _Deletion(due, key, job.metadata.uid, job.metadata.resourceVersion)
        heapq.heappush(self._heap, deletion)
        if len(self._heap) > 2 * len(self._scheduled) + MAX_STALE_ENTRIES:
            self._heap = list(self._scheduled.values())
            heapq.heapify(self._heap)
        self._wake.set()

    async def run(self) -> None:
        """List the jobs that finished earlier, and delete jobs as they become due; leader only."""
        self._leading = True
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_lists())
            group.create_task(self._delete_due())

    async def _follow_lists(self) -> None:
        """List finished jobs now and after each list of the informer, which leaves them out.

        The informer lists when its watch was interrupted, and has no events of finished jobs changed meanwhile.
        """
        while True:
            lists = self._jobs.lists
            await self._list_finished()
            await self._jobs.wait_for_list(lists + 1)

    async def _list_finished(self) -> None:
        for phase in FINISHED:
            fields = f"status.phase={phase},spec.ttlSecondsAfterFinished!="
            while True:
                try:
                    async for page in self._client.pages(JOB_VIEW, self._jobs.namespace, fields=fields):
                        for job in page.items:
                            self._schedule_listed(key_of(job), job)
                        await asyncio.sleep(PAGE_INTERVAL)
                    break
                except KubeError as error:
                    log.warn("could not list finished jobs, will retry", error=str(error))
                    await asyncio.sleep(RETRY_AFTER)

    def _schedule_listed(self, key: ObjectKey, job: JobView) -> None:
        """Schedule a job of a list, unless a later version of it is scheduled: an event may come before a page."""
        known = self._scheduled.get(key)
        if known is None or int(known.version) < int(job.metadata.resourceVersion):
            self._schedule(key, job)

    async def _delete_due(self) -> None:
        while True:
            self._wake.clear()
            while self._heap and self._scheduled.get(self._heap[0].key) != self._heap[0]:
                heapq.heappop(self._heap)
            left = (self._heap[0].due - self._now()).total_seconds() if self._heap else None
            if left is not None and left <= 0:
                await self._delete(heapq.heappop(self._heap))
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._wake.wait()

    async def _delete(self, deletion: _Deletion) -> None:
        key = deletion.key
        self._scheduled.pop(key, None)
        try:
            try:
                await self._client.delete(JOB_VIEW, key, uid=deletion.uid, version=deletion.version)
            except Conflict:  # it changed while the watch was interrupted
                self._schedule(key, await self._client.get(JOB_VIEW, key))
        except NotFound:
            return
        except KubeError as error:
            log.warn("could not delete finished job, will retry", job=str(key), error=str(error))
            retry = deletion._replace(due=self._now() + timedelta(seconds=RETRY_AFTER))
            self._scheduled[key] = retry
            heapq.heappush(self._heap, retry)
