"""When a failed call is tried again: only where that cannot do a thing twice."""

import random
from collections.abc import Callable

from vmafx.backoff import Backoff
from vmafx.kube.errors import KubeError, ServerError, TooManyRequests, Unreachable, Untrusted

TRIES = 6
FIRST_WAIT, LONGEST_WAIT = 0.1, 2.0
LONGEST_ASKED = 30.0  # seconds that the server may ask us to wait


def wait_before_retry(
    error: KubeError, tries: int, *, idempotent: bool, jitter: Callable[[], float] = random.random
) -> float | None:
    """Seconds to wait before the next try, or None to give up.

    The server turned the request away (429, or 503 with Retry-After): it did nothing, and says when to come back.
    The connection failed: a request that was never sent may be sent again; one that was, only if it is idempotent.
    """
    if tries >= TRIES:
        return None
    backoff = Backoff(FIRST_WAIT, LONGEST_WAIT, jitter=jitter)
    match error:
        case Untrusted():
            return None
        case TooManyRequests() | ServerError() if error.retry_after is not None and error.status.code in (429, 503):
            return min(error.retry_after, LONGEST_ASKED) + jitter() * 0.1
        case TooManyRequests():
            return backoff.delay(tries)
        case Unreachable() if idempotent or not error.sent:
            return backoff.delay(tries)
    return None
