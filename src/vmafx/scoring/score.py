"""Scorer: opens and probes clips, plans the comparison, has them decoded and scored, and pools the result."""

import asyncio
import heapq
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from contextlib import ExitStack, asynccontextmanager
from io import FileIO
from typing import Any, NamedTuple, TypeVar

from vmafx.scoring.cache import ResultCache, cache_key
from vmafx.scoring.comparison import Comparison, Scored, check_scored, make_report, measurement_for, renamed
from vmafx.scoring.decoder.clip_decoder import ClipDecoder, Decoding
from vmafx.scoring.engines.engine import Group, Run
from vmafx.scoring.engines.find import Engines
from vmafx.scoring.errors import BadInput, InputPart, ScoringError
from vmafx.scoring.media.access import OpenedMedia, open_media, sha256
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.media.uri import SCHEMES, locate
from vmafx.scoring.models import open_model
from vmafx.scoring.plan import make_plan
from vmafx.scoring.probed import OpenedClip, ProbedClip
from vmafx.scoring.request import ClipLimits, ScoreOptions, Source, check_options
from vmafx.scoring.result import FramePair, Progress, Report
from vmafx.scoring.stall import StallWatch
from vmafx.tasks import in_thread

T = TypeVar("T")
U = TypeVar("U")
ProgressListener = Callable[[Progress], None]


def ignore_progress(_progress: Progress) -> None:
    pass


class Scorer:
    """Scores clips with the engines of this machine and one policy. Its methods may run concurrently."""

    def __init__(
        self,
        engines: Engines | None = None,
        policy: MediaPolicy | None = None,
        limits: ClipLimits | None = None,
        cache: ResultCache | None = None,
    ) -> None:
        self._engines, self._policy = engines or Engines(), policy or MediaPolicy()
        self._limits, self._cache = limits or ClipLimits(), cache

    async def score(
        self,
        reference: Source,
        distorted: Source,
        options: ScoreOptions | None = None,
        listener: ProgressListener = ignore_progress,
    ) -> Report:
        options = options or ScoreOptions()
        self.check_backend(options)
        async with (
            self.open(reference, "reference", listener) as first,
            self.open(distorted, "distorted", listener) as second,
        ):
            listener(Progress("reading"))
            clips = run_both(self.probe(first, outputs=1), self.probe(second, outputs=1))
            if options.features:  # which not every engine measures
                return await self.compare(*await clips, options, listener)
            _, probed = await run_both(self._engines.choose(options.backend), clips)
            return await self.compare(*probed, options, listener)

    async def stream(
        self, reference: Source, distorted: Source, options: ScoreOptions | None = None
    ) -> AsyncGenerator[Progress | Report, None]:
        """Like `score`, but yields progress and finally the report. Closing the generator stops the work."""
        updates: asyncio.Queue[Progress | None] = asyncio.Queue()
        task = asyncio.create_task(self.score(reference, distorted, options, updates.put_nowait))
        task.add_done_callback(lambda _: updates.put_nowait(None))
        try:
            while update := await updates.get():
                yield update
            yield await task
        finally:
            task.cancel()
            await asyncio.wait([task])

    def check_backend(self, options: ScoreOptions) -> None:
        """Raises NodeFault if there is no engine for the backend, before clips are opened."""
        self._engines.check(options.backend)

    async def check_options(self, options: ScoreOptions) -> None:
        """Raises ScoringError for a backend, a model or an option that `compare_all` would refuse."""
        check_options(options)
        async with open_model(options.model, self._policy) as model:
            await self._engines.choose(options.backend, measurement_for(options, model))

    def is_local(self, source: Source, part: InputPart) -> bool:
        """Whether the clip is read without a download. Raises BadInput if the policy forbids its scheme."""
        location = locate(source.uri, part)
        self._policy.check_scheme(location.scheme, part)
        return SCHEMES[location.scheme].in_place

    @asynccontextmanager
    async def open(
        self, source: Source, part: InputPart, listener: ProgressListener = ignore_progress
    ) -> AsyncIterator[OpenedClip]:
        """Opens a clip; a remote one is downloaded first."""

        def on_fetched(done: int, total: int | None) -> None:
            listener(Progress("fetching", done, total))

        async with (
            open_media(source.uri, part, self._policy, on_fetched) as opened,
            self.open_file(source, part, opened) as clip,
        ):
            yield clip

    @asynccontextmanager
    async def open_file(self, source: Source, part: InputPart, opened: OpenedMedia) -> AsyncIterator[OpenedClip]:
        """A clip whose file is open already; the caller closes it. Nothing is opened by the URI of `source`."""
        decoder = ClipDecoder(opened, source, part, self._limits)
        try:
            yield OpenedClip(source, part, opened, decoder)
        finally:
            await decoder.close()

    async def probe(self, clip: OpenedClip, outputs: int = 0) -> ProbedClip:
        """Probes and hashes a clip. With `outputs`, it will be scored next, in so many comparisons at once."""
        properties, digest = await run_both(clip.decoder.inspect(outputs), sha256(clip.opened))
        return ProbedClip(clip.source, clip.opened, clip.decoder, properties, digest)

    def check_pair(self, reference: ProbedClip, distorted: ProbedClip, options: ScoreOptions) -> None:
        """Raises BadInput for clips that `compare` would refuse before decoding."""
        make_plan(reference.clip, distorted.clip, options, self._limits)

    async def compare(
        self,
        reference: ProbedClip,
        distorted: ProbedClip,
        options: ScoreOptions,
        listener: ProgressListener = ignore_progress,
    ) -> Report:
        """Scores probed clips, or returns a cached result."""
        (outcome,) = await self.compare_all(reference, [distorted], options, [listener])
        if isinstance(outcome, ScoringError):
            raise outcome
        return outcome

    async def compare_all(
        self,
        reference: ProbedClip,
        distorted: Sequence[ProbedClip],
        options: ScoreOptions,
        listeners: Sequence[ProgressListener],
    ) -> list[Report | ScoringError]:
        """Scores several clips at once, so that the reference is decoded once. One outcome per clip, in order.

        Raises ScoringError if the backend, the model or an option is bad.
        """
        check_options(options)
        outcomes: dict[int, Report | ScoringError] = {}
        waiting: dict[int, Comparison] = {}
        async with open_model(options.model, self._policy) as model:
            measurement = measurement_for(options, model)
            engine = await self._engines.choose(options.backend, measurement)
            for number, clip in enumerate(distorted):
                digests, sources = (reference.digest, clip.digest), (reference.source, clip.source)
                tools = (clip.decoder.version, engine.backend, *engine.identity())
                key = cache_key(digests, sources, model, options, tools)
                if self._cache and (cached := await in_thread(self._cache.get, key)):
                    outcomes[number] = renamed(cached, reference, clip, model.name)
                    continue
                try:
                    plan = make_plan(reference.clip, clip.clip, options, self._limits)
                    waiting[number] = Comparison(reference, clip, plan, options, measurement, engine, key)
                except BadInput as error:
                    outcomes[number] = error
            while waiting:  # those that need the reference in the same format share its decoder
                conversion = next(iter(waiting.values())).plan.reference
                group = [number for number, one in waiting.items() if one.plan.reference == conversion]
                comparisons = [waiting.pop(number) for number in group]
                reports = await self._compare_group(comparisons, [listeners[number] for number in group])
                outcomes.update(zip(group, reports, strict=True))
        return [outcomes[number] for number in range(len(distorted))]

    async def _compare_group(
        self, group: list[Comparison], listeners: list[ProgressListener]
    ) -> list[Report | ScoringError]:
        """Scores comparisons whose reference is the same in all respects. If one fails, the others go on."""
        first = group[0]
        engine, threads = first.engine, first.options.thread_count() * len(group)
        async with (
            engine.group(Run(), first.measurement, first.plan.frames, len(group)) as scoring,
            first.reference.decoder.decode(
                first.plan.reference,
                scoring.references,
                readers=len(group) // scoring.references,
                luma_only=engine.luma_only,
                threads=threads,
            ) as reference,
            asyncio.TaskGroup() as tasks,
        ):
            with StallWatch() as watch:
                together = _Together(scoring, reference, watch)
                outcomes = [
                    tasks.create_task(_outcome(self._score_one(comparison, number, together, listener)))
                    for number, (comparison, listener) in enumerate(zip(group, listeners, strict=True))
                ]
                await asyncio.wait(outcomes)
        return [task.result() for task in outcomes]

    async def _score_one(
        self, comparison: Comparison, number: int, together: "_Together", listener: ProgressListener
    ) -> Report:
        """Raises ScoringError. An engine that fails may do so because a decoder has failed."""
        options, plan, decoder = comparison.options, comparison.plan, comparison.distorted.decoder
        luma_only, reference = comparison.engine.luma_only, together.reference
        report_progress = _scoring_progress(plan.expected, self._limits.frames, listener)
        with ExitStack() as reading:
            output = together.output(number)
            reading.callback(reference.stop_reading, output)
            reading.callback(together.group.leave, number)
            async with decoder.decode(plan.distorted, threads=options.thread_count(), luma_only=luma_only) as distorted:
                (frames,) = distorted.outputs
                try:
                    async with together.watch.watch() as note_progress:

                        def on_scored(done: int) -> None:
                            note_progress()
                            report_progress(done)

                        run = await together.group.score(number, output, frames, on_scored)
                except ScoringError:
                    await asyncio.gather(reference.check(), distorted.check())
                    raise
                reading.close()
                distorted.stop_reading(frames)
                scored = Scored(await reference.finished(), await distorted.finished(), run)
        check_scored(comparison, scored)
        report = await in_thread(make_report, comparison, scored)
        if self._cache:
            await in_thread(self._cache.put, report)
        return report

    async def worst_frames(
        self, reference: ProbedClip, distorted: ProbedClip, options: ScoreOptions, report: Report, count: int
    ) -> list[FramePair]:
        """Pictures of the frames with the lowest scores, from both clips; the lowest first."""
        lowest = heapq.nsmallest(count, zip(report.values["vmaf"], report.numbers, strict=True))
        if not lowest:
            return []
        scores = {number: score for score, number in lowest}
        plan, numbers = make_plan(reference.clip, distorted.clip, options, self._limits), sorted(scores)
        left, right = await run_both(
            reference.decoder.take_pictures(plan.reference, numbers, threads=options.thread_count()),
            distorted.decoder.take_pictures(plan.distorted, numbers, threads=options.thread_count()),
        )
        pictures = zip(numbers, left, right, strict=True)
        pairs = {number: FramePair(number, scores[number], one, other) for number, one, other in pictures}
        return [pairs[number] for number in scores]


class _Together(NamedTuple):
    """What the comparisons of a group share."""

    group: Group
    reference: Decoding
    watch: StallWatch

    def output(self, number: int) -> FileIO:
        """The frames of the reference for one of the comparisons."""
        return self.reference.outputs[number % self.group.references]


async def _outcome(scoring: Coroutine[Any, Any, Report]) -> Report | ScoringError:
    try:
        return await scoring
    except ScoringError as error:
        return error


async def run_both(first: Coroutine[Any, Any, T], second: Coroutine[Any, Any, U]) -> tuple[T, U]:
    """Runs both concurrently. If one fails, cancels the other and raises its error."""
    try:
        async with asyncio.TaskGroup() as group:
            one, other = group.create_task(first), group.create_task(second)
    except* ScoringError as failures:
        raise failures.exceptions[0] from None
    return one.result(), other.result()


def _scoring_progress(expected: int | None, most: int, listener: ProgressListener) -> Callable[[int], None]:
    """A callback for an engine that reports progress to the listener, and ends a score of too many frames."""
    started = time.monotonic()

    def on_scored(done: int) -> None:
        if done > most:  # decoders have the same limit, but a clip may have taken control of them
            raise BadInput("options", f"the clips have more than {most:,} frames, which is the limit")
        fps = done / max(time.monotonic() - started, 1e-6)
        eta = None if expected is None or not done else max(expected - done, 0) / fps
        listener(Progress("scoring", done, expected, fps, eta))

    return on_scored
