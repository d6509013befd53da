"""The terminal and the pipe a command writes to: redrawing, key presses, and readers that go away."""

import asyncio
import errno
import os
import stat
import sys
import termios
import tty
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TextIO, TypeVar

from rich.console import Console


def can_redraw(stream: TextIO) -> bool:
    """Whether what was written can be written over. On a dumb terminal it cannot: there, lines follow one another."""
    return stream.isatty() and not Console(file=stream).is_dumb_terminal


@contextmanager
def key_presses(hear: Callable[[str], None]) -> Iterator[None]:
    """Tell of each key while inside. Where nobody sits before a keyboard, of none. Ctrl-C stays what it is."""
    if not sys.stdin.isatty():
        yield
        return
    terminal, loop = sys.stdin.fileno(), asyncio.get_running_loop()

    def read() -> None:
        pressed = os.read(terminal, 64).decode(errors="replace")
        if not pressed:  # the terminal is gone
            loop.remove_reader(terminal)
        for key in pressed:
            hear(key)

    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)
    loop.add_reader(terminal, read)
    try:
        yield
    finally:
        loop.remove_reader(terminal)
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


T = TypeVar("T")


async def until_reader_leaves(work: Coroutine[Any, Any, T]) -> T:
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
