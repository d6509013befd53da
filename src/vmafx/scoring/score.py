"""The flow: open both clips, look at them, plan, run, pool. Progress on the way, one Report at the end."""

import asyncio
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from fractions import Fraction
from typing import Any, TypeVar

import msgspec

from vmafx.process.child import exit_description
from vmafx.scoring import engine as engines
from vmafx.scoring.cache import ResultCache, cache_key
from vmafx.scoring.engine import Engine
from vmafx.scoring.errors import BadInput, EngineFailure, InputPart, NodeFault, ScoringError
from vmafx.scoring.ffmpeg import Comparison, FfmpegResult, ProbedClip, look_through, run_ffmpeg
from vmafx.scoring.libvmaf import LibvmafLog, columns, decode_log
from vmafx.scoring.media.access import OpenedMedia, open_media, sha256
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.media.uri import SCHEMES, locate
from vmafx.scoring.models import can_load_model, open_model
from vmafx.scoring.pictures import FramePair, take_pictures
from vmafx.scoring.plan import check_counts, damaged, make_plan
from vmafx.scoring.pooling import pool, summary
from vmafx.scoring.probe import probe_clip
from vmafx.scoring.request import ClipLimits, ScoreOptions, Source, check_options
from vmafx.scoring.result import ClipFacts, EngineFacts, Progress, Report, ScoreResult

T = TypeVar("T")
U = TypeVar("U")
ProgressListener = Callable[[Progress], None]
SPACE_LEFT = 64 << 20  # below this, a disk is full


def ignore_progress(_progress: Progress) -> None:
    pass


class OpenedClip(msgspec.Struct, frozen=True):
    """A clip that is open, and not looked at yet."""

    source: Source
    part: InputPart
    opened: OpenedMedia


class Scorer:
    """Scores clips with one engine, under one policy. Any number at once."""

    def __init__(
        self,
        engine: Engine,
        policy: MediaPolicy | None = None,
        limits: ClipLimits | None = None,
        cache: ResultCache | None = None,
    ) -> None:
        self._engine, self._policy, self._limits = engine, policy or MediaPolicy(), limits or ClipLimits()
        self._cache = cache

    async def score(
        self,
        reference: Source,
        distorted: Source,
        options: ScoreOptions | None = None,
        listener: ProgressListener = ignore_progress,
    ) -> Report:
        async with (
            self.open(reference, "reference", listener) as first,
            self.open(distorted, "distorted", listener) as second,
        ):
            listener(Progress("reading"))
            ready = await run_both(self.look(first), self.look(second))
            return await self.compare(*ready, options or ScoreOptions(), listener)

    async def stream(
        self, reference: Source, distorted: Source, options: ScoreOptions | None = None
    ) -> AsyncGenerator[Progress | Report, None]:
        """As `score`, as a stream: progress, and at last the report. Leaving it early ends the work."""
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

    def is_local(self, source: Source, part: InputPart) -> bool:
        """Whether the clip is opened where it lies, and not fetched; BadInput for one that may not be opened."""
        place = locate(source.uri, part)
        self._policy.allow(place.scheme, part)
        return SCHEMES[place.scheme].in_place

    @asynccontextmanager
    async def open(
        self, source: Source, part: InputPart, listener: ProgressListener = ignore_progress
    ) -> AsyncIterator[OpenedClip]:
        """A clip at hand, fetched if it is elsewhere."""

        def fetched(done: int, total: int | None) -> None:
            listener(Progress("fetching", done, total))

        async with open_media(source.uri, part, self._policy, fetched) as opened:
            yield OpenedClip(source, part, opened)

    async def look(self, held: OpenedClip) -> ProbedClip:
        """What the clip is; several comparisons may share it."""
        clip, digest = await run_both(
            probe_clip(held.opened, held.source, held.part, self._limits), self._digest(held.opened)
        )
        return ProbedClip(held.source, held.opened, clip, digest)

    async def _digest(self, opened: OpenedMedia) -> str:
        return opened.digest or await sha256(opened)

    def check_pair(self, reference: ProbedClip, distorted: ProbedClip, options: ScoreOptions) -> None:
        """BadInput for clips that `compare` would refuse by what they are, before any frame is decoded."""
        make_plan(reference.clip, distorted.clip, options, self._limits)

    async def compare(
        self,
        reference: ProbedClip,
        distorted: ProbedClip,
        options: ScoreOptions,
        listener: ProgressListener = ignore_progress,
    ) -> Report:
        check_options(options)
        async with open_model(options.model, self._policy) as model:
            digests, sources = (reference.digest, distorted.digest), (reference.source, distorted.source)
            key = cache_key(digests, sources, model, options, self._engine)
            if self._cache and (known := self._cache.get(key)):
                return _as_asked(known, reference, distorted, model.name)
            planned = make_plan(reference.clip, distorted.clip, options, self._limits)
            comparison = Comparison(reference, distorted, planned, options, model, self._limits)
            outcome = await run_ffmpeg(self._engine, comparison, _progress(planned.expected, listener))
            await self._check(comparison, outcome)
            report = _report(comparison, outcome, decode_log(outcome.log), self._engine, key)
            if self._cache:
                self._cache.put(report)
            return report

    async def worst_frames(
        self, reference: ProbedClip, distorted: ProbedClip, options: ScoreOptions, report: Report, count: int
    ) -> list[FramePair]:
        """Both sides of the frames with the lowest scores, the lowest first."""
        scores = dict(zip(report.numbers, report.values["vmaf"], strict=True))
        worst = sorted(scores, key=lambda number: scores[number])[:count]
        if not worst:
            return []
        planned, numbers = make_plan(reference.clip, distorted.clip, options, self._limits), sorted(worst)
        left, right = await run_both(
            take_pictures(self._engine, reference, planned.reference, numbers, self._limits),
            take_pictures(self._engine, distorted, planned.distorted, numbers, self._limits),
        )
        shown = zip(numbers, left, right, strict=True)
        taken = {number: FramePair(number, scores[number], one, other) for number, one, other in shown}
        return [taken[number] for number in worst]

    async def _check(self, comparison: Comparison, outcome: FfmpegResult) -> None:
        """Whether it went well; if not, whose fault it was."""
        options, heard = comparison.options, outcome.heard
        if outcome.code:
            raise await self._failure(comparison, outcome)
        if heard.changes or (heard.damage and not options.damaged):
            await self._check_reference(comparison)
            if heard.damage and not options.damaged:
                raise damaged("distorted", heard.damage)
            if change := next((one for one in heard.changed(0) if not one.size_only), None):
                raise BadInput("distorted", f"its picture changes on the way, {change.what}; make it one format first")
        check_counts(outcome.reference, outcome.distorted, options)
        if not outcome.log.rstrip().endswith(b"}") and shutil.disk_usage(tempfile.gettempdir()).free < SPACE_LEFT:
            raise NodeFault("the disk is full; libvmaf could not write its log")

    async def _check_reference(self, comparison: Comparison) -> None:
        """By a look at it alone: what was heard of two clips may be meant for either, or be written in one of them."""
        alone = await look_through(self._engine, comparison.reference, comparison.plan.reference, comparison.limits)
        if alone.damage and not comparison.options.damaged:
            raise damaged("reference", alone.damage)
        if alone.changes:
            raise BadInput("reference", f"its picture changes on the way, {alone.changes[0].what}")

    async def _failure(self, comparison: Comparison, outcome: FfmpegResult) -> ScoringError:
        if lacking := engines.missing_parts(self._engine, await engines.inspect_build(self._engine)):
            return NodeFault(lacking)
        model, how = comparison.model, f"ffmpeg ended by {exit_description(outcome.code)}"
        if model.fd is not None and not await can_load_model(self._engine, model.argument, [model.fd]):
            return BadInput("model", f"libvmaf cannot use {model.name}: it fails on any clip")
        if outcome.code == -signal.SIGKILL or any("Cannot allocate memory" in word for word in outcome.heard.words):
            return NodeFault(f"{how}: this machine has too little memory for it")
        return EngineFailure(f"{how}: {outcome.heard.last()}")


async def run_both(first: Coroutine[Any, Any, T], second: Coroutine[Any, Any, U]) -> tuple[T, U]:
    """Both; if one fails, the other is ended, and the failure is told as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            one, other = group.create_task(first), group.create_task(second)
    except* ScoringError as failures:
        raise failures.exceptions[0] from None
    return one.result(), other.result()


def _progress(expected: int | None, listener: ProgressListener) -> Callable[[int], None]:
    started = time.monotonic()

    def scored(done: int) -> None:
        fps = done / max(time.monotonic() - started, 1e-6)
        eta = None if expected is None else max(expected - done, 0) / fps
        listener(Progress("scoring", done, expected, fps, eta))

    return scored


def _report(comparison: Comparison, outcome: FfmpegResult, log: LibvmafLog, engine: Engine, key: str) -> Report:
    options, planned = comparison.options, comparison.plan
    if outcome.scored != min(outcome.reference, outcome.distorted):
        raise EngineFailure(f"ffmpeg scored {outcome.scored} of {outcome.distorted} frames")
    numbers, values = columns(log, outcome.scored, options.subsample, options.features)
    notes = list(planned.notes)
    if options.shortest and outcome.reference != outcome.distorted:
        notes.append(f"the reference has {outcome.reference:,} frames, the distorted clip {outcome.distorted:,}")
    if outcome.heard.damage:
        notes.append(f"a clip is damaged: ffmpeg complained {outcome.heard.damage} times while decoding")
    if outcome.heard.changed(0):
        notes.append(f"the distorted clip changes its size on the way, {outcome.heard.changed(0)[0].what}")
    result = ScoreResult(
        score=pool(values["vmaf"], options.pooling),
        pooling=options.pooling,
        model=comparison.model.name,
        frames=len(numbers),
        fps=round(outcome.scored / outcome.seconds, 2),
        features={name: summary(column) for name, column in values.items()},
        reference=_facts(comparison.reference, outcome.reference, options),
        distorted=_facts(comparison.distorted, outcome.distorted, options),
        width=planned.width,
        height=planned.height,
        pixelFormat=planned.pixel_format,
        subsample=options.subsample,
        engine=EngineFacts(engine.version, log.version),
        notes=tuple(notes),
        key=key,
    )
    return Report(result, numbers, values)


def _facts(ready: ProbedClip, frames: int, options: ScoreOptions) -> ClipFacts:
    """Conformed, as many frames came out as the rate asks for: the clip itself has its own number."""
    clip = ready.clip
    return ClipFacts(
        uri=ready.opened.shown,
        digest=f"sha256:{ready.digest}",
        container=clip.container.partition(",")[0],
        codec=clip.codec,
        width=clip.width,
        height=clip.height,
        pixelFormat=clip.pixel_format,
        frames=clip.packets if options.conform else frames,
        frameRate=round(float(Fraction(clip.rate)), 3) if clip.rate else None,
    )


def _as_asked(known: Report, reference: ProbedClip, distorted: ProbedClip, model: str) -> Report:
    """A result of before, under the names of today."""
    old = known.result
    result = msgspec.structs.replace(
        old,
        cached=True,
        model=model,
        reference=msgspec.structs.replace(old.reference, uri=reference.opened.shown),
        distorted=msgspec.structs.replace(old.distorted, uri=distorted.opened.shown),
    )
    return msgspec.structs.replace(known, result=result)
