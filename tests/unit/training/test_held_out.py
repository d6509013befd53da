"""The held-out window, and quality by its definitions."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmafx.training.held_out import WINDOW, HeldOutWindow, is_held_out, pearson, quality, ranks
from vmafx.training.status import Quality

VALUES = st.lists(st.integers(-5, 5).map(float), min_size=1, max_size=60)


@given(st.lists(st.integers(1, WINDOW + 500), max_size=4))
def test_the_window_keeps_the_latest_samples(sizes: list[int]) -> None:
    window = HeldOutWindow()
    for begin, end in pairwise(np.cumsum([0, *sizes])):
        numbers = np.arange(begin, end, dtype=np.float64)
        window.add(np.repeat(numbers[:, None], 6, axis=1), numbers, clip=int(begin))
    total = sum(sizes)
    expected = np.arange(max(0, total - WINDOW), total)
    assert np.array_equal(window.targets, expected)
    assert np.array_equal(window.features[:, 3], expected)
    assert len(window) == len(HeldOutWindow(window.rows)) == min(total, WINDOW)


def test_another_score_of_a_clip_replaces_its_samples() -> None:
    window = HeldOutWindow()
    for clip, target in ((1, 10.0), (2, 20.0), (1, 30.0)):
        window.add(np.zeros((5, 6)), np.full(5, target), clip)
    assert window.targets.tolist() == [20.0] * 5 + [30.0] * 5


def test_one_clip_in_ten_is_held_out_by_its_job() -> None:
    held = [is_held_out(f"8f4e{number:04d}-uid") for number in range(5000)]
    assert 400 < sum(held) < 600
    assert is_held_out("x") == is_held_out("x")


@given(VALUES)
def test_ranks_are_means_of_the_positions_of_equal_values(values: list[float]) -> None:
    ordered = sorted(values)
    expected = [np.mean([place + 1 for place, other in enumerate(ordered) if other == value]) for value in values]
    assert ranks(np.array(values)) == pytest.approx(np.array(expected))


@given(VALUES)
def test_the_correlation_agrees_with_numpy(values: list[float]) -> None:
    first, second = np.array(values), np.array(values)[::-1] + np.arange(len(values)) / 7
    found = pearson(first, second)
    if np.ptp(first) and np.ptp(second):
        assert found == pytest.approx(float(np.corrcoef(first, second)[0, 1]), abs=1e-12)
    else:
        assert found is None


def test_the_quality_of_a_monotonic_function() -> None:
    targets = np.linspace(0, 100, 50)
    found = quality(targets**2 / 100, targets)
    assert found.spearman == 1.0
    assert found.pearson is not None
    assert 0.9 < found.pearson < 1.0
    assert found.loss == pytest.approx(np.mean((targets**2 / 100 - targets) ** 2))


def test_quality_without_enough_samples() -> None:
    assert quality(np.empty(0), np.empty(0)) == Quality()
    assert quality(np.array([3.0]), np.array([5.0])) == Quality(loss=4.0)
    assert quality(np.array([3.0, 3.0]), np.array([5.0, 1.0])) == Quality(loss=4.0)
