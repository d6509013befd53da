"""ScoringService: takes requests to score, runs them as jobs, and remembers results. Knows neither HTTP nor gRPC."""

import asyncio
import os
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import NamedTuple
from uuid import uuid4

import msgspec

from vmafx.clock import loop_time, utc_now
from vmafx.http.errors import StatusError
from vmafx.http.uploads import UploadedFile
from vmafx.logs import log
from vmafx.scoring.errors import ScoringError
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.result import Report
from vmafx.scoring.score import Scorer, run_both
from vmafx.serving.callers import ServedCaller
from vmafx.serving.clips import PARTS, Identity, identify, is_local, open_clip
from vmafx.serving.job import JobError, JobRecord, ServedJob, UploadedClip
from vmafx.serving.jobs import JobRegistry
from vmafx.serving.metrics import ServingMetrics
from vmafx.serving.models import ServedModels
from vmafx.serving.queue import FairQueue
from vmafx.serving.request import ScoreRequest
from vmafx.serving.results import ResultStore
from vmafx.text import one_line

MAX_KNOWN = 16_384  # pairs of clips whose result is known without reading them
PICTURES = 12  # worst frames of which pictures are taken
TYPICAL_SECONDS = 10.0  # of a job, before the first has been scored
MAX_NAME = 200  # characters of the name of an uploaded clip


class Limits(NamedTuple):
    """How many jobs run at once and with how many threads, how many wait, and the seconds that each may take in all."""

    parallel: int
    threads: int
    queue: int
    deadline: float


class Parts(NamedTuple):
    """What the service is made of."""

    scorer: Scorer
    policy: MediaPolicy
    models: ServedModels
    jobs: JobRegistry
    results: ResultStore
    metrics: ServingMetrics


class ScoringService:
    """Every request is a job, which waits for its turn. `run` scores them; the other methods are for requests."""

    def __init__(self, parts: Parts, limits: Limits) -> None:
        self._parts, self._limits = parts, limits
        self.jobs, self.results, self.models = parts.jobs, parts.results, parts.models
        self._queue: FairQueue[ServedJob] = FairQueue(limits.queue)
        self._running: dict[str, asyncio.Task[None]] = {}
        self._known: OrderedDict[object, str] = OrderedDict()  # key of a result, by the clips and the options
        self._seconds = TYPICAL_SECONDS  # that a job takes, on average
        self._slots = asyncio.Semaphore(limits.parallel)
        self.draining, self._closing = False, asyncio.Event()
        parts.metrics.observe(lambda: len(self._queue), lambda: len(self._running))

    async def known_answer(self, spec: ScoreRequest, files: Mapping[str, UploadedFile]) -> bytes | None:
        """The answer to a request whose clips were scored before with the same options, if it is in memory."""
        digests = {part: file.sha256 for part, file in files.items()}
        identities = await identify(spec, digests, self._parts.policy)
        names = {part: _upload_name(file, part) for part, file in files.items()}
        key = self._known.get((identities, _question(spec, names))) if identities is not None else None
        answer = self._parts.results.known_answer(key) if key is not None else None
        if answer is not None:
            self._parts.metrics.cached.inc()
        return answer

    def submit(self, spec: ScoreRequest, caller: ServedCaller, files: Mapping[str, UploadedFile]) -> ServedJob:
        """Put a request into the queue. Raises StatusError if it is invalid, or there is no room."""
        if self.draining:
            raise StatusError("UNAVAILABLE", "the server is stopping; try again, and another one may answer")
        self._queue.check_room(caller.share, self.seconds_until_start(len(self._queue)))
        try:
            model = self._parts.models.choose(spec.model)
            self._parts.scorer.check_backend(spec.score_options(model, self._limits.threads))
        except ScoringError as error:
            raise JobError.of(error).raised() from None
        uploads = {
            part: UploadedClip(_upload_name(file, part), file.sha256, file.size)
            for part, file in files.items()
        }
        record = JobRecord(
            id=uuid4().hex,
            caller=caller,
            spec=spec,
            model=model,
            model_name=spec.model or self._parts.models.default_name,
            created=utc_now(),
            uploads=uploads,
        )
        job = ServedJob(record, {part: os.dup(file.fd) for part, file in files.items()})
        self._parts.jobs.add(job)
        self._queue.put(caller.share, job)
        return job

    async def keep(self, job: ServedJob) -> None:
        """Promise the job: from now on it survives a restart. Raises StatusError if it cannot be written."""
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
        if self._queue.remove(job.record.caller.share, job):
            job.end("cancelled")
            self._running[job.id] = task = asyncio.create_task(self._finish(job))
            task.add_done_callback(lambda _: self._running.pop(job.id, None))
        elif not job.record.is_finished and (task_ := self._running.get(job.id)) is not None:
            task_.cancel()

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[int]:
        """A place among those that score at the same time, for work that is no job; yields the threads to use."""
        async with self._slots:
            yield self._limits.threads

    def recover(self) -> None:
        """Continue with the jobs of the process before: called once, before `run`."""
        unfinished = self._parts.jobs.recover()
        for job in unfinished:
            self._queue.put(job.record.caller.share, job)
        if unfinished:
            log.info("continuing with jobs from before the restart", jobs=len(unfinished))

    async def run(self) -> None:
        """Score jobs until cancelled; those that are then running continue after the next start."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._parts.jobs.clean_up())
            for _ in range(self._limits.parallel):
                group.create_task(self._work())

    async def wait(self, job: ServedJob, seconds: float) -> None:
        """Wait until the job has finished, at most so long, and not beyond the end of this process."""
        tasks = {asyncio.ensure_future(job.wait_until_finished()), asyncio.ensure_future(self._closing.wait())}
        try:
            await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    def close(self) -> None:
        """End all waits: this process stops now."""
        self._closing.set()

    async def drain(self, seconds: float) -> None:
        """Accept no more jobs, and wait until all have ended, at most so long."""
        self.draining = True
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                for job in self._parts.jobs.unfinished():
                    await job.wait_until_finished()
                if self._running:
                    await asyncio.wait(self._running.values())

    async def _work(self) -> None:
        while True:
            async with self._slots:
                job = await self._queue.get()
                self._running[job.id] = task = asyncio.create_task(self._run_job(job))
                try:
                    await asyncio.wait({task})
                finally:
                    if not task.done():
                        job.stopped = True
                        task.cancel()
                        await asyncio.wait({task})
                    self._running.pop(job.id, None)

    async def _run_job(self, job: ServedJob) -> None:
        job.start()
        limit = min(job.record.spec.deadlineSeconds or self._limits.deadline, self._limits.deadline)
        spent = (job.record.started or utc_now()) - job.record.created
        started = loop_time()
        try:
            async with asyncio.timeout(max(limit - spent.total_seconds(), 0)):
                await self._score(job)
            self._seconds += (loop_time() - started - self._seconds) / 8
        except ScoringError as error:
            job.end("failed", error=JobError.of(error))
        except TimeoutError:
            message = f"the job did not finish within {limit:g} s, its deadline"
            job.end("failed", error=JobError("DEADLINE_EXCEEDED", message, 504))
        except asyncio.CancelledError:
            if job.stopped and not job.record.is_finished:
                job.requeue()
            elif not job.record.is_finished:
                job.end("cancelled")
        except Exception as error:  # noqa: BLE001 - one job must not end the server
            log.error("job failed", job=job.id, trace_of=error)
            message = "internal error; the server's log has the details"
            job.end("failed", error=JobError("INTERNAL", message, 500))
        finally:
            await self._finish(job)

    async def _finish(self, job: ServedJob) -> None:
        record = job.record
        if record.is_finished:
            self._parts.metrics.ended(record)
            await self._parts.jobs.write_end(job)
        await self._parts.jobs.close_files(job)

    async def _score(self, job: ServedJob) -> None:
        """Score a job and end it; then take pictures, which no answer waits for."""
        scorer, results = self._parts.scorer, self._parts.results
        options = job.record.spec.score_options(job.record.model, self._limits.threads)
        async with AsyncExitStack() as stack:
            first, second = [
                await stack.enter_async_context(open_clip(job, part, scorer, job.report_progress)) for part in PARTS
            ]
            identities = _identities(job, first.opened.fd, second.opened.fd)
            probed = await run_both(scorer.probe(first, outputs=1), scorer.probe(second, outputs=1))
            report = await scorer.compare(*probed, options, job.report_progress)
            if identities is not None and identities == _identities(job, first.opened.fd, second.opened.fd):
                names = {part: upload.name for part, upload in job.record.uploads.items()}
                self._remember((identities, _question(job.record.spec, names)), report)
            results.remember(report.result)
            job.end("succeeded", result=report.result.key, score=report.result.score)
            try:
                if not await results.pictures(report.result.key):
                    pictures = await scorer.worst_frames(*probed, options, report, PICTURES)
                    await results.put_pictures(report.result.key, pictures)
            except ScoringError as error:
                log.warn("cannot take pictures of frames", job=job.id, error=one_line(str(error)))

    def _remember(self, question: object, report: Report) -> None:
        self._known[question] = report.result.key
        if len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)


def _upload_name(file: UploadedFile, part: str) -> str:
    return one_line(file.filename, MAX_NAME) or part


def _question(spec: ScoreRequest, names: Mapping[str, str]) -> object:
    """What of a request affects its answer, besides the content of the clips; their names are part of the answer."""
    return msgspec.json.encode((msgspec.structs.replace(spec, deadlineSeconds=None), names))


def _identities(job: ServedJob, *fds: int) -> tuple[Identity, ...] | None:
    """As `clips.identify` finds them; None if a clip was fetched."""
    found = []
    for part, fd in zip(PARTS, fds, strict=True):
        if (upload := job.record.uploads.get(part)) is not None:
            found.append(Identity(upload.sha256))
        elif is_local(job.record.spec, part):
            found.append(Identity.of_file(fd))
        else:
            return None
    return tuple(found)
