"""Retries of interrupted transfers."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import msgspec

from vmafx.backoff import Backoff
from vmafx.scoring.errors import NodeFault

MIN_ADVANCE = 1 << 20  # bytes between two failures that count as progress


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How often to retry, and the delays in between."""

    tries: int = 5  # without progress in between
    backoff: Backoff = Backoff(0.5, 30.0)
    max_asked: float = 60.0  # seconds; limit for a server's Retry-After

    def wait(self, failures: int, asked: float | None) -> float:
        """Seconds to wait after this many failures in a row; `asked` is the server's Retry-After."""
        return self.backoff.delay(failures) if asked is None else min(asked, self.max_asked)


class TransferInterrupted(Exception):
    """A transfer ended early; the next try may resume it. `after` is the server's Retry-After in seconds."""

    def __init__(self, why: str, after: float | None = None) -> None:
        super().__init__(why)
        self.why, self.after = why, after


async def retry_transfer(
    transfer: Callable[[], Awaitable[None]], size: Callable[[], int], retry: RetryPolicy, action: str
) -> None:
    """Calls `transfer` until it does not raise TransferInterrupted. `size` returns the bytes so far; it may shrink.

    Only exceeding the largest size so far counts as progress; otherwise a server that always breaks off at the same
    point would be retried forever. `action` starts the error message.
    """
    failures = largest = 0
    while True:
        try:
            await transfer()
        except TransferInterrupted as error:
            interrupted = error
        else:
            return
        if size() >= largest + MIN_ADVANCE:
            failures, largest = 0, size()
        failures += 1
        if failures >= retry.tries:
            raise NodeFault(f"{action}: {interrupted.why}, {failures} times in a row; try again later")
        await asyncio.sleep(retry.wait(failures, interrupted.after))


def retry_after(header: str, now: datetime | None = None) -> float | None:
    """Parses a Retry-After header, a number of seconds or a date; None if it is neither."""
    if header.isascii() and header.isdecimal():
        return float(header[:9])
    try:
        until = parsedate_to_datetime(header)
    except ValueError:
        return None
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    return max(0.0, (until - (now or datetime.now(UTC))).total_seconds())
