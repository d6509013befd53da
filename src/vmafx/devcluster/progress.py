"""Reports long steps to the user: a line per step, and details meanwhile."""

import sys
import time
from typing import Protocol, TextIO


class ProgressReporter(Protocol):
    """Shows steps and their details; the caller decides how."""

    def step(self, text: str) -> None: ...

    def detail(self, text: str) -> None: ...


class PlainProgress:
    """Plain lines, for logs and pipes: every step at once, a detail at most every INTERVAL seconds."""

    INTERVAL = 15.0

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stderr
        self._last = time.monotonic()

    def step(self, text: str) -> None:
        self._last = time.monotonic()
        print(text, file=self._out, flush=True)

    def detail(self, text: str) -> None:
        if time.monotonic() - self._last >= self.INTERVAL:
            self.step(f"  {text}")


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest:02d}s" if minutes else f"{seconds:.1f}s"
