"""asyncio helpers: blocking calls in threads, and coroutines that an event ends."""

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
