"""Temporary files for downloads. They have no name, so that nothing is left behind even after SIGKILL."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

from vmafx.scoring.errors import BadInput, InputPart, NodeFault
from vmafx.scoring.media.policy import MediaPolicy, format_size
from vmafx.scratch import DiskFull, QuotaExceeded, ScratchFile
from vmafx.tasks import in_thread

FetchProgress = Callable[[int, int | None], None]


class StagedFile:
    """Receives a download: limits its size, leaves space on the disk, and computes its SHA-256.

    A context manager; enter it through `in_thread`, since that accesses the disk.
    """

    def __init__(
        self, display_name: str, part: InputPart, policy: MediaPolicy, progress: FetchProgress | None = None
    ) -> None:
        self.display_name, self.part, self.policy = display_name, part, policy
        self.total: int | None = None
        self._progress = progress

    def __enter__(self) -> Self:
        folder = ""
        try:
            folder = tempfile.gettempdir()
            self._file = ScratchFile(folder, self.policy.reserve, self.policy.quota)
        except OSError as error:
            where = f"in {folder}" if folder else "in any temporary folder; set TMPDIR"
            raise NodeFault(
                f"cannot store {self.display_name}: cannot create a file {where}: {error.strerror}"
            ) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def size(self) -> int:
        return self._file.size

    @property
    def digest(self) -> str:
        return self._file.digest

    def expect(self, total: int | None) -> None:
        """Sets the total size, and raises an error early if it exceeds a limit or the free space."""
        self.total = total
        if total is not None:
            self.policy.check_size(total, self.display_name, self.part)
            with self._disk():
                self._file.require(total - self.size)

    async def add(self, block: bytes | bytearray) -> None:
        if not block:
            return
        self.policy.check_size(self.size + len(block), self.display_name, self.part)
        with self._disk():
            await in_thread(self._file.write, block)
        if self._progress is not None:
            self._progress(self.size, self.total)

    async def start_over(self) -> None:
        if self.size:
            with self._disk():
                await in_thread(self._file.empty)
            self.total = None

    def seal(self) -> int:
        """Ends the download: makes the file read-only and returns its descriptor, which this object still owns."""
        if self.size == 0:
            raise BadInput(self.part, f"{self.display_name} is empty")
        with self._disk():
            return self._file.seal()

    @contextmanager
    def _disk(self) -> Iterator[None]:
        """Translates errors of the disk and the quota."""
        try:
            yield
        except QuotaExceeded as error:
            raise self.policy.quota_exceeded(self.display_name) from error
        except DiskFull as error:
            size = "" if self.total is None else f" of {format_size(self.total)}"
            folder = tempfile.gettempdir()
            raise NodeFault(
                f"cannot store {self.display_name}{size}: not enough free space in {folder};"
                " free some, or set TMPDIR to a larger disk"
            ) from error
        except OSError as error:
            raise NodeFault(f"cannot store {self.display_name}: the disk failed: {error.strerror}") from error
