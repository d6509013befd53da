"""JobRegistry: the jobs of this server, those of earlier processes included, and who may see them."""

import asyncio
import os
from collections import OrderedDict
from collections.abc import AsyncGenerator
from datetime import timedelta

from vmafx.clock import utc_now
from vmafx.http.errors import StatusError
from vmafx.logs import log
from vmafx.serving.job import JobError, JobOutcome, ServedJob
from vmafx.serving.store import JobStore
from vmafx.tasks import in_thread

MAX_FINISHED = 10_000  # jobs that are remembered after their end
KEEP_FINISHED = timedelta(hours=24)
CLEAN_INTERVAL = 60.0  # seconds


class JobRegistry:
    """Keeps a job in memory, and on disk if it was promised to a client."""

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._jobs: OrderedDict[str, ServedJob] = OrderedDict()  # the oldest first
        self._watches: set[_Watch] = set()

    async def recover(self) -> list[ServedJob]:
        """Read the jobs of the processes before; returns those that have not finished, with their clips open."""
        unfinished = []
        for record in await in_thread(self._store.load):
            job = ServedJob(record)
            job.kept = True
            self.add(job)
            if record.is_finished:
                continue
            try:
                job.files = await in_thread(self._store.open_clips, record)
            except OSError as error:
                message = f"an uploaded clip is lost: {error.strerror}; upload it again"
                await self.end(job, JobOutcome("failed", error=JobError("INTERNAL", message, 500)))
                continue
            job.requeue()
            unfinished.append(job)
        return unfinished

    def add(self, job: ServedJob) -> None:
        self._jobs[job.id] = job
        job.on_change = self._changed
        self._changed(job)

    def get(self, job_id: str, owner: str) -> ServedJob:
        """A job of the caller. Raises StatusError if there is none."""
        job = self._jobs.get(job_id)
        if job is None or job.record.caller.owner != owner:
            raise StatusError("NOT_FOUND", "you have no such job, or it ended more than a day ago")
        return job

    def of(self, owner: str) -> list[ServedJob]:
        """The jobs of a caller, the newest first."""
        return [job for job in reversed(self._jobs.values()) if job.record.caller.owner == owner]

    def unfinished(self) -> list[ServedJob]:
        return [job for job in self._jobs.values() if not job.record.is_finished]

    async def watch(self, owner: str) -> AsyncGenerator[ServedJob]:
        """All jobs of a caller, the oldest first, and each again when it changes; quick changes are one."""
        watch = _Watch(owner, {job.id: job for job in reversed(self.of(owner))})
        self._watches.add(watch)
        try:
            while True:
                yield await watch.next()
        finally:
            self._watches.discard(watch)

    async def keep(self, job: ServedJob) -> None:
        """Write the job to the disk, so that it survives a restart. Raises OSError."""
        async with job.writing:
            if not job.kept and not job.record.is_finished:
                await self._store.keep(job)
                job.kept = True

    async def end(self, job: ServedJob, outcome: JobOutcome) -> bool:
        """End a job; False if it has ended already.

        The end is first written to the disk, if the job is there: nobody sees an end that a restart undoes.
        """
        async with job.writing:
            if job.record.is_finished:
                return False
            record = job.record.ended(outcome)
            if job.kept:
                try:
                    await self._store.write(record)
                except OSError as error:  # after a restart it is scored again, mostly from the cache
                    log.error("cannot write the end of a job", job=job.id, error=error.strerror)
            job.finish(record)
        if job.kept:
            try:
                await self._store.release_clips(record)
            except OSError as error:
                log.error("cannot delete the clips of a job", job=job.id, error=error.strerror)
        return True

    async def close_files(self, job: ServedJob) -> None:
        files, job.files = job.files, {}
        if files:
            await in_thread(_close, list(files.values()))  # freeing a large file takes time

    async def close(self) -> None:
        """Close the clips of jobs that have not finished; they are on disk."""
        for job in self._jobs.values():
            await self.close_files(job)

    async def clean_up(self) -> None:
        """Forget jobs that ended long ago, for ever."""
        while True:
            finished = [job for job in self._jobs.values() if job.record.is_finished]
            oldest = utc_now() - KEEP_FINISHED
            excess = max(len(finished) - MAX_FINISHED, 0)
            old = [
                job
                for number, job in enumerate(finished)
                if number < excess or (job.record.finished is not None and job.record.finished < oldest)
            ]
            for job in old:
                del self._jobs[job.id]
            try:
                await self._store.forget([job.id for job in old if job.kept])
            except OSError as error:  # the next start forgets them
                log.error("cannot delete the records of old jobs", error=error.strerror)
            await asyncio.sleep(CLEAN_INTERVAL)

    def _changed(self, job: ServedJob) -> None:
        for watch in self._watches:
            watch.add(job)


def _close(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)


class _Watch:
    """The jobs of a caller that have changed and were not sent yet."""

    def __init__(self, owner: str, jobs: dict[str, ServedJob]) -> None:
        self._owner, self._changed, self._added = owner, jobs, asyncio.Event()

    def add(self, job: ServedJob) -> None:
        if job.record.caller.owner == self._owner:
            self._changed[job.id] = job
            self._added.set()

    async def next(self) -> ServedJob:
        while not self._changed:
            self._added.clear()
            await self._added.wait()
        return self._changed.pop(next(iter(self._changed)))
