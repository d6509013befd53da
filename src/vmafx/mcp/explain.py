"""Explains a score: which parts of a clip pulled it down, and which of the features that VMAF is made of.

With the model of the report, the points that each frame lacks are divided among its features as Shapley values of
counterfactuals: how the score changes when features get the value of a lossless clip, averaged over all orders. So the
parts add up. Where no model reproduces the scores of the report, only statistics are given.
"""

import itertools
import math
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from vmafx.api.fields import doc
from vmafx.scoring.errors import BadInput, NodeFault
from vmafx.scoring.result import MODEL_FEATURES, Report
from vmafx.scoring.svr_model import Array, SvrModel, embedded_model

MAX_EVALUATED = 1500  # frames whose points are divided among features, evenly spread
MAX_CHECKED = 200  # frames whose scores the model must reproduce
MAX_PARTS = 60  # of a clip
WORST_PARTS, WORST_FRAMES = 5, 5
TOLERANCE = 0.05  # points between the scores of a report and what its model answers
COMPLETE = 100.0
NOTABLE = 0.2  # share of the lost points from which a feature is worth an advice
LOSSLESS = {"adm2": 1.0, "vif_scale0": 1.0, "vif_scale1": 1.0, "vif_scale2": 1.0, "vif_scale3": 1.0}
MEANINGS = {
    "adm2": (
        "detail loss: edges and textures of the reference that are weaker or gone, or covered by artefacts",
        "more bits, a slower preset or less denoising and deblocking keep detail",
    ),
    "vif_scale0": (
        "loss of the finest structure: blur, noise or grain that was removed, scaling down and up",
        "encode at the size of the reference; preserve grain; use a lower quantizer (CRF)",
    ),
    "vif_scale1": (
        "loss of fine structure: blur and coarse quantization",
        "use a lower quantizer (CRF), or a smaller size only where the bitrate is very low",
    ),
    "vif_scale2": (
        "loss of coarse structure: strong quantization, or a change of contrast",
        "give these parts more bits; check that levels and contrast match the reference",
    ),
    "vif_scale3": (
        "loss of the coarsest structure: heavy blocking, or a change of contrast or brightness",
        "check for a wrong colour range, frames that are shifted in time, and far too few bits",
    ),
    "motion2": (
        "motion in the reference: it masks losses, and is no loss itself",
        "the same losses cost fewer points in fast parts, so bits can move to slow ones",
    ),
}
MODEL_METHOD = (
    "Counterfactuals by the SVR model that gave these scores: the points that a frame lacks to 100 are divided among "
    "its features as Shapley values, where a removed loss is the feature at its lossless value 1 and motion stays as "
    "measured. What even lossless features would lack is `rest`."
)
MODEL_LIMITS = (
    "The model was trained on real encodes; it extrapolates for combinations that no encode has, such as perfect "
    "detail beside blur. Features overlap, so their division is a convention, not a measurement. Attribution is for "
    "the mean of the frames, also where the score is pooled in another way. A cause names what the features saw, not "
    "what made it."
)
STATISTICS_METHOD = (
    "Statistics only: no built-in model of this machine gives these scores, so features are compared between the worst "
    "tenth of the frames and the others."
)
STATISTICS_LIMITS = "A feature that differs in bad frames need not be the cause. There is no attribution in points."


class FeatureLoss(msgspec.Struct, frozen=True, kw_only=True):
    """What a feature took from the mean score."""

    feature: str
    points: Annotated[float, doc("Points of the mean score.")]
    share: Annotated[float, doc("Of all points that the clip lacks to 100.")]
    meaning: str
    advice: str


class FeatureContrast(msgspec.Struct, frozen=True, kw_only=True):
    """A feature in the worst tenth of the frames and in the others."""

    feature: str
    worst: float
    others: float
    correlation: Annotated[float | None, doc("With the score of the frames; null if one of them is constant.")]


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the clip."""

    firstFrame: int
    lastFrame: int
    start: Annotated[float | None, doc("Seconds from the beginning; null if the frame rate is unknown.")]
    end: float | None
    score: Annotated[float, doc("Mean of its frames.")]
    points: Annotated[float, doc("Points of the clip's mean score that are lost here.")]
    share: Annotated[float, doc("Of all points that the clip lacks to 100.")]
    causes: Annotated[dict[str, float], doc("Points by feature.")]


class WorstFrame(msgspec.Struct, frozen=True, kw_only=True):
    frame: int
    time: float | None
    score: float
    causes: Annotated[dict[str, float], doc("Points by feature, of this frame.")]


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a clip has its score."""

    score: float
    pooling: str
    mean: float
    lost: Annotated[float, doc("Points that the mean lacks to 100.")]
    rest: Annotated[
        float | None,
        doc(
            "Of these, points that no feature accounts for, and the error of the sample where the clip has more than "
            f"{MAX_EVALUATED:,} frames; null without a model."
        ),
    ]
    method: Literal["model", "statistics"]
    explanation: Annotated[str, doc("How this was computed.")]
    limits: Annotated[str, doc("What it cannot tell.")]
    causes: Annotated[tuple[FeatureLoss, ...], doc("The features by the points that they took, the largest first.")]
    parts: Annotated[tuple[Part, ...], doc("The parts in which most points are lost, the worst first.")]
    frames: Annotated[tuple[WorstFrame, ...], doc("The frames with the lowest scores.")]
    contrasts: tuple[FeatureContrast, ...]
    summary: str


@lru_cache(8)
def known_model(name: str, program: Path) -> SvrModel | None:
    """The parameters of a built-in model, from the engine's program; None if it does not have them."""
    try:
        return embedded_model(name, program)
    except (BadInput, NodeFault):
        return None


def explain(report: Report, model: SvrModel | None) -> Explanation:
    """`model` is the one of the report, if it is known."""
    scores = np.array(report.values["vmaf"])
    numbers = np.array(report.numbers)
    attribution = _attribute(report, scores, model)
    mean = float(scores.mean())
    lost = COMPLETE - mean
    means = attribution.means(0, len(scores) - 1) if attribution is not None else {}
    causes = tuple(
        FeatureLoss(
            feature=name,
            points=round(points, 3),
            share=_share(points, lost),
            meaning=MEANINGS[name][0],
            advice=MEANINGS[name][1],
        )
        for name, points in sorted(means.items(), key=lambda entry: -entry[1])
    )
    parts = tuple(_parts(report, scores, numbers, attribution))
    found = Explanation(
        score=report.result.score,
        pooling=report.result.pooling,
        mean=round(mean, 4),
        lost=round(lost, 4),
        rest=round(lost - sum(means.values()), 3) if attribution is not None else None,
        method="statistics" if attribution is None else "model",
        explanation=STATISTICS_METHOD if attribution is None else MODEL_METHOD,
        limits=STATISTICS_LIMITS if attribution is None else MODEL_LIMITS,
        causes=causes,
        parts=parts,
        frames=tuple(_worst_frames(report, scores, attribution)),
        contrasts=tuple(_contrasts(report, scores)),
        summary="",
    )
    return msgspec.structs.replace(found, summary=_summary(found))


class _Attribution:
    """The points that features took from some frames; `rows` are indexes of the report."""

    def __init__(self, model: SvrModel, values: Array) -> None:
        self._model, self._values = model, values
        self._rows = _spread(len(values), MAX_EVALUATED)
        self._points = _shapley(model, values[self._rows])

    def means(self, first: int, last: int) -> dict[str, float]:
        """Mean points by feature of the frames with these indexes."""
        inside = (self._rows >= first) & (self._rows <= last)
        if not inside.any():
            return self.of_frame((first + last) // 2)
        return {name: float(points[inside].mean()) for name, points in self._points.items()}

    def of_frame(self, index: int) -> dict[str, float]:
        points = _shapley(self._model, self._values[index : index + 1])
        return {name: float(value[0]) for name, value in points.items()}


def _attribute(report: Report, scores: Array, model: SvrModel | None) -> _Attribution | None:
    """None without a model that reproduces the scores."""
    columns = [_column(report, name) for name in MODEL_FEATURES]
    if model is None or None in columns:
        return None
    values = np.column_stack([np.array(report.values[name]) for name in columns if name is not None])
    some = _spread(len(scores), MAX_CHECKED)
    if not np.isfinite(values).all() or np.abs(model.predict(values[some]) - scores[some]).max() > TOLERANCE:
        return None
    return _Attribution(model, values)


def _column(report: Report, feature: str) -> str | None:
    """The column of a feature, whose name depends on the version of libvmaf."""
    return next((one for one in (feature, f"integer_{feature}") if one in report.values), None)


def _spread(count: int, most: int) -> NDArray[np.int64]:
    """Indexes of at most so many of the frames, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))


def _shapley(model: SvrModel, values: Array) -> dict[str, Array]:
    """Points by feature for each row: what the score gains when the loss of a feature is removed, over all orders."""
    losses = [index for index, name in enumerate(MODEL_FEATURES) if name in LOSSLESS]
    scores: dict[frozenset[int], Array] = {}
    for size in range(len(losses) + 1):
        for removed in itertools.combinations(losses, size):
            changed = values.copy()
            for index in removed:
                changed[:, index] = LOSSLESS[MODEL_FEATURES[index]]
            scores[frozenset(removed)] = model.predict(changed)
    count = len(losses)
    points = {}
    for index in losses:
        others = [one for one in losses if one != index]
        total = np.zeros(len(values))
        for size in range(count):
            weight = 1 / (count * math.comb(count - 1, size))
            for removed in itertools.combinations(others, size):
                total += weight * (scores[frozenset((*removed, index))] - scores[frozenset(removed)])
        points[MODEL_FEATURES[index]] = total
    return points


def _parts(report: Report, scores: Array, numbers: Array, attribution: _Attribution | None) -> list[Part]:
    """The worst parts, of a second or more each."""
    rate = report.result.reference.frameRate
    step = max(1, int(numbers[1] - numbers[0])) if len(numbers) > 1 else 1
    frames = max(1, round((rate or 25.0) / step), math.ceil(len(scores) / MAX_PARTS))
    lost, found = COMPLETE - float(scores.mean()), []
    for first in range(0, len(scores), frames):
        last = min(first + frames, len(scores)) - 1
        mean, scale = float(scores[first : last + 1].mean()), (last + 1 - first) / len(scores)
        points = (COMPLETE - mean) * scale
        causes = attribution.means(first, last) if attribution is not None else {}
        begin, end = int(numbers[first]), int(numbers[last])
        found.append(
            Part(
                firstFrame=begin,
                lastFrame=end,
                start=_seconds(begin, rate),
                end=_seconds(end + 1, rate),
                score=round(mean, 3),
                points=round(points, 3),
                share=_share(points, lost),
                causes={name: round(value * scale, 3) for name, value in causes.items()},
            )
        )
    return sorted(found, key=lambda part: -part.points)[:WORST_PARTS]


def _worst_frames(report: Report, scores: Array, attribution: _Attribution | None) -> list[WorstFrame]:
    return [
        WorstFrame(
            frame=report.numbers[index],
            time=_seconds(report.numbers[index], report.result.reference.frameRate),
            score=round(float(scores[index]), 3),
            causes=(
                {name: round(value, 3) for name, value in attribution.of_frame(index).items()}
                if attribution is not None
                else {}
            ),
        )
        for index in map(int, np.argsort(scores, kind="stable")[:WORST_FRAMES])
    ]


def _contrasts(report: Report, scores: Array) -> list[FeatureContrast]:
    worst = scores <= np.quantile(scores, 0.1)
    found = []
    for name in MEANINGS:
        column = _column(report, name)
        if column is None:
            continue
        values = np.array(report.values[column])
        varies = len(scores) > 1 and values.std() > 1e-12 and scores.std() > 1e-12
        found.append(
            FeatureContrast(
                feature=name,
                worst=round(float(values[worst].mean()), 5),
                others=round(float(values[~worst].mean() if (~worst).any() else values.mean()), 5),
                correlation=round(float(np.corrcoef(values, scores)[0, 1]), 3) if varies else None,
            )
        )
    return found


def _summary(found: Explanation) -> str:
    lines = [f"VMAF {found.score:.2f} ({found.pooling}); the mean of the frames lacks {found.lost:.2f} points to 100."]
    if found.causes:
        shown = ", ".join(f"{one.feature} {one.points:.2f} ({one.share:.0%})" for one in found.causes)
        lines.append(f"Points by feature: {shown}; rest {found.rest:.2f}.")
        lines += [
            f"{one.feature}: {one.meaning}. What helps: {one.advice}." for one in found.causes if one.share >= NOTABLE
        ]
    else:
        lines.append(found.explanation)
    for part in found.parts[:3]:
        when = "" if part.start is None or part.end is None else f" ({part.start:.2f} to {part.end:.2f} s)"
        lines.append(
            f"Frames {part.firstFrame} to {part.lastFrame}{when}: {part.score:.2f} on average, {part.share:.0%} of the "
            "lost points."
        )
    return "\n".join(lines)


def _share(points: float, lost: float) -> float:
    return round(points / lost, 4) if lost > 1e-9 else 0.0


def _seconds(frame: int, rate: float | None) -> float | None:
    return None if not rate else round(frame / rate, 3)
