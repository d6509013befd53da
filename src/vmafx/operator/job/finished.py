"""Jobs that are over: kept in no cache, but deleted when their time is up.

Of a job with a time to live nothing is kept but its name and when it goes. Those that ended before this process began
are asked for once; the server leaves out the many that stay.
"""

import asyncio
import heapq
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta

from vmafx.api.job import FINISHED, JobView
from vmafx.kube import JOBS, Client, Key
from vmafx.kube.errors import Conflict, KubeError, NotFound
from vmafx.runtime.logs import log
from vmafx.runtime.store import Change

VIEW = JOBS.seen_as(JobView)
BETWEEN_PAGES = 0.2  # seconds: nobody waits for this, and the server has better things to do
AGAIN_AFTER = 30.0  # seconds, if the server did not let us


class Finished:
    """Hears of jobs that end, and deletes them in their time."""

    def __init__(self, client: Client, namespace: str, now: Callable[[], datetime]) -> None:
        self._client, self._namespace, self._now = client, namespace, now
        self._due: list[tuple[datetime, Key, str, str]] = []  # with uid and version: only that very state is deleted
        self._more = asyncio.Event()

    def job_changed(self, change: Change[JobView]) -> None:
        job = change.new
        if job is None or job.status.phase not in FINISHED or job.metadata.deletionTimestamp is not None:
            return
        if job.spec.ttlSecondsAfterFinished is not None and job.status.finishedAt is not None:
            due = job.status.finishedAt + timedelta(seconds=job.spec.ttlSecondsAfterFinished)
            heapq.heappush(self._due, (due, change.key, job.metadata.uid, job.metadata.resourceVersion))
            self._more.set()

    async def run(self) -> None:
        """While leading: look through what ended before us, and delete what is due."""
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
                    await asyncio.sleep(AGAIN_AFTER)

    async def _read(self, mortal: str) -> None:
        async for page in self._client.pages(VIEW, self._namespace, fields=mortal):
            for job in page.items:
                self.job_changed(Change(Key(job.metadata.namespace, job.metadata.name), None, job))
            await asyncio.sleep(BETWEEN_PAGES)

    async def _delete_when_due(self) -> None:
        while True:
            self._more.clear()
            left = (self._due[0][0] - self._now()).total_seconds() if self._due else None
            if left is not None and left <= 0:
                await self._delete(heapq.heappop(self._due))
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._more.wait()

    async def _delete(self, entry: tuple[datetime, Key, str, str]) -> None:
        _, key, uid, version = entry
        try:
            await self._client.delete(VIEW, key, uid=uid, version=version)
        except (NotFound, Conflict):  # gone; or changed since, which told us its new time
            return
        except KubeError as error:
            log.warn("a job whose time is up cannot be deleted", key=str(key), error=str(error))
            heapq.heappush(self._due, (self._now() + timedelta(seconds=AGAIN_AFTER), key, uid, version))
