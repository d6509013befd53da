"""From frames to one number, against numpy and against the definitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmafx.scoring.pooling import STEPS, pool, summary

SCORES = st.lists(st.floats(0, 100), min_size=1, max_size=200)


@given(SCORES)
def test_a_summary_is_what_numpy_says(values: list[float]) -> None:
    one = summary(values)
    assert one.mean == pytest.approx(np.mean(values), abs=1e-6)
    assert (one.min, one.max) == pytest.approx((min(values), max(values)), abs=1e-6)
    for step in STEPS:
        assert one.percentiles[f"p{step}"] == pytest.approx(np.percentile(values, step), abs=2e-6)
    assert one.harmonicMean == pytest.approx(1 / np.mean(1 / (np.array(values) + 1)) - 1, abs=2e-6)


@given(SCORES)
def test_poolings_agree_with_the_summary_and_keep_their_order(values: list[float]) -> None:
    one = summary(values)
    assert pool(values, "mean") == one.mean
    assert pool(values, "median") == pool(values, "p50") == one.percentiles["p50"]
    assert pool(values, "harmonic_mean") <= pool(values, "mean") + 1e-6
    ranked = [pool(values, how) for how in ("min", "p1", "p5", "p50", "p95", "p99", "max")]
    assert ranked == sorted(ranked)


def test_a_frame_of_zero_weighs_heavily_but_does_not_end_all() -> None:
    assert pool([0.0, 100.0], "harmonic_mean") == pytest.approx(2 / (1 + 1 / 101) - 1, abs=1e-6)


def test_a_measure_below_minus_one_has_no_harmonic_mean() -> None:
    assert summary([-3.0, 4.0]).harmonicMean == -3.0
