"""Which score each shot of a rung should have, so that the rung has its score with the fewest bits. Pure.

Bits are spent where they gain most: what one more bit adds to the mean of all frames is then the same in every shot. A
shot that is hard to encode so gets a lower score than the rung, but not by more than viewers should have to see.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple


class ShotPoint(NamedTuple):
    """What a shot has in an encode of the whole source with one setting."""

    bits: float
    score: float
    quality: float


class _Gain(NamedTuple):
    """A step from one point of the envelope of a shot to the next."""

    slope: float  # score of a frame, times frames, for each bit
    shot: int
    points: float


def shot_targets(
    curves: Sequence[Sequence[ShotPoint]], frames: Sequence[int], score: float, drop: float
) -> list[float]:
    """The score for each shot: `score` on average over all frames, and none lower by more than `drop`.

    The score itself for every shot without `drop`, or if it is not between what the shots have.
    """
    even = [score] * len(curves)
    if not drop or not all(curves):
        return even
    targets, gains = list[float](), list[_Gain]()
    for shot, curve in enumerate(curves):
        envelope = _above(upper_envelope(curve), score - drop)
        targets.append(envelope[0].score)
        gains += [
            _Gain(
                (upper.score - lower.score) * frames[shot] / (upper.bits - lower.bits), shot, upper.score - lower.score
            )
            for lower, upper in pairwise(envelope)
        ]
    missing = sum((score - target) * count for target, count in zip(targets, frames, strict=True))
    if missing < 0:
        return even
    for gain in sorted(gains, reverse=True):  # those of one shot in their order: the slopes of an envelope fall
        taken = min(gain.points, missing / frames[gain.shot])
        targets[gain.shot] += taken
        missing -= taken * frames[gain.shot]
    return targets if missing < 1e-6 * sum(frames) else even


def upper_envelope(curve: Sequence[ShotPoint]) -> list[ShotPoint]:
    """The points that no mixture of others beats, from the fewest bits to the most; the score rises along them."""
    found = list[ShotPoint]()
    for point in sorted(curve, key=lambda one: (one.bits, -one.score)):
        if found and point.score <= found[-1].score:
            continue
        while len(found) > 1 and _slope(found[-2], found[-1]) <= _slope(found[-1], point):
            found.pop()
        found.append(point)
    return found


def _slope(lower: ShotPoint, upper: ShotPoint) -> float:
    return (upper.score - lower.score) / (upper.bits - lower.bits)


def _above(envelope: list[ShotPoint], lowest: float) -> list[ShotPoint]:
    """The part of an envelope from a score on; its end, if all of it is lower."""
    above = [point for point in envelope if point.score >= lowest] or envelope[-1:]
    below = [point for point in envelope if point.score < lowest < above[0].score]
    if not below:
        return above
    share = (lowest - below[-1].score) / (above[0].score - below[-1].score)
    between = (low + (high - low) * share for low, high in zip(below[-1], above[0], strict=True))
    return [ShotPoint(*between), *above]
