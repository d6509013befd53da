"""Long work on a terminal: a spinner with what is going on; elsewhere plain lines."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.status import Status
from rich.text import Text

from vmafx.cli.terminal import redraws
from vmafx.devcluster.progress import Lines, Progress


class Spinner:
    """Steps and details take turns behind one spinner."""

    def __init__(self, status: Status) -> None:
        self._status = status
        self._step = ""

    def step(self, text: str) -> None:
        self._step = text
        self._status.update(Text(text))

    def detail(self, text: str) -> None:
        self._status.update(Text(f"{self._step}  ({text})"))


@contextmanager
def progress() -> Iterator[Progress]:
    """Where to report progress to, for as long as the work takes; on standard error."""
    if not redraws(sys.stderr):
        yield Lines()
        return
    with Console(stderr=True).status("") as status:
        yield Spinner(status)
