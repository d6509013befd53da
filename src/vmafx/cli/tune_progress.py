"""Progress of vmaf-tune on standard error: a bar on a terminal, plain lines elsewhere."""

import sys
import time
from types import TracebackType
from typing import Self

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from vmafx.cli.terminal import can_redraw
from vmafx.tune.compare import TuneProgress

LINE_INTERVAL = 10.0  # seconds
MIN_PASSED = 5.0  # seconds, before an estimate of the time left means something


class TuneDisplay:
    """One bar for the stage that is under way; nothing if `quiet`."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet, self._last_line, self._stage = quiet, 0.0, ""
        self._started = time.monotonic()
        self._bar: Progress | None = None
        if not quiet and can_redraw(sys.stderr):
            self._bar = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TaskProgressColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task("", total=1.0)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, progress: TuneProgress) -> None:
        now, done = time.monotonic(), f"{progress.finished} of {progress.total}" if progress.total else ""
        is_new = progress.stage != self._stage
        if is_new:
            self._stage, self._started = progress.stage, now
        if self._bar is not None:
            if is_new:
                self._bar.reset(self._task, total=1.0)
            text = f"{progress.stage} {progress.encode} ({done})" if done else f"{progress.stage} {progress.encode}"
            self._bar.update(self._task, description=text, completed=progress.share)
        elif not self._quiet and now - self._last_line >= LINE_INTERVAL:
            self._last_line = now
            passed = now - self._started
            left = (
                f", {passed * (1 - progress.share) / progress.share:.0f} s left"
                if passed > MIN_PASSED and progress.share
                else ""
            )
            finished = f", {done} finished" if done else ""
            typer.echo(f"{progress.stage} {progress.encode}: {progress.share:.0%}{finished}{left}", err=True)
