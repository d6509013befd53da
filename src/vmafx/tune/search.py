"""Which quality setting to try next, to reach a score with the fewest encodes. Pure.

Qualities are those of an encoder: lower is better, in steps. Scores fall as the quality setting rises, with most clips
like 100 minus a parabola. So the search interpolates, and guesses from one or two tries, the square root of what is
missing to 100. As on some clips that comes close from one side only, every second guess after the third halves the
interval.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import numpy as np

from vmafx.tune.bd_rate import interpolate

GUESSES = 3  # by interpolation alone
FLATTEST, STEEPEST = 0.25, 4.0  # times the typical slope: two settings with nearly the same score tell nothing


class QualityRange(msgspec.Struct, frozen=True):
    """The settings that an encoder has; `best` is the lowest."""

    best: float
    worst: float
    step: float
    slope: float = 0.2  # typical rise of the `loss` per unit

    def nearest(self, quality: float) -> float:
        return self._clamped(round(quality / self.step) * self.step)

    def neighbour(self, quality: float, steps: int) -> float:
        return self._clamped(quality + steps * self.step)

    def _clamped(self, quality: float) -> float:
        return round(min(max(quality, self.best), self.worst), 6)


class Goal(msgspec.Struct, frozen=True):
    """A score to reach: at least `score`, and above it by no more than `tolerance` if some setting does that."""

    score: float
    tolerance: float = 0.5

    @property
    def aim(self) -> float:
        """The middle of the scores that meet the goal."""
        return self.score + self.tolerance / 2

    def is_met(self, score: float) -> bool:
        return self.score <= score <= self.score + self.tolerance


class Step(NamedTuple):
    """The setting to try next; if the search is `done`, the one that it has found."""

    quality: float
    done: bool = False


def loss(score: float) -> float:
    """A measure of a score that most encoders raise nearly along a line."""
    return math.sqrt(max(100 - score, 0))


def next_step(goal: Goal, tried: Mapping[float, float], qualities: QualityRange, start: float) -> Step:
    """What to do with the scores that were `tried`, by setting. `start` is the first setting to try.

    A search ends with a setting that meets the goal; or that reaches the score while the next worse one does not; or
    with the best setting there is, if even that one misses.
    """
    if not tried:
        return Step(qualities.nearest(start))
    above = max((quality for quality, score in tried.items() if score >= goal.score), default=None)
    if above is None:
        best = min(tried)
        return Step(best, done=True) if best <= qualities.best else _outwards(goal, tried, qualities, best, -1)
    below = min((quality for quality in tried if quality > above), default=None)
    if goal.is_met(tried[above]) or above >= qualities.worst or qualities.neighbour(above, 1) == below:
        return Step(above, done=True)
    if below is None:
        return _outwards(goal, tried, qualities, above, 1)
    halve = len(tried) > GUESSES and len(tried) % 2 == 0
    guess = qualities.nearest((above + below) / 2 if halve else _interpolated(goal.aim, tried, above, below))
    return Step(min(max(guess, qualities.neighbour(above, 1)), qualities.neighbour(below, -1)))


def _interpolated(aim: float, tried: Mapping[float, float], above: float, below: float) -> float:
    """The setting for the score `aim` between two settings, along the curve through all whose scores fall steadily."""
    losses = {quality: loss(score) for quality, score in tried.items()}
    if losses[above] >= losses[below]:  # they differ by less than a number can
        return (above + below) / 2
    curve = [(losses[above], above), (losses[below], below)]
    for quality in sorted((one for one in tried if one < above), reverse=True):
        if losses[quality] < curve[0][0]:
            curve.insert(0, (losses[quality], quality))
    for quality in sorted(one for one in tried if one > below):
        if losses[quality] > curve[-1][0]:
            curve.append((losses[quality], quality))
    return float(interpolate(np.array(curve), np.array([loss(aim)]))[0])


def _outwards(goal: Goal, tried: Mapping[float, float], qualities: QualityRange, known: float, direction: int) -> Step:
    """Beyond all that were tried, by the slope between them; at least one step, and twice as far if that misses."""
    distance = abs(loss(goal.aim) - loss(tried[known])) / _slope(tried, qualities.slope)
    if len(tried) > 2:
        distance = max(distance, max(tried) - min(tried))
    return Step(qualities.neighbour(known, direction * max(math.ceil(distance / qualities.step), 1)))


def _slope(tried: Mapping[float, float], typical: float) -> float:
    """Rise of the loss per unit between the two outermost settings, as far as that is plausible."""
    if len(tried) < 2:
        return typical
    first, *_, last = sorted(tried)
    slope = (loss(tried[last]) - loss(tried[first])) / (last - first)
    return min(max(slope, FLATTEST * typical), STEEPEST * typical)
