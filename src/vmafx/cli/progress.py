"""Progress of scores on standard error: bars on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from vmafx.cli.terminal import can_redraw
from vmafx.scoring.result import Progress as Update

LINE_INTERVAL = 10.0  # seconds


class ScoreProgress:
    """One bar per distorted clip on a terminal, a line every LINE_INTERVAL elsewhere, nothing if `quiet`."""

    def __init__(self, names: Sequence[str], *, quiet: bool) -> None:
        self.names, self._quiet = names, quiet
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[speed]}"),
            TimeRemainingColumn(compact=True),
            console=Console(stderr=True),
            transient=True,
            disable=quiet or not can_redraw(sys.stderr),
        )
        self._tasks: dict[int, TaskID] = {}
        self._last_line: dict[int, float] = {}

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._bars.stop()

    def update(self, number: int, update: Update) -> None:
        if self._quiet:
            return
        if self._bars.disable:
            self._print_line(number, update)
            return
        speed = f"{update.fps:.1f} fps" if update.stage == "scoring" else update.activity
        if update.stage == "fetching":
            speed = "MiB downloaded"
        divisor = 1 << 20 if update.stage == "fetching" else 1
        total = None if update.total is None else max(update.total, update.done) / divisor
        self._bars.update(self._task(number), completed=update.done // divisor, total=total, speed=speed)

    def fail(self, number: int, stage: str, line: str) -> None:
        """Print the error, even if `quiet`; the bar of the clip stops and shows `stage`."""
        if self._quiet or self._bars.disable:
            typer.echo(line, err=True)
            return
        self._bars.console.print(Text(line), soft_wrap=True)
        task = self._task(number)
        total = self._bars.tasks[task].total or 1  # without a total, a bar keeps moving
        self._bars.update(task, total=total, speed=stage)
        self._bars.stop_task(task)

    def _task(self, number: int) -> TaskID:
        if number not in self._tasks:
            self._tasks[number] = self._bars.add_task(self.names[number], total=None, speed="")
        return self._tasks[number]

    def _print_line(self, number: int, update: Update) -> None:
        now = time.monotonic()
        if update.stage == "scoring" and now - self._last_line.setdefault(number, now) >= LINE_INTERVAL:
            self._last_line[number] = now
            left = "" if update.eta is None else f", {update.eta:.0f} s left"
            total = "" if update.total is None else f" of {update.total}"
            typer.echo(f"{self.names[number]}: {update.done}{total} frames, {update.fps:.1f} fps{left}", err=True)
