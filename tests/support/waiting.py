"""Waiting for what somebody else does in their own time, never longer than a limit."""

import asyncio
import time
from collections.abc import Callable

PATIENCE = 180.0  # seconds: machines are slow, and what goes well waits for none of it


def until(holds: Callable[[], bool], what: str, within: float = PATIENCE) -> None:
    deadline = time.monotonic() + within
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within} s: {what}")
        time.sleep(0.05)


async def eventually(holds: Callable[[], object], what: str, within: float = PATIENCE, every: float = 0.1) -> None:
    """As `until`, for a condition that awaits or not, without standing in the way of what runs here."""
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
    """Let the loop do what it has put off, such as closing what was aborted."""
    for _ in range(count):
        await asyncio.sleep(0)
