"""When a failed call is tried again: only where that cannot do a thing twice."""

import random
from collections.abc import Callable

from vmafx.kube.errors import KubeError, ServerError, TooManyRequests, Unreachable, Untrusted

TRIES = 6
LONGEST_WAIT = 30.0


def wait_before_retry(
    error: KubeError, tries: int, *, idempotent: bool, jitter: Callable[[], float] = random.random
) -> float | None:
    """Seconds to wait before the next try, or None to give up.

    The server turned the request away (429, or 503 with Retry-After): it did nothing, and says when to come back.
    The connection failed: a request that was never sent may be sent again; one that was, only if it is idempotent.
    """
    if tries >= TRIES:
        return None
    match error:
        case Untrusted():
            return None
        case TooManyRequests() | ServerError() if error.retry_after is not None and error.status.code in (429, 503):
            return min(error.retry_after, LONGEST_WAIT) + jitter() * 0.1
        case TooManyRequests():
            return _backoff(tries, jitter)
        case Unreachable() if idempotent or not error.sent:
            return _backoff(tries, jitter)
    return None


def _backoff(tries: int, jitter: Callable[[], float]) -> float:
    return float(min(0.1 * 2 ** (tries - 1), 2.0)) * (0.5 + jitter())
