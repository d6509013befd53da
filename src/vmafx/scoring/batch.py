"""Several distorted clips against one reference, which is fetched and looked at once."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from vmafx.scoring.errors import EngineFailure, ScoringError
from vmafx.scoring.frames import Picture
from vmafx.scoring.request import Options, Source, check
from vmafx.scoring.result import Progress, Report
from vmafx.scoring.run import Ready
from vmafx.scoring.score import Scorer

Listener = Callable[[int, Progress], None]  # with the number of the distorted clip


class Scored(msgspec.Struct, frozen=True):
    report: Report
    pictures: tuple[Picture, ...] = ()


class Failed(msgspec.Struct, frozen=True):
    error: ScoringError


class Batch:
    """`parallel` clips at once, sharing the cores; pictures are taken of the `worst` frames of each."""

    def __init__(self, scorer: Scorer, options: Options, *, parallel: int = 0, worst: int = 0) -> None:
        self._scorer, self._options, self._parallel, self._worst = scorer, options, parallel, worst

    async def score(self, reference: Source, distorted: Sequence[Source], listener: Listener) -> list[Scored | Failed]:
        """An outcome for each, in their order. What is wrong with the reference or the options concerns all: raised."""
        check(self._options)
        cores = self._options.cores()
        parallel = min(self._parallel or cores, len(distorted))
        threads = self._options.threads or max(1, cores // parallel)
        options, slots = msgspec.structs.replace(self._options, threads=threads), asyncio.Semaphore(parallel)
        outcomes: list[asyncio.Task[Scored | Failed]] = []
        async with self._scorer.open(reference, "reference", lambda progress: listener(0, progress)) as held:
            try:
                async with asyncio.TaskGroup() as group:
                    first = group.create_task(self._scorer.look(held))
                    for number, source in enumerate(distorted):
                        work = self._one(first, source, options, slots, _numbered(listener, number))
                        outcomes.append(group.create_task(work))
            except* ScoringError as failures:
                raise failures.exceptions[0] from None
        return [outcome.result() for outcome in outcomes]

    async def _one(
        self,
        reference: "asyncio.Task[Ready]",
        source: Source,
        options: Options,
        slots: asyncio.Semaphore,
        hear: Callable[[Progress], None],
    ) -> Scored | Failed:
        async with slots:
            try:
                async with self._scorer.open(source, "distorted", hear) as held:
                    hear(Progress("reading"))
                    second = await self._scorer.look(held)
                    await asyncio.wait([reference])
                    first = reference.result()
                    report = await self._scorer.compare(first, second, options, hear)
                    return await self._with_pictures(first, second, options, report)
            except ScoringError as error:
                return Failed(error)

    async def _with_pictures(self, reference: Ready, distorted: Ready, options: Options, report: Report) -> Scored:
        """A score without pictures is better than none; why there are none is noted."""
        try:
            taken = await self._scorer.worst_frames(reference, distorted, options, report, self._worst)
        except EngineFailure as error:
            result = msgspec.structs.replace(report.result, notes=(*report.result.notes, str(error)))
            return Scored(msgspec.structs.replace(report, result=result))
        return Scored(report, tuple(taken))


def _numbered(listener: Listener, number: int) -> Callable[[Progress], None]:
    return lambda progress: listener(number, progress)
