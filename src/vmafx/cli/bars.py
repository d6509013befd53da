"""Progress bars of scores on a terminal, one per distorted clip."""

from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from vmafx.scoring.result import Progress as Update


class ScoreBars:
    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[speed]}"),
            TimeRemainingColumn(compact=True),
            console=Console(stderr=True),
            transient=True,
        )
        self._tasks: dict[int, TaskID] = {}

    def start(self) -> None:
        self._bars.start()

    def stop(self) -> None:
        self._bars.stop()

    def update(self, number: int, update: Update) -> None:
        speed = f"{update.fps:.1f} fps" if update.stage == "scoring" else update.activity
        if update.stage == "fetching":
            speed = "MiB downloaded"
        divisor = 1 << 20 if update.stage == "fetching" else 1
        total = None if update.total is None else max(update.total, update.done) / divisor
        self._bars.update(self._task(number), completed=update.done // divisor, total=total, speed=speed)

    def fail(self, number: int, stage: str, line: str) -> None:
        """Print the error above the bars; the bar of the clip stops and shows `stage`."""
        self._bars.console.print(Text(line), soft_wrap=True)
        task = self._task(number)
        total = self._bars.tasks[task].total or 1  # without a total, a bar keeps moving
        self._bars.update(task, total=total, speed=stage)
        self._bars.stop_task(task)

    def _task(self, number: int) -> TaskID:
        if number not in self._tasks:
            self._tasks[number] = self._bars.add_task(self._names[number], total=None, speed="")
        return self._tasks[number]
