"""Downsampling of curves that keeps every dip, and binning of scores for histograms."""

import math
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import msgspec


class Bucket(NamedTuple):
    """Statistics of consecutive frames; `frame` is the one in the middle."""

    frame: int
    low: float
    mean: float
    high: float


class Curve(msgspec.Struct, frozen=True):
    """Frame numbers and values.

    A downsampled curve has buckets of `bucket_size` frames, and as points the minimum and maximum of each bucket.
    """

    points: list[tuple[int, float]]
    buckets: list[Bucket] = []
    bucket_size: int = 1
    not_finite: int = 0  # frames omitted because their value is infinite or NaN


def downsample(numbers: Sequence[int], values: Sequence[float], max_points: int) -> Curve:
    """At most `max_points` points, always including the minimum and the maximum."""
    pairs = (pair for pair in zip(numbers, values, strict=True) if math.isfinite(pair[1]))
    finite = sum(map(math.isfinite, values))
    not_finite = len(values) - finite
    if finite <= max_points:
        return Curve(list(pairs), not_finite=not_finite)
    size = math.ceil(finite / (max_points // 2))
    points: list[tuple[int, float]] = []
    buckets = []
    while bucket := list(islice(pairs, size)):
        low, high = min(bucket, key=_value), max(bucket, key=_value)
        points.extend(sorted({low, high}))
        mean = math.fsum(map(_value, bucket)) / len(bucket)
        buckets.append(Bucket(bucket[len(bucket) // 2][0], low[1], mean, high[1]))
    return Curve(points, buckets, size, not_finite)


def histogram_bins(
    values: Sequence[float], min_bins: int = 8, max_bins: int = 25
) -> tuple[float, list[tuple[float, int]]]:
    """The width of the bins, and the lower edge and count of each bin.

    If the values fill fewer than `min_bins`, empty bins are added on both sides, within 0 to 100 for scores in it.
    """
    low, high = min(values), max(values)
    width = _round_step(max((high - low) / max_bins, 0.5))
    while math.floor(high / width) - math.floor(low / width) >= max_bins:
        width = _round_step(width * 1.5)
    first = math.floor(low / width)
    last = max(math.ceil(high / width) - 1, first)  # a score of 100 belongs to the last bin
    padding = max(min_bins - (last - first + 1), 0)
    above = min(padding // 2, max(math.floor(100 / width) - 1 - last, 0))
    below = min(padding - above, max(first, 0))
    first, last = first - below, last + padding - below
    counts = [0] * (last - first + 1)
    for value in values:
        counts[min(math.floor(value / width), last) - first] += 1
    return width, [((first + index) * width, count) for index, count in enumerate(counts)]


def decimals(step: float) -> int:
    """Decimals needed to distinguish two values that are one step apart."""
    return max(0, -math.floor(math.log10(abs(step)) + 1e-9))


def _round_step(step: float) -> float:
    """Round up to 1, 2 or 5 times a power of ten."""
    size = 10.0 ** math.floor(math.log10(step))
    return next((factor * size for factor in (1, 2, 5) if step <= factor * size * (1 + 1e-9)), 10 * size)


def _value(pair: tuple[int, float]) -> float:
    return pair[1]
