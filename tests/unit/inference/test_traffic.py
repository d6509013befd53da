"""The split of requests between primary and canary: numbers of replicas, and the weight that is in force."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmafx.inference.traffic import (
    MAX_CANARY_REPLICAS,
    MAX_MISS,
    achieved_weight,
    canary_replicas,
    canary_share,
    weight_in_force,
)

PRIMARIES = st.integers(1, 1000)
SPLITS = st.integers(1, 99)  # weights for which both tracks get requests


def miss(primary: int, canary: int, weight: int) -> float:
    return abs(100 * canary / (primary + canary) - weight)


@given(PRIMARIES, SPLITS)
def test_no_other_number_of_replicas_is_nearer_to_the_weight(primary: int, weight: int) -> None:
    cap = max(MAX_CANARY_REPLICAS, primary)
    count = canary_replicas(primary, weight)
    assert miss(primary, count, weight) <= min(miss(primary, other, weight) for other in range(1, cap + 1))


@given(PRIMARIES, st.integers(0, 100))
def test_a_canary_has_at_least_one_replica_and_a_limited_number(primary: int, weight: int) -> None:
    assert 1 <= canary_replicas(primary, weight) <= max(MAX_CANARY_REPLICAS, primary)
    assert 1 <= canary_share(primary, weight) <= primary


@given(PRIMARIES, st.integers(0, 98))
def test_a_higher_weight_has_no_fewer_replicas(primary: int, weight: int) -> None:
    assert canary_replicas(primary, weight) <= canary_replicas(primary, weight + 1)
    assert canary_share(primary, weight) <= canary_share(primary, weight + 1)


@given(st.integers(1, 999), st.integers(0, 100))
def test_more_primaries_have_no_fewer_canaries(primary: int, weight: int) -> None:
    assert canary_replicas(primary, weight) <= canary_replicas(primary + 1, weight)
    assert canary_share(primary, weight) <= canary_share(primary + 1, weight)


@given(st.integers(10, 1000), st.integers(5, 50))
def test_ten_primaries_are_enough_for_any_weight_within_the_tolerance(primary: int, weight: int) -> None:
    assert miss(primary, canary_replicas(primary, weight), weight) <= MAX_MISS


@pytest.mark.parametrize(
    ("primary", "weight", "count"),
    [
        (3, 25, 1),
        (9, 10, 1),
        (2, 50, 2),
        (1, 90, 9),
        (1, 1, 1),
        (4, 0, 1),  # kept without requests
        (4, 100, 4),  # takes the place of the primary
        (0, 50, 1),
        (0, 100, 1),
        (2, 99, MAX_CANARY_REPLICAS),
        (200, 99, 200),
    ],
)
def test_replicas_that_make_a_split(primary: int, weight: int, count: int) -> None:
    assert canary_replicas(primary, weight) == count


@pytest.mark.parametrize(
    ("primary", "weight", "count"), [(4, 25, 1), (4, 26, 2), (4, 100, 4), (4, 0, 1), (1, 1, 1), (0, 50, 1)]
)
def test_replicas_for_a_share_of_the_load(primary: int, weight: int, count: int) -> None:
    assert canary_share(primary, weight) == count


@pytest.mark.parametrize("by_replicas", [True, False])
@pytest.mark.parametrize(
    ("wanted", "current", "ready", "weight"),
    [
        (25, 0, 0, 0),  # nobody would answer
        (25, 25, 0, 0),
        (100, 100, 0, 0),
        (25, 0, 2, 25),  # all are ready
        (100, 25, 2, 100),
        (10, 50, 1, 10),  # lowered at once
        (0, 100, 1, 0),
        (100, 100, 1, 100),  # kept while one of them is replaced
    ],
)
def test_the_weight_in_force(wanted: int, current: int, ready: int, weight: int, by_replicas: bool) -> None:
    assert weight_in_force(wanted, current, ready, 2, by_replicas=by_replicas) == weight


def test_a_weight_is_raised_when_the_canary_can_carry_it() -> None:
    assert weight_in_force(50, 10, ready=1, count=2, by_replicas=False) == 10
    assert weight_in_force(50, 10, ready=1, count=2, by_replicas=True) == 50  # the Pod that is not ready gets nothing
    assert weight_in_force(100, 10, ready=1, count=2, by_replicas=True) == 10  # the primary would get nothing


@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 9), st.integers(1, 9), st.booleans())
def test_a_weight_in_force_is_the_wanted_or_the_current_one_or_none(
    wanted: int, current: int, ready: int, count: int, by_replicas: bool
) -> None:
    weight = weight_in_force(wanted, current, ready, count, by_replicas=by_replicas)
    assert weight in ({0} if ready == 0 else {wanted, current})
    assert weight <= max(wanted, current)
    if ready >= count:
        assert weight == wanted
    assert weight == weight_in_force(wanted, weight, ready, count, by_replicas=by_replicas)  # settles


@pytest.mark.parametrize(
    ("weight", "primary", "canary", "achieved"),
    [
        (0, 3, 1, 0),
        (100, 3, 1, 100),
        (100, 3, 0, 0),
        (25, 3, 1, 25),
        (25, 2, 1, 33),
        (25, 0, 1, 100),
        (25, 3, 0, 0),
        (25, 0, 0, 0),
    ],
)
def test_the_weight_that_ready_replicas_achieve(weight: int, primary: int, canary: int, achieved: int) -> None:
    assert achieved_weight(weight, primary, canary) == achieved
