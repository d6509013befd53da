"""From the values of the frames to one number: pure."""

import math
from collections.abc import Sequence

from vmafx.scoring.result import FeatureStatistics

STEPS = (1, 5, 10, 25, 50, 75, 90, 95, 99)


def summary(values: Sequence[float]) -> FeatureStatistics:
    ranked = sorted(values)
    return FeatureStatistics(
        mean=_tidy(mean(values)),
        harmonicMean=_tidy(harmonic_mean(values)),
        min=_tidy(ranked[0]),
        max=_tidy(ranked[-1]),
        percentiles={f"p{step}": _tidy(percentile(ranked, step)) for step in STEPS},
    )


def pool(values: Sequence[float], how: str) -> float:
    """One number by the name of a pooling; `how` has been checked."""
    if how == "mean":
        pooled = mean(values)
    elif how == "harmonic_mean":
        pooled = harmonic_mean(values)
    elif how in {"min", "max"}:
        pooled = min(values) if how == "min" else max(values)
    else:
        pooled = percentile(sorted(values), 50 if how == "median" else int(how[1:]))
    return _tidy(pooled)


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def harmonic_mean(values: Sequence[float]) -> float:
    """As libvmaf takes it, of each value plus one: a frame of zero counts heavily, but does not make all zero.

    A measure below zero has none by this rule; the least value stands in for it.
    """
    if min(values) <= -1:
        return min(values)
    return len(values) / math.fsum(1 / (value + 1) for value in values) - 1


def percentile(ranked: Sequence[float], step: float) -> float:
    """Between the two nearest of the sorted values, linearly."""
    position = (len(ranked) - 1) * step / 100
    below = int(position)
    above = min(below + 1, len(ranked) - 1)
    return ranked[below] + (ranked[above] - ranked[below]) * (position - below)


def _tidy(value: float) -> float:
    """libvmaf gives six decimals; more would be noise."""
    return round(value, 6)
