"""A file without a name, for data on its way through: nothing is left behind, however the process ends."""

import errno
import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NO_TMPFILE = {errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL}
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class DiskFull(Exception):
    """The disk is full, or would be but for the reserve."""


class ScratchFile:
    """Written once from start to end, hashed on the way, then only read. It leaves `reserve` bytes of the disk free.

    Whoever makes one closes it. Except for `size` and `digest`, everything touches the disk: use it through
    `in_thread`. OSError says that the disk failed.
    """

    def __init__(self, folder: str, reserve: int) -> None:
        self.size = 0
        self._reserve = reserve
        self._hash = hashlib.sha256()
        self._fd = _unnamed(folder)

    def close(self) -> None:
        os.close(self._fd)

    @property
    def digest(self) -> str:
        """SHA-256 of what was written, in hexadecimal."""
        return self._hash.hexdigest()

    def require(self, size: int) -> None:
        """NoRoom unless the disk can take `size` bytes more."""
        disk = os.fstatvfs(self._fd)
        if disk.f_bavail * disk.f_frsize - size < self._reserve:
            raise DiskFull

    def write(self, block: bytes | bytearray) -> None:
        self.require(len(block))
        written = 0
        with _full_is_no_room():
            while written < len(block):
                written += os.pwrite(self._fd, memoryview(block)[written:], self.size + written)
        self._hash.update(block)
        self.size += len(block)

    def empty(self) -> None:
        """Start over."""
        os.ftruncate(self._fd, 0)
        self.size, self._hash = 0, hashlib.sha256()

    def seal(self) -> int:
        """Everything is written: from here on the file can only be read. The descriptor stays ours to close."""
        reader = os.open(f"/proc/self/fd/{self._fd}", os.O_RDONLY | os.O_CLOEXEC)
        writer, self._fd = self._fd, reader
        os.close(writer)
        return reader


@contextmanager
def _full_is_no_room() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise DiskFull from error
        raise


def _unnamed(folder: str) -> int:
    """A new file that no folder lists. Where the file system cannot do that, one that loses its name at once."""
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_EXCL | os.O_CLOEXEC, 0o600)
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
