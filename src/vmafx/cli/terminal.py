"""The terminal or pipe that a command writes to: redrawing, key presses, and closed pipes."""

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

T = TypeVar("T")


def can_redraw(stream: TextIO) -> bool:
    """Whether lines that were written can be overwritten: on a terminal, unless TERM is dumb."""
    return stream.isatty() and os.environ.get("TERM", "").lower() not in {"dumb", "unknown"}


@contextmanager
def key_presses(on_key: Callable[[str], None]) -> Iterator[None]:
    """Call `on_key` for each key press, if standard input is a terminal. Ctrl-C still interrupts."""
    if not sys.stdin.isatty():
        yield
        return
    terminal, loop = sys.stdin.fileno(), asyncio.get_running_loop()

    def read() -> None:
        keys = os.read(terminal, 64).decode(errors="replace")
        if not keys:  # the terminal was closed
            loop.remove_reader(terminal)
        for key in keys:
            on_key(key)

    attributes = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)
    loop.add_reader(terminal, read)
    try:
        yield
    finally:
        loop.remove_reader(terminal)
        termios.tcsetattr(terminal, termios.TCSADRAIN, attributes)


async def until_pipe_closes(work: Coroutine[Any, Any, T]) -> T:
    """Run `work`; raise BrokenPipeError as soon as the reader closes the pipe, even if nothing is being written."""
    task, closed = asyncio.create_task(work), asyncio.create_task(_pipe_closed())
    try:
        await asyncio.wait((task, closed), return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else closed.result()
    finally:
        task.cancel()
        closed.cancel()
        await asyncio.gather(task, closed, return_exceptions=True)


async def _pipe_closed() -> NoReturn:
    """Raise BrokenPipeError once the reader of standard output closed it; never returns if that is not a pipe."""
    closed, loop, output = asyncio.Event(), asyncio.get_running_loop(), sys.stdout.fileno()
    if not stat.S_ISFIFO(os.fstat(output).st_mode):
        await asyncio.Event().wait()
    # The write end of a pipe becomes readable only when the read end is closed.
    loop.add_reader(output, closed.set)
    try:
        await closed.wait()
    finally:
        loop.remove_reader(output)
    raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
