"""ScoringService: takes requests to score, runs them as jobs, and remembers results. Knows neither HTTP nor gRPC."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import NamedTuple
from uuid import uuid4

import msgspec

from vmafx.auth.callers import ServedCaller
from vmafx.auth.fair_queue import FairQueue
from vmafx.clock import loop_time, utc_now
from vmafx.http.errors import StatusError
from vmafx.http.uploads import UploadedFile
from vmafx.logs import log
from vmafx.scoring.errors import BadInput, NodeFault, ScoringError
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.probed import ProbedClip
from vmafx.scoring.request import ScoreOptions
from vmafx.scoring.result import Progress, Report
from vmafx.scoring.score import Scorer, run_both
from vmafx.serving.answers import KnownAnswers
from vmafx.serving.clips import PARTS, clip_location, open_clip, opened_identities
from vmafx.serving.job import CANCELLED, JobError, JobOutcome, JobRecord, ServedJob, UploadedClip
from vmafx.serving.jobs import JobRegistry
from vmafx.serving.metrics import ServingMetrics
from vmafx.serving.models import ServedModels
from vmafx.serving.request import ScoreRequest
from vmafx.serving.results import ResultStore
from vmafx.tasks import run_unless
from vmafx.text import one_line

PICTURES = 12  # worst frames of which pictures are taken
PICTURE_SECONDS = 600.0  # for all of them
TYPICAL_SECONDS = 10.0  # of a job, before the first has been scored
MAX_NAME = 200  # characters of the name of an uploaded clip


class ServiceLimits(NamedTuple):
    """How many jobs run at once and with how many threads, how many wait, and the seconds that each may take in all."""

    parallel: int
    threads: int
    queue: int
    deadline: float


class ServiceParts(NamedTuple):
    """What the service is made of."""

    scorer: Scorer
    policy: MediaPolicy  # of the scorer
    models: ServedModels
    jobs: JobRegistry
    results: ResultStore
    metrics: ServingMetrics
    durable: bool  # whether jobs survive a restart


class ScoringService:
    """Every request is a job, which waits for its turn. `run` scores them; the other methods are for requests."""

    def __init__(self, parts: ServiceParts, limits: ServiceLimits) -> None:
        self._parts, self._limits = parts, limits
        self.jobs, self.results, self.models = parts.jobs, parts.results, parts.models
        self._answers = KnownAnswers(parts.policy, parts.models, parts.results)
        self._queue: FairQueue[ServedJob | _Turn] = FairQueue(limits.queue)
        self._running: dict[str, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._seconds = TYPICAL_SECONDS  # that a job takes, on average
        self._is_scoring = False
        self.draining, self._closing = False, asyncio.Event()
        parts.metrics.observe(lambda: len(self._queue), lambda: len(self._running))

    def repeated_answer(self, body: bytes) -> bytes | None:
        """The answer to a request with the same JSON body as one that was answered in the last seconds."""
        answer = self._answers.repeat(body)
        if answer is not None:
            self._parts.metrics.cached.inc()
        return answer

    async def known_answer(
        self, spec: ScoreRequest, files: Mapping[str, UploadedFile], body: bytes = b""
    ) -> bytes | None:
        """The answer to a request whose clips were scored before with the same options, if it is in memory.

        `body` is that of a JSON request, so that the same request is answered faster soon after.
        """
        digests = {part: file.sha256 for part, file in files.items()}
        names = {part: _upload_name(file, part) for part, file in files.items()}
        answer = await self._answers.find(spec, digests, names, body)
        if answer is not None:
            self._parts.metrics.cached.inc()
        return answer

    def check_room(self, caller: ServedCaller) -> None:
        """Raise StatusError if a request of the caller cannot be queued now."""
        refused = self._parts.metrics.refused
        if self.draining:
            refused["UNAVAILABLE"].inc()
            raise StatusError("UNAVAILABLE", "the server is stopping; try again, and another one may answer")
        try:
            self._queue.check_room(caller.share, self.seconds_until_start(len(self._queue)))
        except StatusError as error:
            refused[error.code].inc()
            raise

    def submit(self, spec: ScoreRequest, caller: ServedCaller, files: Mapping[str, UploadedFile]) -> ServedJob:
        """Put a request into the queue. Raises StatusError if it is invalid, or there is no room."""
        self._check(spec, files)
        self.check_room(caller)
        record = JobRecord(
            id=uuid4().hex,
            caller=caller,
            spec=spec,
            model=spec.model or self._parts.models.default_name,
            created=utc_now(),
            uploads={
                part: UploadedClip(_upload_name(file, part), file.sha256, file.size) for part, file in files.items()
            },
        )
        job = ServedJob(record)
        for part, file in files.items():
            try:
                job.files[part] = os.dup(file.fd)
            except OSError as error:
                for fd in job.files.values():
                    os.close(fd)
                raise StatusError("UNAVAILABLE", f"the server cannot open more files: {error.strerror}") from error
        self._parts.jobs.add(job)
        self._enqueue(job)
        return job

    async def keep(self, job: ServedJob) -> None:
        """Promise the job: from now on it survives a restart. Raises StatusError if it cannot be written."""
        if self._closing.is_set() and not self._parts.durable:
            raise StatusError("UNAVAILABLE", "the server is stopping, and has no folder to keep jobs in")
        try:
            await self._parts.jobs.keep(job)
        except OSError as error:
            self.cancel(job)
            message = f"the server cannot store the job: {error.strerror}"
            raise StatusError("RESOURCE_EXHAUSTED", message, status=507) from error

    def position(self, job: ServedJob) -> int | None:
        """How many jobs come before this one; None if it does not wait."""
        return self._queue.position(job.record.caller.share, job)

    def seconds_until_start(self, position: int) -> float:
        """An estimate for the job at this position of the queue."""
        return self._seconds * (position + 1) / self._limits.parallel

    def cancel(self, job: ServedJob) -> None:
        """End a job that has not finished."""
        self._stop(job, CANCELLED)

    @asynccontextmanager
    async def slot(self, caller: ServedCaller) -> AsyncIterator[int]:
        """A turn among the jobs, for work that is none; yields the threads to use. StatusError if there is no room."""
        self.check_room(caller)
        turn = _Turn()
        self._queue.put(caller.share, turn)
        try:
            await turn.came.wait()
            yield self._limits.threads
        finally:
            if not self._queue.remove(caller.share, turn):
                turn.ended.set()

    async def recover(self) -> None:
        """Continue with the jobs of the process before: called once, before `run`."""
        unfinished = await self._parts.jobs.recover()
        for job in unfinished:
            self._enqueue(job)
        if unfinished:
            log.info("continuing with jobs from before the restart", jobs=len(unfinished))

    async def run(self) -> None:
        """Score jobs until cancelled; those that are then running continue after the next start."""
        self._is_scoring = True
        async with asyncio.TaskGroup() as group:
            group.create_task(self._parts.jobs.clean_up())
            for _ in range(self._limits.parallel):
                group.create_task(self._work())

    async def wait(self, job: ServedJob, seconds: float) -> None:
        """Wait until the job has finished, at most so long, and not beyond the end of this process."""
        if seconds > 0 and not job.record.is_finished:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await run_unless(self._closing, job.wait_until_finished())

    async def wait_until_finished(self, job: ServedJob) -> None:
        """Wait until the job has finished, but not beyond the end of this process."""
        await run_unless(self._closing, job.wait_until_finished())

    async def answer(self, job: ServedJob) -> bytes:
        """The result of a job as JSON. Raises StatusError if it has none."""
        record = job.record
        if record.error is not None:
            raise record.error.raised()
        if record.state == "cancelled":
            raise StatusError("ABORTED", "the job was cancelled")
        if not record.is_finished:
            raise StatusError("UNAVAILABLE", "the server is stopping; try again, and another one may answer")
        return await self.results.answer(record.result, record)

    async def drain(self, seconds: float) -> None:
        """Accept no more jobs, and wait until all have ended, at most so long."""
        self.draining = True
        if not self._is_scoring:
            return  # the model is not loaded: nothing would end
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                for job in self._parts.jobs.unfinished():
                    await job.wait_until_finished()
                if busy := {*self._running.values(), *self._ending}:
                    await asyncio.wait(busy)

    async def close(self) -> None:
        """This process stops now: keep all jobs that have not finished, and end the waits for them."""
        if self._parts.durable:
            await asyncio.gather(*map(self._keep_at_end, self._parts.jobs.unfinished()))
        self._closing.set()

    async def _keep_at_end(self, job: ServedJob) -> None:
        try:
            await self._parts.jobs.keep(job)
        except OSError as error:  # whoever waits for it gets an error, too
            log.error("cannot store a job", job=job.id, error=error.strerror)

    def _check(self, spec: ScoreRequest, files: Mapping[str, UploadedFile]) -> None:
        """Raise StatusError for what is wrong with a request before its clips are opened."""
        try:
            options = spec.score_options(self._parts.models.choose(spec.model), self._limits.threads)
            try:
                self._parts.scorer.check_backend(options)
            except NodeFault as error:  # it is the same at every attempt
                raise BadInput("options", str(error)) from None
            for part in PARTS:
                if part not in files:
                    clip_location(spec, part, self._parts.policy)
        except ScoringError as error:
            raise JobError.of(error).raised() from None

    def _enqueue(self, job: ServedJob) -> None:
        limit = min(job.record.spec.deadlineSeconds or self._limits.deadline, self._limits.deadline)
        left = limit - (utc_now() - job.record.created).total_seconds()
        error = JobError("DEADLINE_EXCEEDED", f"the job did not finish within {limit:g} s, its deadline", 504)
        loop = asyncio.get_running_loop()
        job.deadline = loop.call_later(max(left, 0), self._stop, job, JobOutcome("failed", error=error))
        self._queue.put(job.record.caller.share, job)

    def _stop(self, job: ServedJob, outcome: JobOutcome) -> None:
        if job.record.is_finished or job.verdict is not None:
            return
        job.verdict = outcome
        self._queue.remove(job.record.caller.share, job)
        if (task := self._running.get(job.id)) is not None:
            task.cancel()
        else:
            self._end(job, outcome)

    def _end(self, job: ServedJob, outcome: JobOutcome) -> asyncio.Task[None]:
        """In a task of its own, since whoever waits for it may be cancelled."""

        async def end() -> None:
            if await self._parts.jobs.end(job, outcome):
                self._parts.metrics.ended(job.record)
            if job.id not in self._running:
                await self._parts.jobs.close_files(job)

        task = asyncio.create_task(end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task

    async def _work(self) -> None:
        while True:
            match await self._queue.get():
                case ServedJob() as job:
                    await self._run(job)
                case turn:
                    turn.came.set()
                    await turn.ended.wait()

    async def _run(self, job: ServedJob) -> None:
        """Score a job and end it. If this is cancelled, the process stops, and the next one continues with the job."""
        job.start()
        started = loop_time()
        task = self._running[job.id] = asyncio.create_task(self._score(job))
        try:
            await asyncio.wait({task})
            if not job.record.is_finished:
                await asyncio.shield(self._end(job, _outcome(job, task)))
            elif not task.cancelled() and (error := task.exception()) is not None:
                log.error("cannot take pictures of frames", job=job.id, trace_of=error)
            self._seconds += (loop_time() - started - self._seconds) / 8
        finally:
            task.cancel()
            await asyncio.wait({task})
            del self._running[job.id]
            if job.record.is_finished:
                await self._parts.jobs.close_files(job)
            else:
                job.requeue()

    async def _score(self, job: ServedJob) -> None:
        """Score a job and end it; then take pictures, which no answer waits for."""
        scorer, results, record = self._parts.scorer, self._parts.results, job.record
        options = record.spec.score_options(self._parts.models.choose(record.model), self._limits.threads)
        async with AsyncExitStack() as stack:
            first, second = [
                await stack.enter_async_context(open_clip(job, part, scorer, job.report_progress)) for part in PARTS
            ]
            fds = first.opened.fd, second.opened.fd
            identities = opened_identities(job, self._parts.policy, *fds)
            job.report_progress(Progress("reading"))
            probed = await run_both(scorer.probe(first, outputs=1), scorer.probe(second, outputs=1))
            report = await scorer.compare(*probed, options, job.report_progress)
            results.remember(report.result)
            if identities is not None and identities == opened_identities(job, self._parts.policy, *fds):
                names = {part: upload.name for part, upload in record.uploads.items()}
                # The default model may be another one than when the request was made: before a restart.
                spec = msgspec.structs.replace(record.spec, model=record.model)
                answer = results.encode(report.result, record, cached=True)
                self._answers.remember(identities, spec, names, report.result.key, answer)
            outcome = JobOutcome("succeeded", report.result.key, report.result.score)
            with results.taking_pictures(report.result.key):  # before a client knows the result
                await asyncio.shield(self._end(job, outcome))
                await self._take_pictures(job, probed, options, report)

    async def _take_pictures(
        self, job: ServedJob, probed: tuple[ProbedClip, ProbedClip], options: ScoreOptions, report: Report
    ) -> None:
        key, results = report.result.key, self._parts.results
        try:
            async with asyncio.timeout(PICTURE_SECONDS):
                if not await results.pictures(key):
                    pictures = await self._parts.scorer.worst_frames(*probed, options, report, PICTURES)
                    await results.put_pictures(key, pictures)
        except (ScoringError, TimeoutError) as error:
            log.warn("cannot take pictures of frames", job=job.id, error=one_line(str(error)))


class _Turn:
    """Waits in the queue for work that is no job. Whoever works on the queue waits until it has ended."""

    def __init__(self) -> None:
        self.came, self.ended = asyncio.Event(), asyncio.Event()


def _outcome(job: ServedJob, task: asyncio.Task[None]) -> JobOutcome:
    """How a job ends whose task has ended without a score."""
    if job.verdict is not None:
        return job.verdict
    error = None if task.cancelled() else task.exception()
    if isinstance(error, ScoringError):
        return JobOutcome("failed", error=JobError.of(error))
    log.error("job failed", job=job.id, trace_of=error or asyncio.CancelledError())
    message = "internal error; the server's log has the details"
    return JobOutcome("failed", error=JobError("INTERNAL", message, 500))


def _upload_name(file: UploadedFile, part: str) -> str:
    return one_line(file.filename, MAX_NAME) or part
