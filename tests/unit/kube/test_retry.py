"""When a call is tried again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmafx.kube.errors import (
    ApiError,
    Conflict,
    Expired,
    KubeError,
    NotFound,
    ServerError,
    Status,
    TooManyRequests,
    Unreachable,
    error_for,
    error_from_answer,
)
from vmafx.kube.transport import MAX_RETRY_AFTER, MAX_TRIES, wait_before_retry

BUSY, DOWN = Status(code=429), Status(code=503)


@pytest.mark.parametrize(
    ("error", "idempotent", "again"),
    [
        (TooManyRequests(BUSY, 3), False, True),
        (TooManyRequests(BUSY), False, True),
        (ServerError(DOWN, 3), False, True),
        (ServerError(DOWN), True, False),
        (ServerError(Status(code=500), 3), True, False),
        (ServerError(Status(code=504), 3), True, False),
        (Unreachable("", sent=False), False, True),
        (Unreachable("", sent=True), True, True),
        (Unreachable("", sent=True), False, False),
        (Conflict(Status(code=409)), True, False),
        (NotFound(Status(code=404)), True, False),
    ],
)
def test_only_where_it_cannot_do_a_thing_twice(error: KubeError, idempotent: bool, again: bool) -> None:
    assert (wait_before_retry(error, 1, idempotent=idempotent) is not None) == again


@given(after=st.floats(0, 1e6), tries=st.integers(1, 20), jitter=st.floats(0, 1))
def test_it_ends_and_never_waits_longer_than_the_limit(after: float, tries: int, jitter: float) -> None:
    wait = wait_before_retry(TooManyRequests(BUSY, after), tries, idempotent=True, jitter=lambda: jitter)
    if tries >= MAX_TRIES:
        assert wait is None
    else:
        assert wait is not None
        assert min(after, MAX_RETRY_AFTER) <= wait <= MAX_RETRY_AFTER + 0.1


def test_the_server_is_not_asked_again_before_it_said_so() -> None:
    assert wait_before_retry(ServerError(DOWN, 7), 1, idempotent=False, jitter=lambda: 0.0) == 7


@given(code=st.integers(300, 599), body=st.binary(max_size=300))
def test_any_answer_becomes_an_error_with_its_code(code: int, body: bytes) -> None:
    error = error_from_answer(code, body, None)
    assert isinstance(error, ApiError)
    assert error.status.code == code
    assert str(error)


def test_the_tree() -> None:
    assert isinstance(error_for(Status(code=409, reason="AlreadyExists")), Conflict)
    assert type(error_for(Status(code=409, reason="Conflict"))) is Conflict
    assert isinstance(error_for(Status(code=410)), Expired)
    assert isinstance(error_for(Status(code=504)), ServerError)
    assert type(error_for(Status(code=418))) is ApiError
