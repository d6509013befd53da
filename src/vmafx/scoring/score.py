"""Scorer: opens and probes two clips, plans the comparison, runs the engine and pools the result."""

import asyncio
import heapq
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from fractions import Fraction
from typing import Any, BinaryIO, TypeVar

import msgspec

from vmafx.process.child import exit_description
from vmafx.scoring import engine as engines
from vmafx.scoring.cache import ResultCache, cache_key
from vmafx.scoring.engine import Engine
from vmafx.scoring.errors import BadInput, EngineFailure, InputPart, NodeFault, ScoringError
from vmafx.scoring.ffmpeg import Comparison, FfmpegResult, ProbedClip, decode_alone, run_ffmpeg
from vmafx.scoring.ffmpeg_log import FormatChange
from vmafx.scoring.learned import predict_scores
from vmafx.scoring.libvmaf import LibvmafLog, is_complete, read_log
from vmafx.scoring.media.access import OpenedMedia, open_media, sha256
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.media.uri import SCHEMES, locate
from vmafx.scoring.models import can_load_model, open_model
from vmafx.scoring.pictures import FramePair, take_pictures
from vmafx.scoring.plan import check_counts, counted, damage_error, has_variable_rate, make_plan
from vmafx.scoring.pooling import pool, summary
from vmafx.scoring.probe import probe_clip
from vmafx.scoring.request import ClipLimits, ScoreOptions, Source, check_options
from vmafx.scoring.result import ClipFacts, Column, EngineFacts, Progress, Report, ScoreResult
from vmafx.tasks import in_thread

T = TypeVar("T")
U = TypeVar("U")
ProgressListener = Callable[[Progress], None]
MIN_FREE_SPACE = 64 << 20  # bytes; below this, the disk counts as full


def ignore_progress(_progress: Progress) -> None:
    pass


class OpenedClip(msgspec.Struct, frozen=True):
    """A clip that is open and not yet probed."""

    source: Source
    part: InputPart
    opened: OpenedMedia


class Scorer:
    """Scores clips with one engine and one policy. Its methods may run concurrently."""

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
            probed = await run_both(self.probe(first), self.probe(second))
            return await self.compare(*probed, options or ScoreOptions(), listener)

    async def stream(
        self, reference: Source, distorted: Source, options: ScoreOptions | None = None
    ) -> AsyncGenerator[Progress | Report, None]:
        """Like `score`, but yields progress and finally the report. Closing the generator stops ffmpeg."""
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

        async with open_media(source.uri, part, self._policy, on_fetched) as opened:
            yield OpenedClip(source, part, opened)

    async def probe(self, clip: OpenedClip) -> ProbedClip:
        """Probes and hashes a clip; several comparisons may share the result."""
        properties, digest = await run_both(
            probe_clip(clip.opened, clip.source, clip.part, self._limits), sha256(clip.opened)
        )
        return ProbedClip(clip.source, clip.opened, properties, digest)

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
        check_options(options)
        async with open_model(options.model, self._policy) as model:
            digests, sources = (reference.digest, distorted.digest), (reference.source, distorted.source)
            key = cache_key(digests, sources, model, options, self._engine)
            if self._cache and (cached := self._cache.get(key)):
                return _renamed(cached, reference, distorted, model.name)
            plan = make_plan(reference.clip, distorted.clip, options, self._limits)
            comparison = Comparison(reference, distorted, plan, options, model, self._limits)
            on_scored = _scoring_progress(plan.expected, listener)
            with tempfile.TemporaryFile() as file:
                outcome = await run_ffmpeg(self._engine, comparison, file, on_scored)
                await self._check_outcome(comparison, outcome, file)
                log = await in_thread(_read_log, comparison, outcome, file)
            values = log.values
            if model.learned is not None:
                values["vmaf_base"] = values["vmaf"]
                values["vmaf"] = await in_thread(predict_scores, model.learned, values, model.name)
            result = _build_result(comparison, outcome, values, EngineFacts(self._engine.version, log.version), key)
            report = Report(result, log.numbers, values)
            if self._cache:
                self._cache.put(report)
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
            take_pictures(self._engine, reference, plan.reference, numbers, self._limits),
            take_pictures(self._engine, distorted, plan.distorted, numbers, self._limits),
        )
        pictures = zip(numbers, left, right, strict=True)
        pairs = {number: FramePair(number, scores[number], one, other) for number, one, other in pictures}
        return [pairs[number] for number in scores]

    async def _check_outcome(self, comparison: Comparison, outcome: FfmpegResult, libvmaf_log: BinaryIO) -> None:
        """Raises the error that describes why ffmpeg failed or the score would be wrong."""
        options, log = comparison.options, outcome.log
        if outcome.exit_code:
            raise await self._diagnose(comparison, outcome)
        if log.changes or (log.errors and not options.damaged):
            await self._check_reference(comparison)
            if log.errors and not options.damaged:
                raise damage_error("distorted", counted(log.errors, "decoding error"))
            if change := next((change for change in log.changes_of(0) if not change.size_only), None):
                raise _format_change_error("distorted", change)
        check_counts(
            outcome.reference_frames,
            outcome.distorted_frames,
            options,
            variable_rate=has_variable_rate(comparison.reference.clip, comparison.distorted.clip),
            damaged=log.errors > 0,
        )
        folder = tempfile.gettempdir()
        if not is_complete(libvmaf_log) and shutil.disk_usage(folder).free < MIN_FREE_SPACE:
            raise NodeFault(f"the disk of {folder} is full: libvmaf could not write its log")

    async def _check_reference(self, comparison: Comparison) -> None:
        """Decodes the reference alone: in the log of two clips, a message may be about either, or forged by one."""
        log = await decode_alone(self._engine, comparison.reference, comparison.plan.reference, comparison.limits)
        if log.errors and not comparison.options.damaged:
            raise damage_error("reference", counted(log.errors, "decoding error"))
        if log.changes:
            raise _format_change_error("reference", log.changes[0])

    async def _diagnose(self, comparison: Comparison, outcome: FfmpegResult) -> ScoringError:
        """The reason for a non-zero exit code of ffmpeg."""
        if missing := engines.missing_parts(self._engine, await engines.inspect_build(self._engine)):
            return NodeFault(missing)
        model, failed = comparison.model, f"ffmpeg failed with {exit_description(outcome.exit_code)}"
        if model.fd is not None and not await can_load_model(self._engine, model.argument, [model.fd]):
            return BadInput(
                "model",
                f"libvmaf cannot score with the model {model.name}, not even two generated frames; check that the file"
                " is a VMAF model for this libvmaf",
            )
        if outcome.exit_code == -signal.SIGKILL:
            return NodeFault(f"{failed}: probably killed because this machine or its cgroup ran out of memory")
        if any("Cannot allocate memory" in line for line in outcome.log.lines):
            return NodeFault(f"{failed}: this machine does not have enough memory")
        return EngineFailure(f"{failed}: {outcome.log.last_line()}")


def _format_change_error(part: InputPart, change: FormatChange) -> BadInput:
    why = f"its pixel format, colour range or size changes within the clip, {change.description}"
    return BadInput(part, f"{why}; re-encode it to one format")


async def run_both(first: Coroutine[Any, Any, T], second: Coroutine[Any, Any, U]) -> tuple[T, U]:
    """Runs both concurrently. If one fails, cancels the other and raises its error."""
    try:
        async with asyncio.TaskGroup() as group:
            one, other = group.create_task(first), group.create_task(second)
    except* ScoringError as failures:
        raise failures.exceptions[0] from None
    return one.result(), other.result()


def _scoring_progress(expected: int | None, listener: ProgressListener) -> Callable[[int], None]:
    """A callback for `run_ffmpeg` that reports progress to the listener."""
    started = time.monotonic()

    def on_scored(done: int) -> None:
        fps = done / max(time.monotonic() - started, 1e-6)
        eta = None if expected is None else max(expected - done, 0) / fps
        listener(Progress("scoring", done, expected, fps, eta))

    return on_scored


def _read_log(comparison: Comparison, outcome: FfmpegResult, file: BinaryIO) -> LibvmafLog:
    common = min(outcome.reference_frames, outcome.distorted_frames)
    if outcome.scored_frames != common:
        raise EngineFailure(f"ffmpeg scored {outcome.scored_frames} of {common} frames")
    return read_log(file, outcome.scored_frames, comparison.options.subsample, comparison.options.features)


def _outcome_notes(comparison: Comparison, outcome: FfmpegResult) -> tuple[str, ...]:
    """Facts that are known only after scoring, and the model's way to score."""
    model, options = comparison.model, comparison.options
    reference_frames, distorted_frames = outcome.reference_frames, outcome.distorted_frames
    notes = []
    if model.learned is not None:
        base = model.learned.base
        notes.append(f"vmafx predicted the scores with a learned model, from libvmaf's features for {base}")
    if options.shortest and reference_frames != distorted_frames:
        lengths = f"the reference has {reference_frames:,}, the distorted clip {distorted_frames:,}"
        notes.append(f"only the first {outcome.scored_frames:,} frames were scored: {lengths}")
    if outcome.log.errors:
        notes.append(f"one of the clips is damaged: ffmpeg reported {counted(outcome.log.errors, 'decoding error')}")
    if changes := outcome.log.changes_of(0):
        notes.append(f"the distorted clip changes its frame size, {changes[0].description}")
    return tuple(notes)


def _build_result(
    comparison: Comparison, outcome: FfmpegResult, values: dict[str, Column], engine: EngineFacts, key: str
) -> ScoreResult:
    options, plan = comparison.options, comparison.plan
    return ScoreResult(
        score=pool(values["vmaf"], options.pooling),
        pooling=options.pooling,
        model=comparison.model.name,
        frames=len(values["vmaf"]),
        fps=round(outcome.scored_frames / outcome.seconds, 2),
        features={name: summary(column) for name, column in values.items()},
        reference=_clip_facts(comparison.reference, outcome.reference_frames, options),
        distorted=_clip_facts(comparison.distorted, outcome.distorted_frames, options),
        width=plan.width,
        height=plan.height,
        pixelFormat=plan.pixel_format,
        subsample=options.subsample,
        engine=engine,
        base=comparison.model.learned.base if comparison.model.learned is not None else "",
        notes=(*plan.notes, *_outcome_notes(comparison, outcome)),
        key=key,
    )


def _clip_facts(probed: ProbedClip, frames: int, options: ScoreOptions) -> ClipFacts:
    """`frames` were decoded; with `conform`, that is the number after the conversion, so the packets are reported."""
    clip = probed.clip
    return ClipFacts(
        uri=probed.opened.display_name,
        digest=f"sha256:{probed.digest}",
        container=clip.container,
        codec=clip.codec,
        width=clip.width,
        height=clip.height,
        pixelFormat=clip.pixel_format,
        frames=clip.packets if options.conform else frames,
        frameRate=round(float(Fraction(clip.frame_rate)), 3) if clip.frame_rate else None,
    )


def _renamed(cached: Report, reference: ProbedClip, distorted: ProbedClip, model: str) -> Report:
    """A cached report with the names of the clips and the model in this request."""
    old = cached.result
    result = msgspec.structs.replace(
        old,
        cached=True,
        model=model,
        reference=msgspec.structs.replace(old.reference, uri=reference.opened.display_name),
        distorted=msgspec.structs.replace(old.distorted, uri=distorted.opened.display_name),
    )
    return msgspec.structs.replace(cached, result=result)
