"""The convex hull of rates and qualities, and the scores that rungs are wished at."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmafx.tune.hull import convex_hull, height_of, wished_scores

POINTS = st.lists(st.tuples(st.floats(1e3, 1e8), st.floats(0, 100)), min_size=1, max_size=30)


def test_points_below_a_line_between_others_are_left_out() -> None:
    points = [(100.0, 50.0), (200.0, 60.0), (400.0, 90.0), (800.0, 95.0), (300.0, 40.0)]
    assert [one.number for one in convex_hull(points)] == [0, 2, 3]


def test_a_point_that_costs_more_and_is_no_better_is_left_out() -> None:
    assert [one.number for one in convex_hull([(100, 50), (100, 60), (200, 60), (300, 59)])] == [1]


@given(POINTS)
def test_the_hull_is_above_all_points_and_bends_down(points: list[tuple[float, float]]) -> None:
    hull = convex_hull(points)
    assert hull
    for rate, quality in points:
        assert height_of(hull, rate) >= quality - 1e-6 or rate < hull[0].rate
    slopes = [
        (right.quality - left.quality) / math.log(right.rate / left.rate) for left, right in itertools.pairwise(hull)
    ]
    assert all(slope > 0 for slope in slopes)
    assert slopes == sorted(slopes, reverse=True)
    assert all((one.rate, one.quality) == points[one.number] for one in hull)


@pytest.mark.parametrize(
    ("lowest", "most", "expected"),
    [(70, 8, [95, 89, 83, 77, 71]), (70, 3, [95, 89, 83]), (96, 8, []), (95, 8, [95])],
)
def test_wished_scores_go_down_from_the_top(lowest: float, most: int, expected: list[float]) -> None:
    assert wished_scores(95, 6, lowest, most) == expected
