"""Which score each shot should have: the fewest bits for the score of the rung."""

from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from vmafx.tune.shot_targets import ShotPoint, shot_targets, upper_envelope

Curve = list[ShotPoint]


def curve(*points: tuple[float, float]) -> Curve:
    return [ShotPoint(bits, score, 0.0) for bits, score in points]


def bits_for(curve: Curve, score: float) -> float:
    """Bits of a mixture of points of the envelope that has the score."""
    envelope = upper_envelope(curve)
    for lower, upper in pairwise(envelope):
        if lower.score <= score <= upper.score + 1e-6:
            return lower.bits + (upper.bits - lower.bits) * (score - lower.score) / (upper.score - lower.score)
    return envelope[0].bits if score <= envelope[0].score + 1e-6 else envelope[-1].bits


EASY = curve((1, 90), (2, 96), (4, 98))
HARD = curve((10, 50), (40, 70), (160, 90))


def test_bits_are_spent_where_they_gain_most() -> None:
    found = shot_targets([EASY, HARD], [50, 50], 80.0, 100.0)
    assert found == pytest.approx([98.0, 62.0])  # to bring the hard one to 80 would cost 100 bits, not 28


def test_no_shot_is_lower_than_allowed_and_the_others_then_need_less() -> None:
    assert shot_targets([EASY, HARD], [50, 50], 80.0, 15.0) == pytest.approx([95.0, 65.0])


def test_a_long_shot_counts_more() -> None:
    assert shot_targets([EASY, HARD], [10, 190], 66.0, 100.0) == pytest.approx([90.0, 50 + 2800 / 190])


@pytest.mark.parametrize(
    ("curves", "score", "drop"),
    [
        ([EASY, HARD], 80.0, 0.0),  # evenness was asked for
        ([EASY, []], 80.0, 8.0),  # nothing is known about a shot
        ([EASY, EASY], 80.0, 8.0),  # nothing is known about so low a score
        ([HARD, HARD], 95.0, 8.0),  # nor about so high a one
    ],
)
def test_all_shots_have_the_score_otherwise(curves: list[Curve], score: float, drop: float) -> None:
    assert shot_targets(curves, [50, 50], score, drop) == [score, score]


CURVES = st.lists(
    st.tuples(st.floats(1, 1e6), st.floats(20, 100)), min_size=1, max_size=6, unique_by=lambda one: one[0]
)
SHOTS = st.lists(st.tuples(CURVES, st.integers(1, 500)), min_size=1, max_size=6)


@given(SHOTS, st.floats(0, 1), st.floats(0.5, 60))
def test_the_mean_is_the_score_no_shot_is_too_low_and_no_even_mixture_is_cheaper(
    shots: list[tuple[list[tuple[float, float]], int]], place: float, drop: float
) -> None:
    curves, frames = [curve(*points) for points, _ in shots], [count for _, count in shots]
    lowest = [upper_envelope(one)[0].score for one in curves]
    highest = [upper_envelope(one)[-1].score for one in curves]
    score = max(lowest) + place * (min(highest) - max(lowest))
    assume(max(lowest) <= score <= min(highest))
    targets = shot_targets(curves, frames, score, drop)
    mean = sum(target * count for target, count in zip(targets, frames, strict=True)) / sum(frames)
    assert mean == pytest.approx(score)
    assert min(targets) >= score - drop - 1e-6
    cost = sum(map(bits_for, curves, targets))
    assert cost <= sum(bits_for(one, score) for one in curves) * (1 + 1e-6)
