"""How long work is shown to a person: a line when it begins, signs of life, a line when it ends."""

import sys
import time
from typing import Protocol, TextIO


class ProgressReporter(Protocol):
    """Told what is going on; how that looks is the caller's affair."""

    def step(self, text: str) -> None: ...

    def detail(self, text: str) -> None: ...


class PlainProgress:
    """Plain lines, for logs and pipes: every step at once, details at most every few seconds."""

    EVERY = 15.0

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stderr
        self._last = time.monotonic()

    def step(self, text: str) -> None:
        self._last = time.monotonic()
        print(text, file=self._out, flush=True)

    def detail(self, text: str) -> None:
        if time.monotonic() - self._last >= self.EVERY:
            self.step(f"  {text}")


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest:02d}s" if minutes else f"{seconds:.1f}s"
