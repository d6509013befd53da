"""Several distorted clips against one reference, which is fetched and looked at once."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import msgspec

from vmafx.scoring.errors import ScoringError
from vmafx.scoring.ffmpeg import ProbedClip
from vmafx.scoring.pictures import FramePair
from vmafx.scoring.request import ScoreOptions, Source, check_options
from vmafx.scoring.result import Progress, Report
from vmafx.scoring.score import Scorer

T = TypeVar("T")
BatchListener = Callable[[int, Progress], None]  # with the number of the distorted clip
OnFailure = Callable[[int, ScoringError], None]
WORST_FRAMES = 6  # shown in an HTML report, if no other number is asked for
OPEN_MOST = 256  # clips that are open at once, each with a descriptor: a shell's usual limit is 1,024


class ClipScored(msgspec.Struct, frozen=True):
    """`pictures_error` is why there are no pictures, where some were wanted."""

    report: Report
    pictures: tuple[FramePair, ...] = ()
    pictures_error: Exception | None = None


class ClipFailed(msgspec.Struct, frozen=True):
    error: ScoringError


class _Shared:
    """What all clips of a batch share: the reference, and the turns they take."""

    def __init__(self, reference: "asyncio.Task[ProbedClip]", parallel: int) -> None:
        self._reference = reference
        self.open = asyncio.Semaphore(max(OPEN_MOST, parallel))
        self.look = asyncio.Semaphore(parallel)
        self.score = asyncio.Semaphore(parallel)

    async def reference(self) -> ProbedClip:
        await asyncio.wait([self._reference])
        return self._reference.result()


class BatchScorer:
    """`parallel` clips at once, sharing the cores; pictures are taken of the `worst` frames of each.

    Local clips are looked at before it is their turn to be scored, so that what is wrong with one shows at once.
    Remote ones are fetched in their turn: the disk has room for few.
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
        """An outcome for each, in their order; `on_failure` hears of a failed clip while others are still scored.

        What is wrong with the reference or the options concerns all: raised.
        """
        check_options(self._options)
        cores = self._options.cores()
        parallel = min(self._parallel or cores, len(distorted))
        threads = self._options.threads or max(1, cores // parallel)
        options = msgspec.structs.replace(self._options, threads=threads)
        outcomes: list[asyncio.Task[ClipScored | ClipFailed]] = []
        async with self._scorer.open(reference, "reference", lambda progress: listener(0, progress)) as held:
            try:
                async with asyncio.TaskGroup() as group:
                    shared = _Shared(group.create_task(self._scorer.look(held)), parallel)
                    for number, source in enumerate(distorted):
                        hear, failed = _numbered(listener, number), _numbered(on_failure, number)
                        outcomes.append(group.create_task(self._one(source, options, shared, hear, failed)))
            except* ScoringError as failures:
                raise failures.exceptions[0] from None
        return [outcome.result() for outcome in outcomes]

    async def _one(
        self,
        source: Source,
        options: ScoreOptions,
        shared: _Shared,
        hear: Callable[[Progress], None],
        on_failure: Callable[[ScoringError], None],
    ) -> ClipScored | ClipFailed:
        try:
            return await self._in_turn(source, options, shared, hear)
        except ScoringError as error:
            await shared.reference()  # if that fails, it is what there is to tell, and ends the group
            on_failure(error)
            return ClipFailed(error)

    async def _in_turn(
        self, source: Source, options: ScoreOptions, shared: _Shared, hear: Callable[[Progress], None]
    ) -> ClipScored:
        if self._scorer.is_local(source, "distorted"):
            async with shared.open, self._looked_at(source, shared, hear) as distorted:
                reference = await shared.reference()
                self._scorer.check_pair(reference, distorted, options)
                hear(Progress("waiting"))
                async with shared.score:
                    return await self._compare(reference, distorted, options, hear)
        async with shared.score, self._looked_at(source, shared, hear) as distorted:
            return await self._compare(await shared.reference(), distorted, options, hear)

    @asynccontextmanager
    async def _looked_at(
        self, source: Source, shared: _Shared, hear: Callable[[Progress], None]
    ) -> AsyncIterator[ProbedClip]:
        async with self._scorer.open(source, "distorted", hear) as held:
            async with shared.look:
                hear(Progress("reading"))
                ready = await self._scorer.look(held)
            yield ready

    async def _compare(
        self, reference: ProbedClip, distorted: ProbedClip, options: ScoreOptions, hear: Callable[[Progress], None]
    ) -> ClipScored:
        """A score without pictures is better than none; why there are none is noted."""
        report = await self._scorer.compare(reference, distorted, options, hear)
        try:
            taken = await self._scorer.worst_frames(reference, distorted, options, report, self._worst)
        except (ScoringError, OSError) as error:
            result = msgspec.structs.replace(report.result, notes=(*report.result.notes, str(error)))
            return ClipScored(msgspec.structs.replace(report, result=result), pictures_error=error)
        return ClipScored(report, tuple(taken))


def _numbered(listener: Callable[[int, T], None], number: int) -> Callable[[T], None]:
    return lambda told: listener(number, told)
