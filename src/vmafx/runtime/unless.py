"""Work that is given up when something happens before it is done."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def unless(event: asyncio.Event, work: Coroutine[Any, Any, object]) -> bool:
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
