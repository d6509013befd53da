"""A limit that is shared fairly: nobody gets all of it, and somebody new gets some of it."""

from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmafx.auth.fair_limit import FairLimit, sharing_key
from vmafx.http.errors import Overload, StatusError


def take_all(limit: FairLimit, key: str, stack: ExitStack) -> int:
    """Hold as many as the key gets."""
    for count in range(1000):
        try:
            stack.enter_context(limit.hold(key))
        except StatusError:
            return count
    raise AssertionError("there is no limit")


def test_one_key_gets_half_and_others_get_their_share_of_the_rest() -> None:
    limit = FairLimit(100, "calls")
    with ExitStack() as stack:
        assert take_all(limit, "a", stack) == 50
        assert take_all(limit, "b", stack) == 25
        assert take_all(limit, "a", stack) == 0
        assert take_all(limit, "c", stack) == 13


def test_a_key_gets_no_more_than_the_most_for_each() -> None:
    limit = FairLimit(10, "calls", most=2)
    with ExitStack() as stack:
        assert [take_all(limit, key, stack) for key in "abcdef"] == [2, 2, 2, 2, 1, 1]


def test_what_is_released_is_free_again() -> None:
    limit = FairLimit(2, "calls")
    for _ in range(5):
        with limit.hold("a"), pytest.raises(StatusError, match="too many calls at the same time") as error:
            limit.hold("a", caller="alice").__enter__()
        assert (error.value.code, error.value.caller) == ("RESOURCE_EXHAUSTED", "alice")
    with pytest.raises(ZeroDivisionError), limit.hold("a"):
        raise ZeroDivisionError
    assert not limit._held
    assert not limit._count


def test_a_key_that_holds_nothing_is_refused_because_of_others() -> None:
    limit = FairLimit(2, "calls")
    with limit.hold("a"), limit.hold("b"):
        with pytest.raises(Overload):
            limit.hold("c").__enter__()
        with pytest.raises(StatusError) as error:
            limit.hold("a").__enter__()
    assert not isinstance(error.value, Overload)


@given(st.integers(2, 60), st.lists(st.sampled_from("abcde"), max_size=300))
def test_the_total_is_never_exceeded_and_a_newcomer_gets_in_while_there_is_room(total: int, keys: list[str]) -> None:
    limit, held = FairLimit(total, "calls"), 0
    with ExitStack() as stack:
        for key in keys:
            try:
                stack.enter_context(limit.hold(key))
                held += 1
            except StatusError:
                pass
        assert held <= total
        if total > len(set("abcde")):
            with limit.hold("newcomer"):
                pass


def test_a_known_user_is_counted_apart_from_its_address() -> None:
    assert sharing_key("", "ipv4:192.0.2.1:1234") == sharing_key("", "192.0.2.1") == "address 192.0.2.1"
    assert sharing_key("alice", "192.0.2.1") == sharing_key("alice", "192.0.2.2") == "user alice"
