"""Waiting for a condition, with a timeout."""

import asyncio
import time
from collections.abc import Callable

PATIENCE = 180.0  # seconds; generous for slow machines, and not spent if the condition holds


def until(holds: Callable[[], bool], what: str, within: float = PATIENCE) -> None:
    deadline = time.monotonic() + within
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within} s: {what}")
        time.sleep(0.05)


async def eventually(holds: Callable[[], object], what: str, within: float = PATIENCE, every: float = 0.1) -> None:
    """Like `until`, for a plain or async condition, without blocking the event loop."""
    deadline = time.monotonic() + within
    while True:
        result = holds()
        if asyncio.iscoroutine(result):
            result = await result
        if result:
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within} s: {what}")
        await asyncio.sleep(every)


async def turns(count: int = 5) -> None:
    """Let the loop run pending callbacks, such as closing aborted connections."""
    for _ in range(count):
        await asyncio.sleep(0)
