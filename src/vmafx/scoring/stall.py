"""StallWatch: ends the scoring of clips that makes no progress."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Self

from vmafx.scoring.errors import EngineFailure

STALL_TIMEOUT = 600.0  # seconds without a frame
CHECK_INTERVAL = 5.0  # seconds


class StallWatch:
    """Watches clips that are scored together, as a context manager.

    They wait for each other, since they share the decoder of the reference. So only the clip that has waited longest is
    ended, and the others get time to go on. If they do not, the reference itself has stalled, and all are ended.
    """

    def __init__(self) -> None:
        self._progress: dict[asyncio.Timeout, float] = {}  # when each clip last made progress
        self._ended_at = float("-inf")

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(CHECK_INTERVAL, self._check)
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[Callable[[], None]]:
        """Yields a function to call with each progress. Raises EngineFailure if the block is ended."""
        limit = asyncio.timeout(None)
        try:
            async with limit:
                self._note(limit)
                yield lambda: self._note(limit)
        except TimeoutError:
            raise EngineFailure(f"scoring stalled: no frame within {STALL_TIMEOUT:.0f} s") from None
        finally:
            self._progress.pop(limit, None)

    def _note(self, limit: asyncio.Timeout) -> None:
        self._progress[limit] = self._loop.time()

    def _check(self) -> None:
        self._timer = self._loop.call_later(CHECK_INTERVAL, self._check)
        if not self._progress:
            return
        longest, now = min(self._progress, key=lambda limit: self._progress[limit]), self._loop.time()
        if now - self._progress[longest] < STALL_TIMEOUT:
            return
        waiting = [limit for limit, at in self._progress.items() if at <= self._ended_at]
        for limit in waiting or [longest]:  # those that did not go on after the last one was ended
            del self._progress[limit]
            limit.reschedule(now)
        self._ended_at = now
        for other in self._progress:
            self._progress[other] = now
