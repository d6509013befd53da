"""Virtual time: an event loop whose clock jumps to the next timer instead of waiting for it."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
GRACE = 0.02  # real seconds for the kernel to transfer bytes between two sockets of the loop
HOPELESS = 10.0  # real seconds after which waiting for a socket alone is a deadlock


class VirtualLoop(asyncio.SelectorEventLoop):
    """For code that waits only for timers, tasks, and sockets whose other end is in the same loop."""

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
