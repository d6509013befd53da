"""Where a remote clip lies meanwhile: a file without a name, so that nothing is left behind however we end."""

import errno
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from vmafx.scoring.errors import BadInput, NodeFault, Part
from vmafx.scoring.media.policy import Policy, in_units
from vmafx.scoring.media.threads import in_thread

_NO_TMPFILE = {errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL}
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
Told = Callable[[int, int | None], None]


class Staging:
    """Takes the clip as it comes: never more than allowed, never the last of the disk, hashed on the way.

    Use as a context manager. Entering and writing touch the disk: do both through `in_thread`.
    """

    def __init__(self, shown: str, part: Part, policy: Policy, told: Told | None = None) -> None:
        self.shown, self.part, self.policy = shown, part, policy
        self.size = 0
        self.total: int | None = None
        self._told = told
        self._hash = hashlib.sha256()
        self._fd = -1

    def __enter__(self) -> Self:
        folder = ""
        try:
            folder = tempfile.gettempdir()
            self._fd = _unnamed(folder)
        except OSError as error:
            where = f"in {folder}" if folder else "in any temporary folder; set TMPDIR"
            raise NodeFault(f"cannot stage {self.shown}: no file can be made {where}: {error.strerror}") from error
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    def expect(self, total: int | None) -> None:
        """Learn how large it will be, and refuse at once what cannot be had whole."""
        self.total = total
        if total is not None:
            self.policy.bound(total, self.shown, self.part)
            self._need(total - self.size)

    async def add(self, block: bytes | bytearray) -> None:
        if not block:
            return
        self.policy.bound(self.size + len(block), self.shown, self.part)
        await in_thread(self._write, block)
        if self._told is not None:
            self._told(self.size, self.total)

    async def start_over(self) -> None:
        if self.size:
            await in_thread(self._empty)

    def seal(self) -> int:
        """The clip is whole: from here on its file can only be read. The descriptor stays ours to close."""
        if self.size == 0:
            raise BadInput(self.part, f"{self.shown} is empty")
        with self._disk():
            reader = os.open(f"/proc/self/fd/{self._fd}", os.O_RDONLY | os.O_CLOEXEC)
        os.close(self._fd)
        self._fd = reader
        return reader

    def _write(self, block: bytes | bytearray) -> None:
        self._need(len(block))
        written = 0
        with self._disk():
            while written < len(block):
                written += os.pwrite(self._fd, memoryview(block)[written:], self.size + written)
        self._hash.update(block)
        self.size += len(block)

    def _empty(self) -> None:
        with self._disk():
            os.ftruncate(self._fd, 0)
        self.size, self.total, self._hash = 0, None, hashlib.sha256()

    def _need(self, size: int) -> None:
        with self._disk():
            disk = os.fstatvfs(self._fd)
        if disk.f_bavail * disk.f_frsize - size < self.policy.reserve:
            raise self._no_room()

    @contextmanager
    def _disk(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in _FULL:
                raise self._no_room() from error
            raise NodeFault(f"cannot stage {self.shown}: the disk failed: {error.strerror}") from error

    def _no_room(self) -> NodeFault:
        size = "" if self.total is None else f" of {in_units(self.total)}"
        folder = tempfile.gettempdir()
        return NodeFault(
            f"cannot stage {self.shown}{size}: {folder} has no room; free some, or set TMPDIR to a larger one"
        )


def _unnamed(folder: str) -> int:
    """A new file that no folder lists. Where the file system cannot do that, one that loses its name at once."""
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in _NO_TMPFILE:
            raise
    fd, name = tempfile.mkstemp(dir=folder)
    with suppress(FileNotFoundError):
        Path(name).unlink()
    return fd
