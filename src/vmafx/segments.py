"""An append-only log of byte records, in segment files of one folder.

A record has a position: a number from 1 that increases by one and is never used again. The name of a segment has the
position of its first record, that of the last record before it, by which a truncated segment is found, and a random
marker that starts each of its records:

    00000000000000000001-00000000000000000000-9f86d081884c7d65.segment
    record: marker (8 bytes), CRC-32 of the rest (4), length (4), position (8), content; big-endian

After damage, reading goes on at the next marker. It is random, so that a record cannot contain another one.
"""

import bisect
import errno
import fcntl
import os
import re
import secrets
import struct
import threading
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

MAX_RECORD_BYTES = 16 << 20
SEGMENT_BYTES = 4 << 20
_HEADER = struct.Struct(">8sIIQ")
_CHECKED_FROM = 12  # the checksum covers the header from here, and the content
_NAME = re.compile(r"(\d{20})-(\d{20})-([0-9a-f]{16})\.segment")


class LogInUse(Exception):
    """Another process uses the folder."""


class LogFull(OSError):
    """The log has reached its size limit with records that must be kept."""


class _Segment(msgspec.Struct):
    path: Path
    first: int  # position of the first record
    follows: int  # position of the last record before it; there may be a gap between them
    marker: bytes
    size: int = 0


class _Record(NamedTuple):
    position: int
    content: bytes
    end: int  # its offset in what was parsed


class _Cursor(NamedTuple):
    """The record that was read last, so that the next read does not parse its segment again."""

    segment: _Segment | None
    position: int
    end: int


class SegmentLog:
    """The log in one folder, which one process uses at a time. Its methods may be called by several threads."""

    def __init__(
        self, folder: Path, *, max_bytes: int = 1 << 40, segment_bytes: int = SEGMENT_BYTES, after: int = 0
    ) -> None:
        """Open or create the log; a record that was not written completely is cut off.

        `max_bytes` limits the folder: the oldest segment is dropped for a new record. `after` is a position that the
        caller remembers: records up to it that are missing are damage. Raises LogInUse, OSError.
        """
        self.damaged = 0  # records that were skipped because their checksum was wrong
        self.dropped = 0  # records that were dropped because the folder was full
        self.keep_from: int | None = None  # records from this position on are not dropped for new ones
        self._folder, self._max_bytes = folder, max_bytes
        self._segment_bytes = min(segment_bytes, max_bytes // 4)
        self._lock = threading.Lock()
        self._damage: dict[int, int] = {}  # positions at which damage was found, and the number of records
        self._released = 0  # records before this position are no loss
        self._cursor = _Cursor(None, 0, 0)
        self._unclean = False  # there may be bytes behind the last record
        self._file = -1
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder_lock = _lock_folder(folder)
        try:
            self._segments = _find_segments(folder)
            self._recover(after)
        except BaseException:
            self.close()
            raise

    @property
    def end(self) -> int:
        """The position of the last record, also if it was dropped; 0 before the first one."""
        return self._next - 1

    @property
    def damage(self) -> dict[int, int]:
        """The damage that was found in the segments of now: the first position of each, and the number of records."""
        with self._lock:
            return dict(self._damage)

    @property
    def size(self) -> int:
        """Bytes in the folder."""
        with self._lock:
            return sum(segment.size for segment in self._segments)

    def append(self, content: bytes, *, durable: bool = True) -> int:
        """Write a record; returns its position. `durable`: it is on the disk when this returns.

        Raises OSError, such as for a full disk, or LogFull; the record is not in the log then.
        """
        return self.append_all((content,), durable=durable)

    def append_all(self, contents: Iterable[bytes], *, durable: bool = True) -> int:
        """Write several records, all or none, and sync once; returns the position of the last one."""
        with self._lock:
            records = list(contents)
            size = sum(_HEADER.size + len(content) for content in records)
            if any(len(content) > MAX_RECORD_BYTES for content in records) or size > self._max_bytes:
                raise ValueError(f"{size} bytes do not fit into the log in {self._folder}")
            active = self._segments[-1]
            if active.size and active.size + size > self._segment_bytes:
                active = self._start_segment(self._next, self._next - 1)
            self._make_room(size)
            encoded = (_encode(active.marker, self._next + i, content) for i, content in enumerate(records))
            self._write(active, b"".join(encoded), durable=durable)
            self._next += len(records)
            return self._next - 1

    def sync(self) -> None:
        """Make sure that all records are on the disk."""
        with self._lock:
            os.fdatasync(self._file)

    def read(self, after: int = 0) -> Iterator[tuple[int, bytes]]:
        """The records behind the position `after`, with their positions, in order. Damaged ones are skipped."""
        for segment, last, size in self._to_read(after):
            cursor = self._cursor
            resumed = cursor.segment is segment and cursor.position == after
            start = cursor.end if resumed else 0
            expected = after + 1 if resumed else segment.first
            for record in _parse(_read_from(segment.path, start, size), segment.marker, expected, last + 1):
                self._count_damage(expected, record.position)
                expected = record.position + 1
                if record.position > after:
                    self._cursor = _Cursor(segment, record.position, start + record.end)
                    yield record.position, record.content
            if segment.path.exists():
                self._count_damage(expected, last + 1)

    def drop_before(self, position: int) -> None:
        """Delete the segments that have only records before `position`."""
        with self._lock:
            self._released = max(self._released, position)
            self._delete_before(position)
            if position >= self._next and self._segments[-1].size:
                self._start_segment(self._next, self._next - 1)  # its name keeps the next position
                self._delete_before(position)

    def close(self) -> None:
        """Release the folder."""
        for fd in (self._file, self._folder_lock):
            if fd >= 0:
                os.close(fd)
        self._file = self._folder_lock = -1

    def _recover(self, after: int) -> None:
        """Find the end of the last segment, and cut off what is behind it."""
        last = self._segments[-1] if self._segments else None
        if last is None:
            self._start_segment(after + 1, after)
            return
        expected, end = last.first, 0
        content = last.path.read_bytes()
        for record in _parse(content, last.marker, expected, 1 << 64):
            self._count_damage(expected, record.position)
            expected, end = record.position + 1, record.end
        rest = content[end:]
        # The rest may have been records whose positions others know: those are not used again.
        unusable = max(1, len(rest) // _HEADER.size) if rest else 0
        if rest or after >= expected:
            lost = max(after + 1 - expected, int(_is_complete(rest)))
            self._start_segment(max(expected + unusable, after + 1), expected - 1)
            os.truncate(last.path, end)
            last.size = end
            self._count_damage(expected, expected + lost)
        else:
            self._open(last)
            self._next = expected

    def _start_segment(self, first: int, follows: int) -> _Segment:
        if self._file >= 0:
            os.fdatasync(self._file)
        marker = secrets.token_bytes(8)
        path = self._folder / f"{first:020d}-{follows:020d}-{marker.hex()}.segment"
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        _sync_folder(self._folder)
        segment = _Segment(path, first, follows, marker)
        self._open(segment)
        self._segments.append(segment)
        self._next = first
        return segment

    def _open(self, segment: _Segment) -> None:
        file = os.open(segment.path, os.O_WRONLY | os.O_CLOEXEC)
        if self._file >= 0:
            os.close(self._file)
        self._file, self._unclean = file, False

    def _write(self, segment: _Segment, content: bytes, *, durable: bool) -> None:
        """Write behind the last record; what a failure has left is cut off now, or before the next write."""
        if self._unclean:
            os.ftruncate(self._file, segment.size)
        self._unclean = True
        view, offset = memoryview(content), segment.size
        try:
            while view:
                written = os.pwrite(self._file, view, offset)
                view, offset = view[written:], offset + written
            if durable:
                os.fdatasync(self._file)
        except OSError:
            os.ftruncate(self._file, segment.size)
            raise
        segment.size, self._unclean = offset, False

    def _make_room(self, size: int) -> None:
        while len(self._segments) > 1 and sum(segment.size for segment in self._segments) + size > self._max_bytes:
            oldest, following = self._segments[:2]
            if self.keep_from is not None and following.first > self.keep_from:
                raise LogFull(errno.ENOSPC, f"{self._folder} has {self._max_bytes} bytes of records that are in use")
            self.dropped += max(0, following.first - max(oldest.first, self._released))
            self._delete_oldest()

    def _delete_before(self, position: int) -> None:
        while len(self._segments) > 1 and self._segments[1].first <= position:
            self._delete_oldest()

    def _delete_oldest(self) -> None:
        oldest = self._segments.pop(0)
        oldest.path.unlink(missing_ok=True)
        first = self._segments[0].first
        self._damage = {position: count for position, count in self._damage.items() if position >= first}

    def _to_read(self, after: int) -> list[tuple[_Segment, int, int]]:
        """The segments with records behind `after`, the position of the last record of each, and its size."""
        with self._lock:
            if after >= self._next - 1:
                return []
            start = max(0, bisect.bisect_right([segment.first for segment in self._segments], after + 1) - 1)
            found = self._segments[start:]
            last = [segment.follows for segment in found[1:]] + [self._next - 1]
            return [(segment, position, segment.size) for segment, position in zip(found, last, strict=True)]

    def _count_damage(self, expected: int, found: int) -> None:
        with self._lock:
            if found > expected and expected not in self._damage:
                self._damage[expected] = found - expected
                self.damaged += found - expected


def _encode(marker: bytes, position: int, content: bytes) -> bytes:
    rest = _HEADER.pack(marker, 0, len(content), position)[_CHECKED_FROM:]
    return _HEADER.pack(marker, zlib.crc32(content, zlib.crc32(rest)), len(content), position) + content


def _parse(content: bytes, marker: bytes, first: int, limit: int) -> Iterator[_Record]:
    """The intact records with increasing positions from `first` to before `limit`."""
    offset = 0
    while (offset := content.find(marker, offset)) >= 0 and offset + _HEADER.size <= len(content):
        _, checksum, length, position = _HEADER.unpack_from(content, offset)
        start = offset + _HEADER.size
        record = content[start : start + length]
        header = content[offset + _CHECKED_FROM : start]
        if first <= position < limit and len(record) == length and zlib.crc32(record, zlib.crc32(header)) == checksum:
            offset = start + length
            first = position + 1
            yield _Record(position, record, offset)
        else:
            offset += 1


def _is_complete(rest: bytes) -> bool:
    """Whether the rest of a segment could be a complete record that was damaged later."""
    return len(rest) >= _HEADER.size and _HEADER.unpack_from(rest)[2] <= len(rest) - _HEADER.size


def _read_from(path: Path, offset: int, size: int) -> bytes:
    """The file from `offset` to `size`; nothing if it cannot be read, as if all of it were damaged."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(size - offset)
    except OSError:
        return b""


def _find_segments(folder: Path) -> list[_Segment]:
    found = [(path, match) for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))]
    segments = [_Segment(path, int(m[1]), int(m[2]), bytes.fromhex(m[3]), path.stat().st_size) for path, m in found]
    # A segment that could not be started completely is empty, and has the first position of the one that was.
    return sorted(segments, key=lambda segment: (segment.first, segment.size))


def _lock_folder(folder: Path) -> int:
    fd = os.open(folder / ".lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise LogInUse(f"another process uses {folder}; stop it, or choose another folder") from None
    return fd


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
