"""BatchScorer: several distorted clips against one reference, which is opened and probed once."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

import msgspec

from vmafx.api.scoring import MAX_THREADS
from vmafx.cores import usable_cores
from vmafx.scoring.errors import ScoringError
from vmafx.scoring.ffmpeg import ProbedClip
from vmafx.scoring.pictures import FramePair
from vmafx.scoring.request import ScoreOptions, Source, check_options
from vmafx.scoring.result import Progress, Report
from vmafx.scoring.score import ProgressListener, Scorer

BatchListener = Callable[[int, Progress], None]  # with the number of the distorted clip
OnFailure = Callable[[int, ScoringError], None]
WORST_FRAMES = 6  # pictures in an HTML report, by default
MAX_OPEN_CLIPS = 256  # each takes a file descriptor, of which a process usually has 1,024


class ClipScored(msgspec.Struct, frozen=True):
    """`pictures_error` is set if pictures were requested and could not be made."""

    report: Report
    pictures: tuple[FramePair, ...] = ()
    pictures_error: Exception | None = None


class ClipFailed(msgspec.Struct, frozen=True):
    error: ScoringError


def divide_cores(cores: int, clips: int, parallel: int, threads: int | None) -> tuple[int, int]:
    """The number of clips to score at once and the threads of each, where 0 and None are not set."""
    parallel = min(parallel or max(1, cores // (threads or 1)), clips)
    return parallel, threads or min(max(1, cores // parallel), MAX_THREADS)


class _Shared:
    """What the clips of a batch share: the reference, and semaphores for open, probed and scored clips."""

    def __init__(self, reference: "asyncio.Task[ProbedClip]", parallel: int) -> None:
        self._reference = reference
        self.open = asyncio.Semaphore(max(MAX_OPEN_CLIPS, parallel))
        self.probe = asyncio.Semaphore(parallel)
        self.score = asyncio.Semaphore(parallel)

    async def reference(self) -> ProbedClip:
        await asyncio.wait([self._reference])
        return self._reference.result()


class BatchScorer:
    """Scores `parallel` clips at a time, and takes pictures of the `worst` frames of each.

    Clips scored at once share the cores, as `divide_cores` says.

    Local clips are all probed first, so that bad ones fail early. A remote clip is downloaded when it is scored, to
    save disk space.
    """

    def __init__(self, scorer: Scorer, options: ScoreOptions, *, parallel: int = 0, worst: int = 0) -> None:
        self._scorer, self._options, self._parallel, self._worst = scorer, options, parallel, worst

    async def score(
        self,
        reference: Source,
        distorted: Sequence[Source],
        listener: BatchListener,
        on_failure: OnFailure = lambda _number, _error: None,
    ) -> list[ClipScored | ClipFailed]:
        """One outcome per clip, in order. Calls `on_failure` as soon as a clip fails.

        Raises ScoringError if the reference or the options are bad.
        """
        check_options(self._options)
        parallel, threads = divide_cores(usable_cores(), len(distorted), self._parallel, self._options.threads)
        options = msgspec.structs.replace(self._options, threads=threads)
        outcomes: list[asyncio.Task[ClipScored | ClipFailed]] = []
        async with self._scorer.open(reference, "reference", lambda progress: listener(0, progress)) as opened:
            try:
                async with asyncio.TaskGroup() as group:
                    shared = _Shared(group.create_task(self._scorer.probe(opened)), parallel)
                    for number, source in enumerate(distorted):
                        on_progress, on_error = partial(listener, number), partial(on_failure, number)
                        outcomes.append(group.create_task(self._run(source, options, shared, on_progress, on_error)))
            except* ScoringError as failures:
                raise failures.exceptions[0] from None
        return [outcome.result() for outcome in outcomes]

    async def _run(
        self,
        source: Source,
        options: ScoreOptions,
        shared: _Shared,
        listener: ProgressListener,
        on_failure: Callable[[ScoringError], None],
    ) -> ClipScored | ClipFailed:
        try:
            return await self._score_clip(source, options, shared, listener)
        except ScoringError as error:
            await shared.reference()  # raises the error of a bad reference, which matters more and ends the group
            on_failure(error)
            return ClipFailed(error)

    async def _score_clip(
        self, source: Source, options: ScoreOptions, shared: _Shared, listener: ProgressListener
    ) -> ClipScored:
        if self._scorer.is_local(source, "distorted"):
            async with shared.open, self._probed(source, shared, listener) as distorted:
                reference = await shared.reference()
                self._scorer.check_pair(reference, distorted, options)
                listener(Progress("waiting"))
                async with shared.score:
                    return await self._compare(reference, distorted, options, listener)
        async with shared.score, self._probed(source, shared, listener) as distorted:
            return await self._compare(await shared.reference(), distorted, options, listener)

    @asynccontextmanager
    async def _probed(self, source: Source, shared: _Shared, listener: ProgressListener) -> AsyncIterator[ProbedClip]:
        async with self._scorer.open(source, "distorted", listener) as opened:
            async with shared.probe:
                listener(Progress("reading"))
                probed = await self._scorer.probe(opened)
            yield probed

    async def _compare(
        self, reference: ProbedClip, distorted: ProbedClip, options: ScoreOptions, listener: ProgressListener
    ) -> ClipScored:
        """Without pictures the score is still valid: their error becomes a note."""
        report = await self._scorer.compare(reference, distorted, options, listener)
        try:
            pictures = await self._scorer.worst_frames(reference, distorted, options, report, self._worst)
        except (ScoringError, OSError) as error:
            result = msgspec.structs.replace(report.result, notes=(*report.result.notes, str(error)))
            return ClipScored(msgspec.structs.replace(report, result=result), pictures_error=error)
        return ClipScored(report, tuple(pictures))
