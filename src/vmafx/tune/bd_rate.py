"""Bjøntegaard's deltas: how much rate one curve saves over another at the same quality, and how much quality it gains.

Curves are interpolated by monotone cubic Hermite splines (Fritsch and Carlson), rate on a logarithmic scale, and
compared where they overlap. Unlike one cubic polynomial through four points, such a spline has no bumps between points.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Point = tuple[float, float]  # rate, quality
Array = NDArray[np.float64]
MIN_POINTS = 2
STEPS = 1000  # of the integral


def bd_rate(anchor: Sequence[Point], tested: Sequence[Point]) -> float | None:
    """Average difference in rate at the same quality, in percent; negative if `tested` needs less.

    None if the curves have too few points, or no quality in common.
    """
    difference = _mean_difference(*(_curve(points)[:, ::-1] for points in (anchor, tested)))
    return None if difference is None else (math.exp(difference) - 1) * 100


def bd_quality(anchor: Sequence[Point], tested: Sequence[Point]) -> float | None:
    """Average difference in quality at the same rate; positive if `tested` is better. None as with `bd_rate`."""
    return _mean_difference(_curve(anchor), _curve(tested))


def _mean_difference(first: Array, second: Array) -> float | None:
    """The mean of second(x) - first(x) over the x that both have."""
    if min(len(first), len(second)) < MIN_POINTS:
        return None
    low, high = max(first[0, 0], second[0, 0]), min(first[-1, 0], second[-1, 0])
    if low >= high:
        return None
    x = np.linspace(low, high, STEPS + 1)
    difference = interpolate(second, x) - interpolate(first, x)
    return float(np.trapezoid(difference, x) / (high - low))


def _curve(points: Sequence[Point]) -> Array:
    """Logarithms of rates with their qualities, both rising; a point that costs more than a better one is left out."""
    kept: list[Point] = []
    for rate, quality in sorted(points, key=lambda point: (point[0], -point[1])):
        if not kept or quality > kept[-1][1]:
            kept.append((math.log(rate), quality))
    return np.array(kept, dtype=float).reshape(-1, 2)


def interpolate(points: Array, x: Array) -> Array:
    """The monotone spline through points with increasing x, at `x`."""
    xs, ys = points[:, 0], points[:, 1]
    widths, slopes = np.diff(xs), np.diff(ys) / np.diff(xs)
    tangents = _tangents(widths, slopes)
    index = np.clip(np.searchsorted(xs, x, side="right") - 1, 0, len(widths) - 1)
    h, t = widths[index], (x - xs[index]) / widths[index]
    return (
        (1 + 2 * t) * (1 - t) ** 2 * ys[index]
        + t * (1 - t) ** 2 * h * tangents[index]
        + t**2 * (3 - 2 * t) * ys[index + 1]
        + t**2 * (t - 1) * h * tangents[index + 1]
    )


def _tangents(widths: Array, slopes: Array) -> Array:
    """Slopes at the points: weighted harmonic means of those on both sides, which keeps the spline monotone."""
    if len(slopes) == 1:
        return np.array([slopes[0], slopes[0]])
    before, after = 2 * widths[1:] + widths[:-1], widths[1:] + 2 * widths[:-1]
    same_sign = slopes[:-1] * slopes[1:] > 0
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = np.where(same_sign, (before + after) / (before / slopes[:-1] + after / slopes[1:]), 0.0)
    return np.array(
        [
            _end_tangent(widths[0], widths[1], slopes[0], slopes[1]),
            *inner,
            _end_tangent(widths[-1], widths[-2], slopes[-1], slopes[-2]),
        ]
    )


def _end_tangent(width: float, next_width: float, slope: float, next_slope: float) -> float:
    """By three points, limited so that the spline stays monotone."""
    tangent = ((2 * width + next_width) * slope - width * next_slope) / (width + next_width)
    if tangent * slope <= 0:
        return 0.0
    if slope * next_slope <= 0 and abs(tangent) > 3 * abs(slope):
        return 3 * slope
    return tangent
