"""The log of a trainer: samples and human scores in the order of their arrival, on disk before they are acknowledged.

The learner reads behind the position in its snapshot, so it uses every record once, also across restarts. Used
records are retained as long as there is room, for human scores that come later.
"""

import hashlib
import threading
from collections import deque
from collections.abc import Collection, Iterator
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
    """What people said about the clip of a job."""

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
        self._attempts = _RecentAttempts(MAX_ATTEMPTS)
        self.batches = 0  # batches that were stored or found in the log
        for _, record in self.read():
            if isinstance(record, StoredSamples):
                self._attempts.add(record.source)
                self.batches += 1

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
            if push.source in self._attempts:
                return False
            self._append(StoredSamples(push.source, push.batch, time))
            self._attempts.add(push.source)
            self.batches += 1
            return True

    def store_human_score(self, score: HumanScore, time: datetime) -> None:
        """Store what people said about a clip. On disk when this returns. Raises OSError."""
        self._append(StoredHumanScore(score.job, score.score, time))

    def read(self, after: int = 0) -> Iterator[LogEntry]:
        """The records behind a position, in order."""
        for position, content in self._log.read(after):
            try:
                record = msgspec.msgpack.decode(content, type=StoredRecord)
            except (msgspec.DecodeError, UnicodeDecodeError):  # of another version of vmafx
                self._undecodable.add(position)
            else:
                yield LogEntry(position, record)

    def find_jobs(self, uids: Collection[str], through: int) -> dict[str, LogEntry]:
        """The samples of these jobs up to a position, by uid; of several attempts, the last. Reads the whole log."""
        found: dict[str, LogEntry] = {}
        for entry in self.read():
            if entry.position > through:
                break
            if isinstance(entry.record, StoredSamples) and entry.record.source.job in uids:
                found[entry.record.source.job] = entry
        return found

    def close(self) -> None:
        self._log.close()

    def _append(self, record: StoredRecord) -> None:
        self._log.append(msgspec.msgpack.encode(record))


class _RecentAttempts:
    """The latest attempts, by hash."""

    def __init__(self, size: int) -> None:
        self._order: deque[int] = deque(maxlen=size)
        self._known: set[int] = set()

    def __contains__(self, source: SampleSource) -> bool:
        return _identity(source) in self._known

    def add(self, source: SampleSource) -> None:
        if len(self._order) == self._order.maxlen:
            self._known.discard(self._order[0])
        self._order.append(_identity(source))
        self._known.add(self._order[-1])


def _identity(source: SampleSource) -> int:
    text = msgspec.msgpack.encode((source.namespace, source.job, source.attempt))
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest())
