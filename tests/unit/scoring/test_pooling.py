"""Pooling of frame values, compared with numpy and with the definitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmafx.scoring.pooling import PERCENTILES, pool, summary

SCORES = st.lists(st.floats(0, 100), min_size=1, max_size=200)


@given(SCORES)
def test_a_summary_agrees_with_numpy(values: list[float]) -> None:
    one = summary(values)
    assert one.mean == pytest.approx(np.mean(values), abs=1e-6)
    assert (one.min, one.max) == pytest.approx((min(values), max(values)), abs=1e-6)
    for percent in PERCENTILES:
        assert one.percentiles[f"p{percent}"] == pytest.approx(np.percentile(values, percent), abs=2e-6)
    assert one.harmonicMean == pytest.approx(1 / np.mean(1 / (np.array(values) + 1)) - 1, abs=2e-6)


@given(SCORES)
def test_poolings_agree_with_the_summary_and_are_ordered(values: list[float]) -> None:
    one = summary(values)
    assert pool(values, "mean") == one.mean
    assert pool(values, "median") == pool(values, "p50") == one.percentiles["p50"]
    assert pool(values, "harmonic_mean") <= pool(values, "mean") + 1e-6
    ranked = [pool(values, pooling) for pooling in ("min", "p1", "p5", "p50", "p95", "p99", "max")]
    assert ranked == sorted(ranked)


def test_a_frame_of_zero_does_not_make_the_harmonic_mean_zero() -> None:
    assert pool([0.0, 100.0], "harmonic_mean") == pytest.approx(2 / (1 + 1 / 101) - 1, abs=1e-6)


def test_with_values_below_minus_one_the_harmonic_mean_is_the_minimum() -> None:
    assert summary([-3.0, 4.0]).harmonicMean == -3.0
