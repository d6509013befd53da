"""Delays between retries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmafx.backoff import Backoff, Retries


def test_delays_double_up_to_the_longest() -> None:
    backoff = Backoff(0.5, 3.0, spread=0)
    assert [backoff.delay(failures) for failures in range(1, 6)] == [0.5, 1.0, 2.0, 3.0, 3.0]


@pytest.mark.parametrize(("jitter", "delay"), [(0.0, 5.0), (0.5, 10.0), (1.0, 15.0)])
def test_jitter_is_spread_around_the_delay(jitter: float, delay: float) -> None:
    assert Backoff(10.0, 10.0, jitter=lambda: jitter).delay(1) == delay


@given(st.integers(-5, 10**9), st.floats(0, 1), st.floats(0, 1))
def test_no_number_of_failures_exceeds_the_longest_delay(failures: int, spread: float, jitter: float) -> None:
    delay = Backoff(0.01, 30.0, spread, lambda: jitter).delay(failures)
    assert 0 < delay <= 30.0 * (1 + spread / 2)


def test_a_server_can_ask_for_a_longer_delay_up_to_the_longest() -> None:
    backoff = Backoff(0.5, 3.0, spread=0)
    assert [backoff.delay(1, at_least=seconds) for seconds in (0.1, 2.0, 100.0)] == [0.5, 2.0, 3.0]
    assert Backoff(0.5, 3.0, spread=0.5, jitter=lambda: 1.0).delay(1, at_least=2.0) == 2.5


def test_retries_count_failures_until_a_reset() -> None:
    retries = Retries(Backoff(1.0, 8.0, spread=0))
    assert [retries.next() for _ in range(3)] == [1.0, 2.0, 4.0]
    retries.reset()
    assert retries.next() == 1.0
