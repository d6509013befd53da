"""Finished results, on disk until the controller has accepted or rejected them, so that no score is computed twice.

One file per attempt, written atomically and synced to the disk before the result is reported.
"""

import hashlib
from pathlib import Path

import msgspec

from vmafx.atomic_write import write_atomic
from vmafx.jobs.attempt import AttemptResult
from vmafx.logs import log

MAX_SPOOLED = 1000  # results; a running agent has no more of them than slots, so these piled up over many restarts
DAMAGED_SUFFIX = ".damaged"


class SpooledResult(msgspec.Struct, frozen=True):
    """The result of an attempt."""

    id: str
    name: str  # of the VmafxJob
    answer: AttemptResult


class ResultSpool:
    """The results in one folder, which only this agent uses."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def put(self, done: SpooledResult) -> None:
        """Store a result. Raises OSError."""
        write_atomic(self._path(done.id), msgspec.json.encode(done), durable=True)

    def drop(self, attempt: str) -> None:
        try:
            self._path(attempt).unlink(missing_ok=True)
        except OSError as error:
            log.warn("cannot delete a reported result", attempt=attempt, error=error.strerror)

    def read(self) -> list[SpooledResult]:
        """The stored results, oldest first. A damaged file is renamed; the oldest beyond MAX_SPOOLED are deleted."""
        found: list[SpooledResult] = []
        files = [path for path in self._folder.iterdir() if path.suffix == ".json"]
        for path in sorted(files, key=lambda path: path.stat().st_mtime_ns):
            try:
                done = msgspec.json.decode(path.read_bytes(), type=SpooledResult)
            except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                aside = path.with_suffix(DAMAGED_SUFFIX)
                log.warn("damaged result file renamed", file=aside, error=error)
                path.replace(aside)
            else:
                found.append(done)
        for done in found[:-MAX_SPOOLED]:
            log.warn("too many unreported results; the oldest is deleted", job=done.name, attempt=done.id)
            self.drop(done.id)
        return found[-MAX_SPOOLED:]

    def _path(self, attempt: str) -> Path:
        """The ID comes from the controller and may not be a valid file name, so it is hashed."""
        return self._folder / f"{hashlib.sha256(attempt.encode()).hexdigest()[:32]}.json"
