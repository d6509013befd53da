"""Progress output of the demo, its error type, and paths as it shows them."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.text import Text


class DemoError(Exception):
    """The demo cannot continue; the text says why and what to do."""


class StepPrinter:
    """Prints one line per finished step; on a terminal, a spinner while it runs.

    DevCluster reports its own progress through `step` and `detail`.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self._current = ""

    @contextmanager
    def running(self, title: str) -> Iterator[None]:
        started, self._current = time.monotonic(), title
        self._status = self.console.status(Text(title))
        with self._status:
            yield
        self.print(f"✓ {title}", f"  {time.monotonic() - started:.1f} s")

    def print(self, text: str, dimmed: str = "") -> None:
        self.console.print(Text.assemble(text, (dimmed, "dim")), soft_wrap=True)

    def step(self, text: str) -> None:
        """Print a line about something slow, such as a build."""
        self.print(text)

    def detail(self, text: str) -> None:
        """Show `text` after the title of the running step."""
        self._status.update(Text(f"{self._current}  ({text})"))


def short_path(path: Path) -> str:
    """Relative to the current folder, if the path is below it."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
