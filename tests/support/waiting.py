"""Waiting for what somebody else does in their own time, never longer than a limit."""

import time
from collections.abc import Callable


def until(holds: Callable[[], bool], what: str, within: float = 20.0) -> None:
    deadline = time.monotonic() + within
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within} s: {what}")
        time.sleep(0.05)
