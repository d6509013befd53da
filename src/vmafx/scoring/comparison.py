"""One distorted clip against its reference: what is compared, what that yielded, and the report about it. Pure."""

from fractions import Fraction

import msgspec

from vmafx.scoring.decoder.messages import DecodedClip
from vmafx.scoring.engines.engine import Engine, MeasuredRun, Measurement
from vmafx.scoring.errors import BadInput, EngineFailure, InputPart
from vmafx.scoring.models import VmafModel, with_scores
from vmafx.scoring.plan import Plan, check_counts, counted, damage_error, has_variable_rate
from vmafx.scoring.pooling import pool, summary
from vmafx.scoring.probed import ProbedClip
from vmafx.scoring.request import ScoreOptions
from vmafx.scoring.result import ClipFacts, Column, Report, ScoreResult


class Comparison(msgspec.Struct, frozen=True):
    """One distorted clip to score against a reference."""

    reference: ProbedClip
    distorted: ProbedClip
    plan: Plan
    options: ScoreOptions
    measurement: Measurement
    engine: Engine
    key: str  # in the cache


class Scored(msgspec.Struct, frozen=True):
    """What the decoders and the engine yielded for a comparison."""

    reference: DecodedClip
    distorted: DecodedClip
    run: MeasuredRun

    @property
    def errors(self) -> int:
        return self.reference.errors + self.distorted.errors


def measurement_for(options: ScoreOptions, model: VmafModel) -> Measurement:
    """What an engine measures for these options."""
    return Measurement(
        model=model, features=options.features, subsample=options.subsample, threads=options.thread_count()
    )


def check_scored(comparison: Comparison, scored: Scored) -> None:
    """Raises BadInput if the score would be wrong."""
    options = comparison.options
    parts: tuple[tuple[InputPart, DecodedClip], ...] = (
        ("reference", scored.reference),
        ("distorted", scored.distorted),
    )
    for part, decoded in parts:
        if decoded.errors and not options.damaged:
            raise damage_error(part, counted(decoded.errors, "decoding error"))
        if change := next((one for one in decoded.changes if part == "reference" or not one.size_only), None):
            why = f"its pixel format, colour range or size changes within the clip, {change.description}"
            raise BadInput(part, f"{why}; re-encode it to one format")
    check_counts(
        scored.reference.frames,
        scored.distorted.frames,
        options,
        variable_rate=has_variable_rate(comparison.reference.clip, comparison.distorted.clip),
        damaged=scored.errors > 0,
    )
    common = min(scored.reference.frames, scored.distorted.frames)
    if scored.run.received != common:
        raise EngineFailure(f"the engine received {scored.run.received} of {common} frames")


def make_report(comparison: Comparison, scored: Scored) -> Report:
    """The report of a comparison; the scores of a learned model are predicted here."""
    values = with_scores(comparison.measurement.model, scored.run.values)
    return Report(_build_result(comparison, scored, values), scored.run.numbers, values)


def _scored_notes(comparison: Comparison, scored: Scored) -> tuple[str, ...]:
    """Facts that are known only after scoring, and the model's way to score."""
    model, options = comparison.measurement.model, comparison.options
    reference_frames, distorted_frames = scored.reference.frames, scored.distorted.frames
    notes = []
    if model.learned is not None:
        base = model.learned.base
        notes.append(f"vmafx predicted the scores with a learned model, from libvmaf's features for {base}")
    if options.shortest and reference_frames != distorted_frames:
        lengths = f"the reference has {reference_frames:,}, the distorted clip {distorted_frames:,}"
        notes.append(f"only the first {scored.run.received:,} frames were scored: {lengths}")
    for part, decoded in (("reference", scored.reference), ("distorted clip", scored.distorted)):
        if decoded.errors:
            notes.append(f"the {part} is damaged: ffmpeg reported {counted(decoded.errors, 'decoding error')}")
    if scored.distorted.changes:
        notes.append(f"the distorted clip changes its frame size, {scored.distorted.changes[0].description}")
    return tuple(notes)


def _build_result(comparison: Comparison, scored: Scored, values: dict[str, Column]) -> ScoreResult:
    options, plan, run = comparison.options, comparison.plan, scored.run
    return ScoreResult(
        score=pool(values["vmaf"], options.pooling),
        pooling=options.pooling,
        model=comparison.measurement.model.name,
        frames=len(values["vmaf"]),
        fps=round(run.received / run.seconds, 2),
        features={name: summary(column) for name, column in values.items()},
        reference=_clip_facts(comparison.reference, scored.reference.frames, options),
        distorted=_clip_facts(comparison.distorted, scored.distorted.frames, options),
        width=plan.frames.width,
        height=plan.frames.height,
        pixelFormat=plan.frames.pixel_format,
        subsample=options.subsample,
        engine=msgspec.structs.replace(run.facts, decoder=comparison.distorted.decoder.version),
        base=comparison.measurement.model.learned.base if comparison.measurement.model.learned is not None else "",
        notes=(*plan.notes, *_scored_notes(comparison, scored)),
        key=comparison.key,
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
        bytes=probed.opened.size,
        bitrate=probed.bitrate,
    )


def renamed(cached: Report, reference: ProbedClip, distorted: ProbedClip, model: str) -> Report:
    """A cached report with the names of the clips and the model in this request.

    Sizes and bitrates are filled in too: results of older versions lack them.
    """

    def facts(old: ClipFacts, probed: ProbedClip) -> ClipFacts:
        opened = probed.opened
        return msgspec.structs.replace(old, uri=opened.display_name, bytes=opened.size, bitrate=probed.bitrate)

    old = cached.result
    result = msgspec.structs.replace(
        old,
        cached=True,
        model=model,
        reference=facts(old.reference, reference),
        distorted=facts(old.distorted, distorted),
    )
    return msgspec.structs.replace(cached, result=result)
