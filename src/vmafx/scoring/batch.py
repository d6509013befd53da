"""BatchScorer: several distorted clips against one reference, which is opened and probed once."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import NamedTuple

import msgspec

from vmafx.api.scoring import MAX_THREADS
from vmafx.cores import usable_cores
from vmafx.scoring.errors import ScoringError
from vmafx.scoring.probed import ProbedClip
from vmafx.scoring.request import ScoreOptions, Source, check_options
from vmafx.scoring.result import FramePair, Progress, Report
from vmafx.scoring.score import ProgressListener, Scorer

BatchListener = Callable[[int, Progress], None]  # with the number of the distorted clip
OnFailure = Callable[[int, ScoringError], None]
WORST_FRAMES = 6  # pictures in an HTML report, by default
MIN_TOGETHER = 4  # clips that are scored together, if there are so many
MAX_TOGETHER = 32  # the decoder of the reference has a pipe for each, and may open 64 files
MAX_OPEN_CLIPS = 256  # each takes a file descriptor, of which a process usually has 1,024


class ClipScored(msgspec.Struct, frozen=True):
    """`pictures_error` is set if pictures were requested and could not be made."""

    report: Report
    pictures: tuple[FramePair, ...] = ()
    pictures_error: Exception | None = None


class ClipFailed(msgspec.Struct, frozen=True):
    error: ScoringError


def divide_cores(cores: int, clips: int, parallel: int, threads: int | None) -> tuple[int, int]:
    """The number of clips to score together and the threads of each, where 0 and None are not set.

    Some are scored together even on few cores, since they share the decoding of the reference.
    """
    together = max(1, cores // threads) if threads else max(MIN_TOGETHER, cores)
    parallel = min(parallel or together, clips, MAX_TOGETHER)
    return parallel, threads or min(max(1, cores // parallel), MAX_THREADS)


class BatchScorer:
    """Scores `parallel` clips together, and takes pictures of the `worst` frames of each.

    Clips scored together share the cores, as `divide_cores` says, and the decoding of the reference.

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

        Raises ScoringError if the reference or the options are bad, or there is no engine for the backend.
        """
        check_options(self._options)
        self._scorer.check_backend(self._options)
        parallel, threads = divide_cores(usable_cores(), len(distorted), self._parallel, self._options.threads)
        options = msgspec.structs.replace(self._options, threads=threads)
        async with AsyncExitStack() as stack:
            opened = await stack.enter_async_context(
                self._scorer.open(reference, "reference", lambda progress: listener(0, progress))
            )
            clips = [
                _Clip(number, source, partial(listener, number), await stack.enter_async_context(AsyncExitStack()))
                for number, source in enumerate(distorted)
            ]
            try:
                async with asyncio.TaskGroup() as group:
                    probing = group.create_task(self._scorer.probe(opened, outputs=parallel))
                    batch = _Batch(self._scorer, options, probing, parallel, self._worst, on_failure)
                    kept = len(clips) <= parallel
                    early = {
                        clip.number: group.create_task(batch.prepare_early(clip, kept=kept))
                        for clip in clips
                        if batch.is_local(clip)
                    }
                    await batch.score_all(clips, early)
            except* ScoringError as failures:
                raise failures.exceptions[0] from None
        return [batch.outcomes[clip.number] for clip in clips]


class _Clip(NamedTuple):
    """A distorted clip of a batch; `stack` holds what it has open."""

    number: int
    source: Source
    listener: ProgressListener
    stack: AsyncExitStack


class _Batch:
    """One batch: clips are prepared, that is opened, probed and checked, and then scored in groups."""

    def __init__(
        self,
        scorer: Scorer,
        options: ScoreOptions,
        reference: "asyncio.Task[ProbedClip]",
        parallel: int,
        worst: int,
        on_failure: OnFailure,
    ) -> None:
        self.outcomes: dict[int, ClipScored | ClipFailed] = {}
        self._scorer, self._options, self._reference = scorer, options, reference
        self._parallel, self._worst, self._on_failure = parallel, worst, on_failure
        self._open = asyncio.Semaphore(max(MAX_OPEN_CLIPS, parallel))
        self._probe = asyncio.Semaphore(max(parallel, usable_cores()))

    def is_local(self, clip: _Clip) -> bool:
        try:
            return self._scorer.is_local(clip.source, "distorted")
        except ScoringError:
            return True  # is refused when it is opened

    async def prepare_early(self, clip: _Clip, *, kept: bool) -> ProbedClip | None:
        """For local clips. With `kept`, the clip is scored at once, and its decoder is kept for that."""
        await clip.stack.enter_async_context(self._open)
        return await self._prepare(clip, outputs=int(kept))

    async def score_all(self, clips: Sequence[_Clip], early: Mapping[int, "asyncio.Task[ProbedClip | None]"]) -> None:
        """Scores all clips in groups, in order; `early` are those that are prepared already."""
        waiting = deque(clips)
        while waiting:
            group: list[tuple[_Clip, ProbedClip]] = []
            while waiting and len(group) < self._parallel:
                turn = [waiting.popleft() for _ in range(min(self._parallel - len(group), len(waiting)))]
                prepared = await asyncio.gather(*(early.get(clip.number) or self._prepare(clip, 1) for clip in turn))
                group += [(clip, probed) for clip, probed in zip(turn, prepared, strict=True) if probed is not None]
            await self._score_group(group)

    async def _prepare(self, clip: _Clip, outputs: int) -> ProbedClip | None:
        """Opens, probes and checks a clip; None if it failed."""
        try:
            opened = await clip.stack.enter_async_context(self._scorer.open(clip.source, "distorted", clip.listener))
            async with self._probe:
                clip.listener(Progress("reading"))
                probed = await self._scorer.probe(opened, outputs)
            self._scorer.check_pair(await self._probed_reference(), probed, self._options)
            clip.listener(Progress("waiting"))
        except ScoringError as error:
            await self._fail(clip, error)
            return None
        return probed

    async def _score_group(self, group: Sequence[tuple[_Clip, ProbedClip]]) -> None:
        reference = await self._probed_reference()
        listeners = [clip.listener for clip, _ in group]
        reports = await self._scorer.compare_all(reference, [probed for _, probed in group], self._options, listeners)
        await asyncio.gather(
            *(
                self._finish(clip, reference, probed, report)
                for (clip, probed), report in zip(group, reports, strict=True)
            )
        )

    async def _finish(
        self, clip: _Clip, reference: ProbedClip, distorted: ProbedClip, report: Report | ScoringError
    ) -> None:
        if isinstance(report, ScoringError):
            await self._fail(clip, report)
        else:
            self.outcomes[clip.number] = await self._with_pictures(reference, distorted, report)
            await clip.stack.aclose()

    async def _with_pictures(self, reference: ProbedClip, distorted: ProbedClip, report: Report) -> ClipScored:
        """Without pictures the score is still valid: their error becomes a note."""
        try:
            pictures = await self._scorer.worst_frames(reference, distorted, self._options, report, self._worst)
        except (ScoringError, OSError) as error:
            result = msgspec.structs.replace(report.result, notes=(*report.result.notes, str(error)))
            return ClipScored(msgspec.structs.replace(report, result=result), pictures_error=error)
        return ClipScored(report, tuple(pictures))

    async def _fail(self, clip: _Clip, error: ScoringError) -> None:
        """Raises the error of a bad reference instead, which matters more and ends the batch."""
        await self._probed_reference()
        self._on_failure(clip.number, error)
        self.outcomes[clip.number] = ClipFailed(error)
        await clip.stack.aclose()

    async def _probed_reference(self) -> ProbedClip:
        await asyncio.wait([self._reference])
        return self._reference.result()
