"""When a failed call is retried, and which error a response becomes."""

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
    error_from_response,
)
from vmafx.kube.transport import MAX_RETRY_AFTER, MAX_TRIES, retry_delay

BUSY, DOWN = Status(code=429), Status(code=503)


@pytest.mark.parametrize(
    ("error", "idempotent", "retried"),
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
def test_a_call_is_retried_only_if_it_cannot_take_effect_twice(
    error: KubeError, idempotent: bool, retried: bool
) -> None:
    assert (retry_delay(error, 1, idempotent=idempotent) is not None) == retried


@given(after=st.floats(0, 1e6), tries=st.integers(1, 20), jitter=st.floats(0, 1))
def test_retries_end_and_their_delay_is_limited(after: float, tries: int, jitter: float) -> None:
    delay = retry_delay(TooManyRequests(BUSY, after), tries, idempotent=True, jitter=lambda: jitter)
    if tries >= MAX_TRIES:
        assert delay is None
    else:
        assert delay is not None
        assert min(after, MAX_RETRY_AFTER) <= delay <= MAX_RETRY_AFTER + 0.1


def test_a_retry_waits_for_retry_after() -> None:
    assert retry_delay(ServerError(DOWN, 7), 1, idempotent=False, jitter=lambda: 0.0) == 7


@given(code=st.integers(300, 599), body=st.binary(max_size=300))
def test_any_error_response_becomes_an_error_with_its_code(code: int, body: bytes) -> None:
    error = error_from_response(code, body, None)
    assert isinstance(error, ApiError)
    assert error.status.code == code
    assert str(error)


def test_a_status_becomes_the_error_of_its_code_and_reason() -> None:
    assert isinstance(error_for(Status(code=409, reason="AlreadyExists")), Conflict)
    assert type(error_for(Status(code=409, reason="Conflict"))) is Conflict
    assert isinstance(error_for(Status(code=410)), Expired)
    assert isinstance(error_for(Status(code=504)), ServerError)
    assert type(error_for(Status(code=418))) is ApiError
