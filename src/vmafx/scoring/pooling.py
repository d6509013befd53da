"""Pooling of frame values: mean, harmonic mean and percentiles. No I/O."""

import math
from collections.abc import Sequence

from vmafx.scoring.result import FeatureStatistics

PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99)


def summary(values: Sequence[float]) -> FeatureStatistics:
    ranked = sorted(values)
    return FeatureStatistics(
        mean=_round(mean(values)),
        harmonicMean=_round(harmonic_mean(values)),
        min=_round(ranked[0]),
        max=_round(ranked[-1]),
        percentiles={f"p{percent}": _round(percentile(ranked, percent)) for percent in PERCENTILES},
    )


def pool(values: Sequence[float], pooling: str) -> float:
    """Pools the values by a valid `pooling` option."""
    if pooling == "mean":
        pooled = mean(values)
    elif pooling == "harmonic_mean":
        pooled = harmonic_mean(values)
    elif pooling in {"min", "max"}:
        pooled = min(values) if pooling == "min" else max(values)
    else:
        pooled = percentile(sorted(values), 50 if pooling == "median" else int(pooling[1:]))
    return _round(pooled)


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def harmonic_mean(values: Sequence[float]) -> float:
    """Computed on each value plus one, as libvmaf does, so that a frame of 0 does not make the result 0.

    Undefined for values of -1 or less, where the minimum is returned.
    """
    if min(values) <= -1:
        return min(values)
    return len(values) / math.fsum(1 / (value + 1) for value in values) - 1


def percentile(ranked: Sequence[float], percent: float) -> float:
    """Linear interpolation between the two nearest of the sorted values."""
    position = (len(ranked) - 1) * percent / 100
    below = int(position)
    above = min(below + 1, len(ranked) - 1)
    return ranked[below] + (ranked[above] - ranked[below]) * (position - below)


def _round(value: float) -> float:
    """To six decimals, as in libvmaf's log."""
    return round(value, 6)
