"""Steps of a long action on standard error: a spinner on a terminal, plain lines elsewhere."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.status import Status
from rich.text import Text

from vmafx.cli.terminal import can_redraw
from vmafx.devcluster.progress import PlainProgress, ProgressReporter


class Spinner:
    """Shows the current step and its latest detail behind one spinner."""

    def __init__(self, status: Status) -> None:
        self._status = status
        self._step = ""

    def step(self, text: str) -> None:
        self._step = text
        self._status.update(Text(text))

    def detail(self, text: str) -> None:
        self._status.update(Text(f"{self._step}  ({text})"))


@contextmanager
def spinner() -> Iterator[ProgressReporter]:
    """A reporter of steps: a spinner on a terminal, plain lines elsewhere."""
    if not can_redraw(sys.stderr):
        yield PlainProgress()
        return
    with Console(stderr=True).status("") as status:
        yield Spinner(status)
