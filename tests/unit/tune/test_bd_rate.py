"""Bjøntegaard's deltas, against values computed by other means."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmafx.tune.bd_rate import bd_quality, bd_rate, interpolate

ANCHOR = [(300.0, 72.5), (600.0, 84.1), (1200.0, 91.0), (2400.0, 95.2)]
TESTED = [(250.0, 74.0), (520.0, 86.3), (1100.0, 92.2), (2000.0, 95.9), (4200.0, 97.5)]


@st.composite
def curves(draw: st.DrawFn) -> list[tuple[float, float]]:
    """Rates and qualities that rise together."""
    count = draw(st.integers(2, 8))
    rates = draw(st.lists(st.floats(1.05, 4), min_size=count, max_size=count))
    gains = draw(st.lists(st.floats(0.05, 20), min_size=count, max_size=count))
    return list(zip((100 * math.prod(rates[: index + 1]) for index in range(count)), np.cumsum(gains), strict=True))


def test_against_another_implementation() -> None:
    """The values are those of scipy.interpolate.PchipInterpolator, with its exact integrals."""
    assert bd_rate(ANCHOR, TESTED) == pytest.approx(-26.381884, abs=1e-3)
    assert bd_quality(ANCHOR, TESTED) == pytest.approx(2.9439890, abs=1e-4)
    points = np.array([(0.0, 0.0), (1.0, 2.0), (3.0, 2.5), (4.0, 6.0), (7.0, 6.1)])
    at = np.array([0.25, 0.9, 2.0, 3.3, 5.0, 6.9])
    expected = [0.652977196, 1.927844595, 2.242523261, 3.326936152, 6.061013645, 6.099928460]
    assert interpolate(points, at) == pytest.approx(expected, abs=1e-8)


def test_curves_along_lines_have_the_mean_of_their_ratios() -> None:
    """On a logarithmic scale: quality 10 ln r, and 8 ln r + 20, both from 40 to 80."""
    anchor = [(math.exp(quality / 10), quality) for quality in (40.0, 50.0, 62.0, 80.0)]
    tested = [(math.exp((quality - 20) / 8), quality) for quality in (40.0, 47.0, 80.0)]
    quality = np.linspace(40, 80, 200_001)
    expected = (math.exp(np.mean((quality - 20) / 8 - quality / 10)) - 1) * 100
    assert bd_rate(anchor, tested) == pytest.approx(expected, rel=1e-4)


@given(curves(), st.floats(0.1, 10))
def test_a_constant_share_of_the_rate_is_the_result(curve: list[tuple[float, float]], share: float) -> None:
    cheaper = [(rate * share, quality) for rate, quality in curve]
    assert bd_rate(curve, cheaper) == pytest.approx((share - 1) * 100, abs=1e-6)
    assert bd_rate(curve, curve) == pytest.approx(0, abs=1e-9)


def test_half_the_rate_is_minus_50_percent() -> None:
    assert bd_rate(ANCHOR, [(rate / 2, quality) for rate, quality in ANCHOR]) == pytest.approx(-50)


@given(curves(), st.floats(-5, 5))
def test_a_constant_gain_in_quality_is_the_result(curve: list[tuple[float, float]], gain: float) -> None:
    better = [(rate, quality + gain) for rate, quality in curve]
    assert bd_quality(curve, better) == pytest.approx(gain, abs=1e-6)


@given(curves(), curves())
def test_the_difference_the_other_way_round_is_the_inverse(
    one: list[tuple[float, float]], other: list[tuple[float, float]]
) -> None:
    forth, back = bd_rate(one, other), bd_rate(other, one)
    assert (forth is None) == (back is None)
    if forth is not None and back is not None:
        assert (1 + forth / 100) * (1 + back / 100) == pytest.approx(1)


def test_no_common_quality_has_no_difference() -> None:
    low = [(rate, quality - 60) for rate, quality in ANCHOR]
    assert bd_rate(ANCHOR, low) is None
    assert bd_quality(ANCHOR, [(rate * 100, quality) for rate, quality in ANCHOR]) is None
    touching = [(10.0, 60.0), (20.0, 72.5)]
    assert bd_rate(ANCHOR, touching) is None


@pytest.mark.parametrize("points", [[], ANCHOR[:1], [(100.0, 90.0), (200.0, 90.0)], [ANCHOR[0], ANCHOR[0]]])
def test_a_curve_needs_two_points(points: list[tuple[float, float]]) -> None:
    assert bd_rate(ANCHOR, points) is None
    assert bd_rate(points, ANCHOR) is None
    assert bd_quality(points, ANCHOR) is None


def test_a_point_that_costs_more_than_a_better_one_is_left_out_of_both_deltas() -> None:
    """As where scores are near 100: (1300, 90.5) is worse than (1200, 91), whatever the axis."""
    for order in (ANCHOR, ANCHOR[::-1]):
        dominated = [*order, (1300.0, 90.5), (1200.0, 80.0)]
        assert bd_rate(dominated, TESTED) == bd_rate(ANCHOR, TESTED)
        assert bd_quality(TESTED, dominated) == bd_quality(TESTED, ANCHOR)


@given(curves())
def test_the_spline_is_monotone_and_stays_between_its_points(curve: list[tuple[float, float]]) -> None:
    points = np.array([(math.log(rate), quality) for rate, quality in curve])
    for (x0, y0), (x1, y1) in pairwise(points):
        values = interpolate(points, np.linspace(x0, x1, 101))
        assert values[0] == pytest.approx(y0)
        assert values[-1] == pytest.approx(y1)
        assert np.all(np.diff(values) >= -1e-9)
        assert np.all((values >= y0 - 1e-9) & (values <= y1 + 1e-9))


@given(curves(), curves())
def test_deltas_are_finite(one: list[tuple[float, float]], other: list[tuple[float, float]]) -> None:
    for delta in (bd_rate(one, other), bd_quality(one, other)):
        assert delta is None or math.isfinite(delta)
