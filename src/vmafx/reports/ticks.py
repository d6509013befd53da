"""Where the axes of a chart have ticks: matplotlib's locators, with what we know of the values."""

import math
from itertools import pairwise

from vmafx.reports.canvas import MaxNLocator
from vmafx.reports.measures import Measure

STEPS = [1, 2, 5, 10]  # between ticks
RATE_STEPS = ((1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8), (1, 1.5, 2, 3, 4, 6, 8), (1, 2, 5), (1, 3), (1,))  # of each ten


def value_ticks(low: float, high: float, measure: Measure, about: int = 5) -> list[float]:
    """Ticks around values from `low` to `high`: as narrow as shows them well, and never beyond what can be."""
    floor = 0.0 if low >= 0 else -math.inf
    ceiling = measure.most if measure.most is not None and high <= measure.most else math.inf
    span = max(measure.span, abs(high) * 1e-3, 1e-6)
    if high - low < span:
        middle = (low + high) / 2
        high = min(middle + span / 2, ceiling)
        low = max(high - span, floor)
    return [float(tick) for tick in MaxNLocator(about, steps=STEPS).tick_values(low, high)]


def frame_ticks(first: int, last: int, about: int) -> list[int]:
    """Whole frames within the clip."""
    ticks = MaxNLocator(about, steps=STEPS, integer=True, min_n_ticks=1).tick_values(first, last)
    return [round(tick) for tick in ticks if first <= tick <= last] or [first]


def rate_ticks(low: float, high: float, apart: float) -> list[float]:
    """Round rates, as many as leave `apart`, in parts of the axis' length, between any two."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in RATE_STEPS:
        found = (step * 10.0**power for power in powers for step in steps)
        ticks = [tick for tick in found if low <= tick <= high]
        if all(math.log(after / before) >= apart * math.log(high / low) for before, after in pairwise(ticks)):
            break
    return ticks


def count_ticks(most: int) -> list[float]:
    return [float(tick) for tick in MaxNLocator(4, steps=STEPS, integer=True).tick_values(0, most)]
