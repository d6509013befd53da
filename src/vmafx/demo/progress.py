"""The demo's steps as they are shown, and its error."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text


class DemoError(Exception):
    """The demo cannot go on; the text says why and what to do."""


class StepPrinter:
    """On a terminal a spinner until a step is done; elsewhere only lines. `step` and `detail` are for the cluster."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._current = ""

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        began, self._current = time.monotonic(), what
        self._status = self.console.status(Text(what))
        with self._status:
            yield
        self.say(f"✓ {what}", f"  {time.monotonic() - began:.1f} s")

    def say(self, text: str, aside: str = "") -> None:
        self.console.print(Text.assemble(text, (aside, "dim")), soft_wrap=True)

    def step(self, text: str) -> None:
        """What takes long enough to be told, such as a build."""
        self.say(text)

    def detail(self, text: str) -> None:
        self._status.update(Text(f"{self._current}  ({text})"))
