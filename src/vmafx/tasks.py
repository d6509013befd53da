"""asyncio helpers: blocking calls in threads, coroutines that an event ends, and waiting for changes."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[..., T], *arguments: object, on_cancel: Callable[[], None] | None = None) -> T:
    """Run `work` in a thread and return only once it has ended, even when cancelled.

    Callers close the files that it uses next; a thread that still ran would then use a reused descriptor.
    `on_cancel` is called on cancellation, and may make `work` end sooner.
    """
    running = asyncio.get_running_loop().run_in_executor(None, work, *arguments)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        if on_cancel is not None:
            on_cancel()
        while not running.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        if not running.cancelled():
            running.exception()  # marks it as retrieved, so that asyncio does not warn
        raise


async def run_unless(event: asyncio.Event, work: Coroutine[Any, Any, object]) -> bool:
    """Run `work` until it is done (True) or the event is set (False); then it is cancelled."""
    waiting, working = asyncio.create_task(event.wait()), asyncio.create_task(work)
    try:
        await asyncio.wait({waiting, working}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
        return working.done()
    finally:
        for task in (waiting, working):
            task.cancel()
        await asyncio.gather(waiting, working, return_exceptions=True)


class Changes:
    """Wakes those who wait for the next change of something."""

    def __init__(self) -> None:
        self.version = 0  # grows with each change
        self._waiters: set[asyncio.Future[None]] = set()

    def notify(self) -> None:
        self.version += 1
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def after(self, since: int) -> int:
        """Wait until the version is not `since`, and return it."""
        while self.version == since:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.add(waiter)
            try:
                await waiter
            finally:
                self._waiters.discard(waiter)
        return self.version
