"""What of a terminal a command can rely on."""

from typing import TextIO

from rich.console import Console


def redraws(stream: TextIO) -> bool:
    """Whether what was written can be written over. On a dumb terminal it cannot: there, lines follow one another."""
    return stream.isatty() and not Console(file=stream).is_dumb_terminal
