"""The log of a trainer: samples and human scores in the order of their arrival, on disk before they are acknowledged.

The learner reads behind the position in its snapshot, so it uses every record once, also across restarts. Used
records are retained as long as there is room, for human scores that come later.
"""

import hashlib
import threading
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from vmafx.segments import SegmentLog
from vmafx.training.samples import HumanScore, SampleBatch, SamplePush, SampleSource

MAX_ATTEMPTS = 100_000  # whose samples are recognised when they come again


class StoredSamples(msgspec.Struct, frozen=True, tag="samples"):
    """The samples of an attempt, as they came."""

    source: SampleSource
    batch: bytes
    time: datetime

    def decode(self) -> SampleBatch:
        """The batch, which was checked before it was stored."""
        return msgspec.msgpack.decode(self.batch, type=SampleBatch)


class StoredHumanScore(msgspec.Struct, frozen=True, tag="human"):
    """The human score of a job."""

    job: str
    score: float
    time: datetime


StoredRecord = StoredSamples | StoredHumanScore


class LogEntry(NamedTuple):
    """A record at its position in the log."""

    position: int
    record: StoredRecord


class SampleLog:
    """The log in one folder. Its methods block on the disk, and may be called by several threads."""

    def __init__(self, folder: Path, *, max_bytes: int, after: int = 0) -> None:
        """`after`: the position in the learner's snapshot. Raises LogInUse, OSError."""
        self._log = SegmentLog(folder, max_bytes=max_bytes, after=after)
        self._lock = threading.Lock()
        self._undecodable: set[int] = set()
        self._attempts = _RecentPositions()
        self._jobs = _RecentPositions()
        for position, record in self.read():
            if isinstance(record, StoredSamples):
                self._remember(record.source, position)

    @property
    def end(self) -> int:
        """The position of the last record."""
        return self._log.end

    @property
    def size(self) -> int:
        """Bytes on the disk."""
        return self._log.size

    @property
    def damage(self) -> dict[int, int]:
        """What was skipped because it was damaged: positions in the log, and the number of records at each."""
        return self._log.damage | dict.fromkeys(self._undecodable, 1)

    @property
    def dropped(self) -> int:
        """Used records that were dropped to make room."""
        return self._log.dropped

    def keep_from(self, position: int) -> None:
        """Do not drop the records behind this position: the oldest snapshot that may be loaded has not used them."""
        self._log.keep_from = position + 1

    def store(self, push: SamplePush, time: datetime) -> bool:
        """Store samples that were checked; False if the attempt had sent some before. On disk when this returns.

        Raises OSError: LogFull if no used record can be dropped for these.
        """
        with self._lock:
            if self._attempts.find(_attempt(push.source)) is not None:
                return False
            record = StoredSamples(push.source, push.batch, time)
            self._remember(push.source, self._log.append(msgspec.msgpack.encode(record)))
            return True

    def store_human_scores(self, scores: Iterable[HumanScore], time: datetime) -> None:
        """Store the human scores of jobs. On disk when this returns. Raises OSError."""
        records = [StoredHumanScore(score.job, score.score, time) for score in scores]
        self._log.append_all(map(msgspec.msgpack.encode, records))

    def read(self, after: int = 0) -> Iterator[LogEntry]:
        """The records behind a position, in order."""
        for position, content in self._log.read(after):
            try:
                record = msgspec.msgpack.decode(content, type=StoredRecord)
                if isinstance(record, StoredSamples):
                    record.decode()
            except (msgspec.DecodeError, UnicodeDecodeError):  # of another version of vmafx
                self._undecodable.add(position)
            else:
                yield LogEntry(position, record)

    def find_job(self, uid: str, through: int) -> LogEntry | None:
        """The samples of a job, unless they are behind a position or no longer in the log; the last of its attempts."""
        position = self._jobs.find((uid,))
        if position is None or position > through:
            return None
        entry = next(self.read(position - 1), None)
        return entry if entry is not None and entry.position == position else None

    def _remember(self, source: SampleSource, position: int) -> None:
        self._attempts.add(_attempt(source), position)
        self._jobs.add((source.job,), position)

    def close(self) -> None:
        self._log.close()


class _RecentPositions:
    """Positions in the log, by hashes of what they are about: the latest MAX_ATTEMPTS."""

    def __init__(self) -> None:
        self._positions: dict[int, int] = {}

    def find(self, names: tuple[str, ...]) -> int | None:
        return self._positions.get(_hash(names))

    def add(self, names: tuple[str, ...], position: int) -> None:
        key = _hash(names)
        self._positions.pop(key, None)
        self._positions[key] = position
        if len(self._positions) > MAX_ATTEMPTS:
            del self._positions[next(iter(self._positions))]


def _attempt(source: SampleSource) -> tuple[str, ...]:
    return source.namespace, source.job, source.attempt


def _hash(names: tuple[str, ...]) -> int:
    return int.from_bytes(hashlib.blake2b(msgspec.msgpack.encode(names), digest_size=8).digest())
