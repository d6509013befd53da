"""Whether anybody still reads what is printed."""

import asyncio
import errno
import os
import stat
import sys
from collections.abc import Coroutine
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")


async def while_read(work: Coroutine[Any, Any, T]) -> T:
    """Do `work` until nobody reads the output any more: BrokenPipeError then, as if something had been written."""
    task, gone = asyncio.create_task(work), asyncio.create_task(_closed())
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else gone.result()
    finally:
        task.cancel()
        gone.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _closed() -> NoReturn:
    """Once the reader of the pipe to which the output goes is gone; never, if it is no pipe."""
    closed, loop, output = asyncio.Event(), asyncio.get_running_loop(), sys.stdout.fileno()
    if not stat.S_ISFIFO(os.fstat(output).st_mode):
        await asyncio.Event().wait()
    # There is nothing to be read at this end of a pipe: it becomes readable by an error only.
    loop.add_reader(output, closed.set)
    try:
        await closed.wait()
    finally:
        loop.remove_reader(output)
    raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
