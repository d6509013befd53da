"""Progress of vmaf-tune on standard error: a bar on a terminal, plain lines elsewhere."""

import sys
import time
from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import Self

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Column

from vmafx.cli.terminal import can_redraw
from vmafx.tune.compare import TuneProgress

LINE_INTERVAL = 10.0  # seconds
ONE_LINE = Column(no_wrap=True, overflow="ellipsis")
MIN_PASSED = 5.0  # seconds, before an estimate of the time left means something
RECENT = 7  # lines that it is based on: what an earlier run has done goes by in a moment


def time_left(recent: Sequence[tuple[float, float]]) -> str:
    """By the times and shares of some moments; empty if that says nothing yet."""
    (started, before), (now, share) = recent[0], recent[-1]
    if now - started <= MIN_PASSED or share <= before:
        return ""
    seconds = round((now - started) * (1 - share) / (share - before))
    return f", {seconds} s left" if seconds < 120 else f", {timedelta(seconds=seconds)} left"


class TuneDisplay:
    """One bar for the stage that is under way, with the jobs of a cluster; nothing if `quiet`."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet, self._last_line, self._stage = quiet, 0.0, ""
        self._text, self._jobs, self._shown_jobs = "", "", ""
        self._recent = deque[tuple[float, float]](maxlen=RECENT)  # times and shares of this stage
        self._bar: Progress | None = None
        if not quiet and can_redraw(sys.stderr):
            self._bar = Progress(
                TextColumn("{task.description}", markup=False, table_column=ONE_LINE),
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
            self._stage = progress.stage
            self._recent.clear()
            self._recent.append((now, progress.share))
        what = f"{progress.stage} {progress.encode}"
        self._text = f"{what} ({done})" if done else what
        if self._bar is not None:
            if is_new:
                self._bar.reset(self._task, total=1.0, completed=progress.share)  # type: ignore[arg-type]
            self._bar.update(self._task, description=self._with_jobs(self._text), completed=progress.share)
        elif not self._quiet and now - self._last_line >= LINE_INTERVAL:
            self._recent.append((now, progress.share))
            left, finished = time_left(self._recent), f", {done} finished" if done else ""
            self._print(self._with_jobs(f"{what}: {progress.share:.0%}{finished}{left}"))

    def show_jobs(self, jobs: str) -> None:
        """Show how many jobs of a cluster are in which state, beside what this machine does."""
        self._jobs = jobs
        if self._bar is not None:
            self._bar.update(self._task, description=self._with_jobs(self._text))
        elif not self._quiet and jobs != self._shown_jobs and time.monotonic() - self._last_line >= LINE_INTERVAL:
            self._print(self._with_jobs(self._text))

    def _with_jobs(self, text: str) -> str:
        return "; ".join(filter(None, (text, f"cluster: {self._jobs}" if self._jobs else "")))

    def _print(self, line: str) -> None:
        self._last_line, self._shown_jobs = time.monotonic(), self._jobs
        typer.echo(line, err=True)
