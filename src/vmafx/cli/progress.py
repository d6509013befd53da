"""Progress of scores on standard error: bars on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

import typer

from vmafx.cli.terminal import can_redraw
from vmafx.scoring.result import Progress as Update

if TYPE_CHECKING:
    from vmafx.cli import bars

LINE_INTERVAL = 10.0  # seconds


class ScoreProgress:
    """One bar per distorted clip on a terminal, a line every LINE_INTERVAL elsewhere, nothing if `quiet`."""

    def __init__(self, names: Sequence[str], *, quiet: bool) -> None:
        self.names, self._quiet = names, quiet
        self._bars: bars.ScoreBars | None = None
        if not quiet and can_redraw(sys.stderr):
            from vmafx.cli.bars import ScoreBars  # noqa: PLC0415 - imports rich, which takes time

            self._bars = ScoreBars(names)
        self._last_line: dict[int, float] = {}

    def __enter__(self) -> Self:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._bars is not None:
            self._bars.stop()

    def update(self, number: int, update: Update) -> None:
        if self._bars is not None:
            self._bars.update(number, update)
        elif not self._quiet:
            self._print_line(number, update)

    def fail(self, number: int, stage: str, line: str) -> None:
        """Print the error, even if `quiet`."""
        if self._bars is not None:
            self._bars.fail(number, stage, line)
        else:
            typer.echo(line, err=True)

    def _print_line(self, number: int, update: Update) -> None:
        now = time.monotonic()
        if update.stage == "scoring" and now - self._last_line.setdefault(number, now) >= LINE_INTERVAL:
            self._last_line[number] = now
            left = "" if update.eta is None else f", {update.eta:.0f} s left"
            total = "" if update.total is None else f" of {update.total}"
            typer.echo(f"{self.names[number]}: {update.done}{total} frames, {update.fps:.1f} fps{left}", err=True)
