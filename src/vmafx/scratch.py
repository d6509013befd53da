"""Temporary files without a name: the kernel deletes them when the process ends, for any reason."""

import errno
import hashlib
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NO_TMPFILE = {errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL}  # file systems without O_TMPFILE
_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class DiskFull(Exception):
    """The disk is full, or has only its reserve left."""


class QuotaExceeded(Exception):
    """The scratch files of a quota would be larger than it allows."""


class ScratchQuota:
    """The bytes that several scratch files may have together; without a limit if it is 0. Safe to use in threads."""

    def __init__(self, limit: int = 0) -> None:
        self.limit, self.used = limit, 0
        self._lock = threading.Lock()

    def require(self, size: int) -> None:
        """Raise QuotaExceeded unless there is room for `size` more bytes."""
        if self.limit and self.used + size > self.limit:
            raise QuotaExceeded

    def take(self, size: int) -> None:
        with self._lock:
            self.require(size)
            self.used += size

    def give_back(self, size: int) -> None:
        with self._lock:
            self.used -= size


class ScratchFile:
    """A file that is written once from start to end and hashed meanwhile, then sealed and read.

    Writes leave `reserve` bytes of the disk free, and count towards `quota` until the file is closed. The creator
    closes the file. All methods access the disk: call them with `in_thread`. They raise OSError if the disk fails.
    `linkable`: it can get a name later, where the file system can do that.
    """

    def __init__(self, folder: str, reserve: int, quota: ScratchQuota | None = None, *, linkable: bool = False) -> None:
        self.size = 0
        self._reserve, self._quota, self._taken = reserve, quota or ScratchQuota(), 0
        self._hash = hashlib.sha256()
        self._fd = _open_unnamed(folder, 0 if linkable else os.O_EXCL)

    def close(self) -> None:
        os.close(self._fd)
        self._release()

    @property
    def digest(self) -> str:
        """SHA-256 of the content, in hexadecimal."""
        return self._hash.hexdigest()

    def require(self, size: int) -> None:
        """Raise QuotaExceeded or DiskFull unless there is room for `size` more bytes."""
        self._quota.require(size)
        disk = os.fstatvfs(self._fd)
        if disk.f_bavail * disk.f_frsize - size < self._reserve:
            raise DiskFull

    def write(self, block: bytes | bytearray) -> None:
        self.require(len(block))
        self._quota.take(len(block))
        self._taken += len(block)
        written = 0
        with _enospc_as_disk_full():
            while written < len(block):
                written += os.pwrite(self._fd, memoryview(block)[written:], self.size + written)
        self._hash.update(block)
        self.size += len(block)

    def empty(self) -> None:
        """Discard the content, to write again from the start."""
        os.ftruncate(self._fd, 0)
        self._release()
        self.size, self._hash = 0, hashlib.sha256()

    def seal(self) -> int:
        """Make the file read-only and return its descriptor, which `close` closes."""
        reader = os.open(f"/proc/self/fd/{self._fd}", os.O_RDONLY | os.O_CLOEXEC)
        writer, self._fd = self._fd, reader
        os.close(writer)
        return reader

    def _release(self) -> None:
        self._quota.give_back(self._taken)
        self._taken = 0


@contextmanager
def _enospc_as_disk_full() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _DISK_FULL:
            raise DiskFull from error
        raise


def _open_unnamed(folder: str, flags: int) -> int:
    """Create a file without a name; on file systems without O_TMPFILE, one whose name is removed at once."""
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC | flags, 0o600)
    except OSError as error:
        if error.errno not in _NO_TMPFILE:
            raise
    fd, name = tempfile.mkstemp(dir=folder)
    try:
        Path(name).unlink(missing_ok=True)
    except OSError:
        os.close(fd)
        raise
    return fd
