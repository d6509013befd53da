"""Axes, ticks, and long clips made short without losing a dip: pure."""

import math
from collections.abc import Sequence

import msgspec

from vmafx.reports.measures import Measure

POINTS = 1500  # of a curve: more than a screen has pixels across


class Axis(msgspec.Struct, frozen=True):
    low: float
    high: float
    ticks: tuple[float, ...]

    def at(self, value: float) -> float:
        """Where a value is, from 0 to 1."""
        return (value - self.low) / (self.high - self.low)

    @property
    def decimals(self) -> int:
        """As many as it takes to tell two ticks apart."""
        return decimals(self.ticks[1] - self.ticks[0]) if len(self.ticks) > 1 else 0


class Curve(msgspec.Struct, frozen=True):
    """The points to draw. Where there were too many, `bucket` frames each became their lowest and their highest, and
    `trend` has their mean.
    """

    points: list[tuple[int, float]]
    trend: list[tuple[int, float]] = []
    bucket: int = 1
    left_out: int = 0  # frames whose value is no number


def thin(numbers: Sequence[int], values: Sequence[float], most: int = POINTS) -> Curve:
    pairs = [pair for pair in zip(numbers, values, strict=True) if math.isfinite(pair[1])]
    left_out = len(values) - len(pairs)
    if len(pairs) <= most:
        return Curve(pairs, left_out=left_out)
    size = math.ceil(len(pairs) / (most // 2))
    points: list[tuple[int, float]] = []
    trend = []
    for start in range(0, len(pairs), size):
        bucket = pairs[start : start + size]
        points.extend(sorted({min(bucket, key=_value), max(bucket, key=_value)}))
        trend.append((bucket[len(bucket) // 2][0], math.fsum(map(_value, bucket)) / len(bucket)))
    return Curve(points, trend, size, left_out)


def fit(low: float, high: float, measure: Measure, about: int = 5) -> Axis:
    """An axis for values from `low` to `high`: as narrow as shows them well, and never beyond what can be."""
    floor = 0.0 if low >= 0 else -math.inf
    ceiling = measure.most if measure.most is not None and high <= measure.most else math.inf
    span = max(measure.span, abs(high) * 1e-3, 1e-6)
    if high - low < span:
        middle = (low + high) / 2
        high = min(middle + span / 2, ceiling)
        low = max(high - span, floor)
    step = nice((high - low) / about)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return _axis(first, max(last, first + 1), step)


def frames(first: int, last: int, about: int = 10) -> Axis:
    """An axis that begins and ends with the clip; its ticks are whole frames."""
    if first == last:
        return Axis(first - 0.5, last + 0.5, (first,))
    step = max(1, round(nice((last - first) / about)))
    ticks = range(math.ceil(first / step) * step, last + 1, step)
    return Axis(first, last, tuple(ticks))


def counts(most: int) -> Axis:
    step = max(1, round(nice(most / 4)))
    return _axis(0, math.ceil(most / step), step)


def bins(values: Sequence[float], least: int = 8, most: int = 25) -> tuple[float, list[tuple[float, int]]]:
    """The width of the bins, and each bin's beginning and count.

    There are never so few that a bar fills the drawing: empty ones are put around, within 0 and 100 where scores are.
    """
    low, high = min(values), max(values)
    width = nice(max((high - low) / most, 0.5))
    while math.floor(high / width) - math.floor(low / width) >= most:
        width = nice(width * 1.5)
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


def nice(step: float) -> float:
    """The next of 1, 2, 5, 10 and so on, at any size."""
    size = 10.0 ** math.floor(math.log10(step))
    return next((factor * size for factor in (1, 2, 5) if step <= factor * size * (1 + 1e-9)), 10 * size)


def decimals(step: float) -> int:
    return max(0, -math.floor(math.log10(abs(step)) + 1e-9))


def _axis(first: int, last: int, step: float) -> Axis:
    ticks = tuple(round(place * step, decimals(step) + 1) for place in range(first, last + 1))
    return Axis(ticks[0], ticks[-1], ticks)


def _value(pair: tuple[int, float]) -> float:
    return pair[1]
