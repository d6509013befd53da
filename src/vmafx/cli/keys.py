"""Keys, as soon as they are pressed."""

import asyncio
import os
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def heard(hear: Callable[[str], None]) -> Iterator[None]:
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
