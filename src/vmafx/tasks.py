"""asyncio helpers: blocking calls in threads, and coroutines that end early."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[..., T], *arguments: object, hurry: Callable[[], None] | None = None) -> T:
    """Run `work` in a thread, and do not leave before it ends, even when cancelled.

    What it works on is closed right after, and a descriptor closed under a thread may be somebody else's by then.
    `hurry` is called when we are cancelled, and lets it end sooner.
    """
    running = asyncio.get_running_loop().run_in_executor(None, work, *arguments)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        if hurry is not None:
            hurry()
        while not running.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        if not running.cancelled():
            running.exception()  # looked at: nobody else will
        raise


async def run_unless(event: asyncio.Event, work: Coroutine[Any, Any, object]) -> bool:
    """True when `work` is done; False when the event came before."""
    coming, working = asyncio.create_task(event.wait()), asyncio.create_task(work)
    try:
        await asyncio.wait({coming, working}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
        return working.done()
    finally:
        for task in (coming, working):
            task.cancel()
        await asyncio.gather(coming, working, return_exceptions=True)
