"""When a broken transfer goes on, and when it is given up."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import msgspec

from vmafx.backoff import Backoff
from vmafx.scoring.errors import NodeFault

MIN_ADVANCE = 1 << 20  # less than this between two breaks is no progress


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How often, and how long apart."""

    tries: int = 5  # without progress in between
    backoff: Backoff = Backoff(0.5, 30.0)
    max_asked: float = 60.0  # seconds that a server may ask us to wait

    def wait(self, failures: int, asked: float | None) -> float:
        """Seconds to wait after so many failures in a row."""
        return self.backoff.delay(failures) if asked is None else min(asked, self.max_asked)


class TransferInterrupted(Exception):
    """A transfer that ended before the clip was whole; another try may go on from there."""

    def __init__(self, why: str, after: float | None = None) -> None:
        super().__init__(why)
        self.why, self.after = why, after


async def retry_transfer(
    transfer: Callable[[], Awaitable[None]], size: Callable[[], int], retry: RetryPolicy, complaint: str
) -> None:
    """Call `transfer` until it does not raise Lost. `size` tells how far it came, which may fall when it starts over.

    Only getting farther than ever counts as progress: a server that never serves the end would keep us forever.
    """
    failures = farthest = 0
    while True:
        try:
            await transfer()
        except TransferInterrupted as error:
            lost = error
        else:
            return
        if size() >= farthest + MIN_ADVANCE:
            failures, farthest = 0, size()
        failures += 1
        if failures >= retry.tries:
            raise NodeFault(f"{complaint}: {lost.why}, {failures} times in a row; try again later")
        await asyncio.sleep(retry.wait(failures, lost.after))


def retry_after(header: str, now: datetime | None = None) -> float | None:
    """The seconds of a Retry-After header, which are a number or a date; None if it is neither."""
    if header.isascii() and header.isdecimal():
        return float(header[:9])
    try:
        until = parsedate_to_datetime(header)
    except ValueError:
        return None
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    return max(0.0, (until - (now or datetime.now(UTC))).total_seconds())
