"""The best that several curves of rate and quality can do together: their upper convex hull. Pure.

Rates count by their ratio, so that the hull is one over the logarithm of the rate.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np


class HullPoint(NamedTuple):
    rate: float
    quality: float
    number: int  # of the point among those that were given


def convex_hull(points: Iterable[tuple[float, float]]) -> list[HullPoint]:
    """The points that no mixture of others beats, from the lowest rate to the highest; quality rises along them."""
    ordered = sorted((HullPoint(rate, quality, number) for number, (rate, quality) in enumerate(points)), key=_order)
    hull: list[HullPoint] = []
    for point in ordered:
        if hull and point.quality <= max(one.quality for one in hull):
            continue  # costs more and is no better
        while len(hull) > 1 and _slope(hull[-2], hull[-1]) <= _slope(hull[-1], point):
            hull.pop()
        hull.append(point)
    return hull


def _order(point: HullPoint) -> tuple[float, float]:
    return point.rate, -point.quality


def _slope(first: HullPoint, second: HullPoint) -> float:
    distance = math.log(second.rate / first.rate)
    return (second.quality - first.quality) / distance if distance > 0 else math.inf


def height_of(hull: list[HullPoint], rate: float) -> float:
    """The quality of the hull at a rate; beyond its ends, that of the end."""
    rates, qualities = [math.log(one.rate) for one in hull], [one.quality for one in hull]
    return float(np.interp(math.log(rate), rates, qualities))


def wished_scores(top: float, spacing: float, lowest: float, most: int) -> list[float]:
    """The scores of the rungs, from the top down."""
    return [top - index * spacing for index in range(most) if top - index * spacing >= lowest]
