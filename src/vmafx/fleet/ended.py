"""Jobs that ended: those that the server has, as far as they are read, and those that end while somebody looks."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from vmafx.api.job import FINISHED
from vmafx.fleet.rows import JobRow, job_row, key_of
from vmafx.fleet.views import SeenJob
from vmafx.kube import Key
from vmafx.runtime.store import Change

REMEMBERED = 10_000
WINDOW = 60.0  # seconds over which speed is measured


class Pace(msgspec.Struct, frozen=True):
    """What the fleet got done in the last minute, a second; None where too little of it was seen to say."""

    jobs: float | None = None
    frames: float | None = None


class Ended:
    """The jobs that ended, each once. `whole` is false once there are more of them than these."""

    def __init__(self) -> None:
        self.whole = True
        self._rows: dict[Key, JobRow] = {}
        self._since: datetime | None = None  # from when on none was missed; None: none ever was

    def read(self, jobs: Iterable[SeenJob], now: datetime, *, whole: bool) -> None:
        """What the server has, read anew: all of it if `whole`."""
        self._rows, self.whole, self._since = {}, whole, None if whole else now
        for job in jobs:
            self._put(job)

    def hear(self, change: Change[SeenJob]) -> None:
        """Of every change of a job."""
        if change.new is None:
            self._rows.pop(change.key, None)
        elif change.new.status.phase in FINISHED:
            self._put(change.new)

    def phases(self) -> dict[str, int]:
        found = Counter(row.phase for row in self._rows.values())
        return {phase: found[phase] for phase in FINISHED}

    def latest(self, most: int) -> list[JobRow]:
        """The last ones, the latest first."""
        told = [row for row in self._rows.values() if row.finished is not None]
        return sorted(told, key=_finished, reverse=True)[:most]

    def pace(self, now: datetime) -> Pace:
        seen = WINDOW if self._since is None else min(WINDOW, (now - self._since).total_seconds())
        if seen < 1:
            return Pace()
        began = now - timedelta(seconds=seen)
        recent = [row for row in self._rows.values() if row.finished is not None and row.finished >= began]
        frames = sum(row.frames or 0 for row in recent if row.phase == "Succeeded")
        return Pace(len(recent) / seen, frames / seen)

    def _put(self, job: SeenJob) -> None:
        self._rows[key_of(job)] = job_row(job)
        if len(self._rows) > REMEMBERED:
            del self._rows[next(iter(self._rows))]
            self.whole = False


def _finished(row: JobRow) -> tuple[float, str, str]:
    return (row.finished.timestamp() if row.finished else 0.0, *row.key)
