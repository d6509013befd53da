"""Where a remote clip lies meanwhile: a file without a name, so that nothing is left behind however we end."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

from vmafx.scoring.errors import BadInput, InputPart, NodeFault
from vmafx.scoring.media.policy import MediaPolicy, format_size
from vmafx.scratch import DiskFull, ScratchFile
from vmafx.tasks import in_thread

FetchProgress = Callable[[int, int | None], None]


class StagedFile:
    """Takes the clip as it comes: never more than allowed, never the last of the disk, hashed on the way.

    Use as a context manager. Entering and writing touch the disk: do both through `in_thread`.
    """

    def __init__(self, shown: str, part: InputPart, policy: MediaPolicy, told: FetchProgress | None = None) -> None:
        self.shown, self.part, self.policy = shown, part, policy
        self.total: int | None = None
        self._told = told

    def __enter__(self) -> Self:
        folder = ""
        try:
            folder = tempfile.gettempdir()
            self._file = ScratchFile(folder, self.policy.reserve)
        except OSError as error:
            where = f"in {folder}" if folder else "in any temporary folder; set TMPDIR"
            raise NodeFault(f"cannot stage {self.shown}: no file can be made {where}: {error.strerror}") from error
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
        """Learn how large it will be, and refuse at once what cannot be had whole."""
        self.total = total
        if total is not None:
            self.policy.bound(total, self.shown, self.part)
            with self._disk():
                self._file.require(total - self.size)

    async def add(self, block: bytes | bytearray) -> None:
        if not block:
            return
        self.policy.bound(self.size + len(block), self.shown, self.part)
        with self._disk():
            await in_thread(self._file.write, block)
        if self._told is not None:
            self._told(self.size, self.total)

    async def start_over(self) -> None:
        if self.size:
            with self._disk():
                await in_thread(self._file.empty)
            self.total = None

    def seal(self) -> int:
        """The clip is whole: from here on its file can only be read. The descriptor stays ours to close."""
        if self.size == 0:
            raise BadInput(self.part, f"{self.shown} is empty")
        with self._disk():
            return self._file.seal()

    @contextmanager
    def _disk(self) -> Iterator[None]:
        try:
            yield
        except DiskFull as error:
            size = "" if self.total is None else f" of {format_size(self.total)}"
            folder = tempfile.gettempdir()
            raise NodeFault(
                f"cannot stage {self.shown}{size}: {folder} has no room; free some, or set TMPDIR to a larger one"
            ) from error
        except OSError as error:
            raise NodeFault(f"cannot stage {self.shown}: the disk failed: {error.strerror}") from error
