"""Jobs: takes jobs, does them in turn, and keeps them on disk, so that a restart continues unfinished ones."""

import asyncio
import secrets
from collections import OrderedDict

import msgspec

from vmafx.auth.callers import ServedCaller
from vmafx.auth.fair_queue import FairQueue
from vmafx.clock import utc_now
from vmafx.fleet.submit import SUFFIX_ALPHABET
from vmafx.logs import log
from vmafx.mcp.job import Job, JobFailure, Kind, McpJobRecord, Phase, WorkOutcome
from vmafx.mcp.metrics import McpMetrics
from vmafx.mcp.state import StateFolder
from vmafx.mcp.work import JobWork, Work, work_of
from vmafx.scoring.errors import ScoringError
from vmafx.tasks import in_thread

RETRY_SECONDS = 30.0  # of a caller whose share of the queue is used


class Jobs:
    """The jobs of this server, those of earlier processes included.

    At most `limit` wait, and none runs longer than `deadline`, in seconds.
    """

    def __init__(self, folder: StateFolder, work: JobWork, limit: int, deadline: float, metrics: McpMetrics) -> None:
        self._folder, self._work, self._deadline, self._metrics = folder, work, deadline, metrics
        self._jobs: OrderedDict[str, Job] = OrderedDict()  # the oldest first
        self._queue: FairQueue[Job] = FairQueue(limit)
        self._running: dict[str, asyncio.Task[WorkOutcome]] = {}
        self._cancelling: set[asyncio.Task[None]] = set()
        self.stopping = False
        metrics.observe(lambda: len(self._queue), lambda: len(self._running))

    async def recover(self) -> None:
        """Read the jobs of the processes before; those that have not ended wait for their turn again."""
        for record in await in_thread(self._folder.load):
            job = Job(record)
            job.told = True
            self._jobs[job.id] = job
            if not record.is_finished:
                job.replace(msgspec.structs.replace(record, phase="Pending", started=None))
                self._queue.put(record.share, job)
                log.info("continuing a job", job=job.id, kind=record.kind)

    async def submit(self, kind: Kind, work: Work, caller: ServedCaller) -> Job:
        """A new job, which is on disk. Raises StatusError if there is no room, OSError if it cannot be written."""
        self._queue.check_room(caller.share, RETRY_SECONDS)
        record = McpJobRecord(
            id=f"{kind}-{''.join(secrets.choice(SUFFIX_ALPHABET) for _ in range(16))}",
            kind=kind,
            owner=caller.owner,
            share=caller.share,
            arguments=msgspec.Raw(msgspec.json.encode(work)),
            created=utc_now(),
        )
        job = self._jobs[record.id] = Job(record)
        self._queue.put(caller.share, job)  # its place in the queue
        try:
            async with job.writing:  # its end is written after this
                await self._folder.write(record)
        except BaseException as error:
            if isinstance(error, OSError) or not self.stopping:
                self.cancel_soon(job)
            raise
        return job

    def find(self, job_id: str, caller: ServedCaller) -> Job | None:
        """A job of the caller."""
        job = self._jobs.get(job_id)
        return job if job is not None and job.record.owner == caller.owner else None

    def of(self, caller: ServedCaller) -> list[Job]:
        """The jobs of a caller, the newest first."""
        return [job for job in reversed(self._jobs.values()) if job.record.owner == caller.owner]

    async def cancel(self, job: Job) -> None:
        """End a job; one that has ended stays as it is. Its processes have ended when this returns."""
        await asyncio.shield(self.cancel_soon(job))

    async def _cancel(self, job: Job) -> None:
        running = self._running.get(job.id)
        self._queue.remove(job.record.share, job)
        await self._end(job, "Cancelled")
        if running is not None:
            running.cancel()
            await asyncio.wait({running})

    def stop(self) -> None:
        """From now on, a request that ends does not cancel its job: the server stops, and its jobs go on later."""
        self.stopping = True

    def cancel_soon(self, job: Job) -> "asyncio.Future[None]":
        """The same in a task of its own: a request that cancels a job may be cancelled itself."""
        task = asyncio.create_task(self._cancel(job))
        self._cancelling.add(task)
        task.add_done_callback(self._cancelling.discard)
        return task

    async def finish_cancelling(self) -> None:
        """Wait until jobs that were cancelled have ended: the next process must not continue them."""
        if self._cancelling:
            await asyncio.wait(self._cancelling)

    async def run(self, parallel: int) -> None:
        """Do jobs until cancelled. Those that run then are continued by the next process."""
        async with asyncio.TaskGroup() as group:
            for _ in range(parallel):
                group.create_task(self._do_all())

    async def _do_all(self) -> None:
        while True:
            await self._do(await self._queue.get())

    async def _do(self, job: Job) -> None:
        job.replace(msgspec.structs.replace(job.record, phase="Running", started=utc_now()))
        task = asyncio.create_task(self._outcome(job))
        self._running[job.id] = task
        try:
            _, late = await asyncio.wait({task}, timeout=self._deadline)
        finally:  # the server may stop
            task.cancel()
            await asyncio.wait({task})
            del self._running[job.id]
        if job.record.is_finished:
            return
        if task.cancelled():
            if late:
                message = f"the job did not finish within {self._deadline:g} s, the deadline of this server"
                await self._end(job, "Failed", failure=JobFailure(message))
            return
        error = task.exception()
        if error is None:
            await self._end(job, "Succeeded", outcome=task.result())
        elif isinstance(error, ScoringError):
            await self._end(job, "Failed", failure=JobFailure.of(error))
        else:
            log.error("job failed", job=job.id, trace_of=error)
            await self._end(job, "Failed", failure=JobFailure("internal error; the log of the server has the details"))

    async def _outcome(self, job: Job) -> WorkOutcome:
        return await self._work.do(work_of(job.record), job.report_progress)

    async def _end(
        self, job: Job, phase: Phase, outcome: WorkOutcome | None = None, failure: JobFailure | None = None
    ) -> None:
        """The end is first written to the disk: nobody sees an end that a restart undoes."""
        if job.record.is_finished:
            return
        async with job.writing:
            await self._write_end(job, phase, outcome, failure)

    async def _write_end(self, job: Job, phase: Phase, outcome: WorkOutcome | None, failure: JobFailure | None) -> None:
        if job.record.is_finished:  # it was cancelled meanwhile
            return
        record = msgspec.structs.replace(job.record, phase=phase, finished=utc_now(), outcome=outcome, failure=failure)
        try:
            await self._folder.write(record)
        except OSError as error:  # after a restart it is done again, mostly from what is kept
            log.error("cannot write the end of a job", job=job.id, error=error.strerror)
            if phase == "Cancelled":  # this one must not be done again
                await self._delete(record)
        job.replace(record)
        self._metrics.ended(record)
        await self._prune()

    async def _delete(self, record: McpJobRecord) -> None:
        try:
            await self._folder.delete(record)
        except OSError as error:
            log.error("cannot delete the record of a job", job=record.id, error=error.strerror)

    async def _prune(self) -> None:
        finished = [job.record for job in self._jobs.values() if job.record.is_finished]
        finished.sort(key=lambda record: record.finished or record.created)
        try:
            for job_id in await self._folder.prune(finished):
                self._jobs.pop(job_id, None)
        except OSError as error:
            log.error("cannot delete the records of old jobs", error=error.strerror)
