"""Time that passes at once: an event loop whose clock jumps to the next timer instead of waiting for it."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
GRACE = 0.02  # of real time, for the kernel to carry bytes from one of our sockets to another
HOPELESS = 10.0  # of real time, after which what waits for a socket alone waits for nothing


class VirtualLoop(asyncio.SelectorEventLoop):
    """For code that waits for nothing but timers, itself, and sockets whose other end is in the same loop."""

    def __init__(self) -> None:
        super().__init__(_Impatient(self))
        self._virtual = 1000.0

    def time(self) -> float:
        return self._virtual

    def advance(self, seconds: float) -> None:
        self._virtual += seconds


class _Impatient(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        only_the_loops_own = len(self.get_map()) == 1
        patience = HOPELESS if timeout is None else min(timeout, GRACE)
        events = super().select(0 if only_the_loops_own else patience)
        if not events and timeout is None:
            raise AssertionError("everything waits, and nothing is going to happen")
        if not events and timeout:
            self._loop.advance(timeout)
        return events


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
