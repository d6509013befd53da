"""Long clips made short without losing a dip, and frames counted by their score: pure."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import msgspec


class Bucket(NamedTuple):
    """Frames next to each other, `frame` in their middle."""

    frame: int
    low: float
    mean: float
    high: float


class Curve(msgspec.Struct, frozen=True):
    """Frames and their values. Where there were too many, `size` frames each are a bucket, and of its points only the
    lowest and the highest are left.
    """

    points: list[tuple[int, float]]
    buckets: list[Bucket] = []
    size: int = 1
    left_out: int = 0  # frames whose value is no number


def thin(numbers: Sequence[int], values: Sequence[float], most: int) -> Curve:
    """At most `most` points, the lowest and the highest always among them."""
    pairs = [pair for pair in zip(numbers, values, strict=True) if math.isfinite(pair[1])]
    left_out = len(values) - len(pairs)
    if len(pairs) <= most:
        return Curve(pairs, left_out=left_out)
    size = math.ceil(len(pairs) / (most // 2))
    points: list[tuple[int, float]] = []
    buckets = []
    for start in range(0, len(pairs), size):
        near = pairs[start : start + size]
        low, high = min(near, key=_value), max(near, key=_value)
        points.extend(sorted({low, high}))
        buckets.append(Bucket(near[len(near) // 2][0], low[1], math.fsum(map(_value, near)) / len(near), high[1]))
    return Curve(points, buckets, size, left_out)


def bins(values: Sequence[float], least: int = 8, most: int = 25) -> tuple[float, list[tuple[float, int]]]:
    """The width of the bins, and each bin's beginning and count.

    There are never so few that a bar fills the drawing: empty ones are put around, within 0 and 100 where scores are.
    """
    low, high = min(values), max(values)
    width = _nice(max((high - low) / most, 0.5))
    while math.floor(high / width) - math.floor(low / width) >= most:
        width = _nice(width * 1.5)
    first = math.floor(low / width)
    last = max(math.ceil(high / width) - 1, first)  # the best possible score is in the last bin, not in one of its own
    spare = max(least - (last - first + 1), 0)
    above = min(spare // 2, max(math.floor(100 / width) - 1 - last, 0))
    below = min(spare - above, max(first, 0))
    first, last = first - below, last + spare - below
    tally = [0] * (last - first + 1)
    for value in values:
        tally[min(math.floor(value / width), last) - first] += 1
    return width, [((first + place) * width, count) for place, count in enumerate(tally)]


def decimals(step: float) -> int:
    """As many as it takes to tell two values apart that are one step from each other."""
    return max(0, -math.floor(math.log10(abs(step)) + 1e-9))


def _nice(step: float) -> float:
    """The next of 1, 2, 5, 10 and so on, at any size."""
    size = 10.0 ** math.floor(math.log10(step))
    return next((factor * size for factor in (1, 2, 5) if step <= factor * size * (1 + 1e-9)), 10 * size)


def _value(pair: tuple[int, float]) -> float:
    return pair[1]
