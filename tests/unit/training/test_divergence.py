"""When two losses mean divergence."""

import numpy as np
import pytest

from vmafx.training.divergence import FACTOR, MARGIN, MIN_ROWS, LossComparison


def compare(live: float, reference: float, times: int = MIN_ROWS) -> LossComparison:
    comparison = LossComparison()
    for _ in range(times):
        comparison.add(live, reference, 1)
    return comparison


@pytest.mark.parametrize(("live", "reference"), [(0, 0), (MARGIN, 0), (FACTOR * 50, 50), (50, 5000)])
def test_a_loss_that_the_reference_has_too_is_no_divergence(live: float, reference: float) -> None:
    assert not compare(live, reference).problem()


@pytest.mark.parametrize(("live", "reference"), [(MARGIN + 1, 0), (FACTOR * 50 + MARGIN + 1, 50)])
def test_a_loss_far_above_the_reference_is_a_divergence(live: float, reference: float) -> None:
    assert not compare(live, reference, MIN_ROWS - 1).problem()
    assert f"rose to {live:.1f}" in compare(live, reference).problem()


def test_single_bad_batches_are_no_divergence_and_lasting_ones_are() -> None:
    rng = np.random.default_rng(1)
    comparison = LossComparison()
    for number in range(500):
        comparison.add(live=100.0 if not number % 50 else float(rng.exponential(9)), reference=9.0, rows=32)
        assert not comparison.problem()
    for _ in range(100):
        comparison.add(live=100.0, reference=9.0, rows=32)
    assert comparison.problem()
