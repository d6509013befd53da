"""Finished answers, on disk until the controller has taken or refused them: a score is computed once.

One file per attempt, there whole or not at all, and on the disk itself before anybody is told that the job is done.
"""

import hashlib
from pathlib import Path

import msgspec

from vmafx.atomic_write import write_atomic
from vmafx.jobs.attempt import AttemptResult
from vmafx.logs import log

MAX_SPOOLED = 1000  # answers; an agent has no more jobs in hand than it can run, so this many were left behind
DAMAGED = ".damaged"


class SpooledResult(msgspec.Struct, frozen=True):
    """An attempt that is done here."""

    id: str
    name: str  # of the VmafxJob
    answer: AttemptResult


class ResultSpool:
    """The answers in one folder, which nobody else uses."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def put(self, done: SpooledResult) -> None:
        """OSError if it cannot be kept."""
        write_atomic(self._path(done.id), msgspec.json.encode(done), durable=True)

    def drop(self, attempt: str) -> None:
        try:
            self._path(attempt).unlink(missing_ok=True)
        except OSError as error:
            log.warn("an answer cannot be removed", job=attempt, error=error.strerror)

    def read(self) -> list[SpooledResult]:
        """All that was left, the oldest first. One that cannot be read is set aside, and those beyond MOST go."""
        found: list[SpooledResult] = []
        files = [path for path in self._folder.iterdir() if path.suffix == ".json"]
        for path in sorted(files, key=lambda path: path.stat().st_mtime_ns):
            try:
                done = msgspec.json.decode(path.read_bytes(), type=SpooledResult)
            except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
                aside = path.with_suffix(DAMAGED)
                log.warn("an answer on disk is damaged, and set aside", file=aside, error=error)
                path.replace(aside)
            else:
                found.append(done)
        for done in found[:-MAX_SPOOLED]:
            log.warn("too many answers were left behind; the oldest is dropped", job=done.id, name=done.name)
            self.drop(done.id)
        return found[-MAX_SPOOLED:]

    def _path(self, attempt: str) -> Path:
        """An attempt's name is somebody else's word, and may be no file name."""
        return self._folder / f"{hashlib.sha256(attempt.encode()).hexdigest()[:32]}.json"
