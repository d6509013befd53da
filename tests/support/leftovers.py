"""What code leaves on this machine: processes, files, changed files, and open descriptors."""

import hashlib
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from tests.support.agent_process import children, read
from tests.support.waiting import eventually, until

CANARY = "canary.txt"  # every process of this user may change it


class Watched(NamedTuple):
    """The folders that a process knows by its environment."""

    home: Path
    temporary: Path
    working: Path


@contextmanager
def watched_folders(folder: Path) -> Iterator[Watched]:
    """HOME, TMPDIR and the working folder are fresh for the length of the block, each with a canary in it."""
    folders = Watched(*(folder / name for name in Watched._fields))
    for one in folders:
        one.mkdir()
        (one / CANARY).write_text("unchanged")
        (one / CANARY).chmod(0o666)
    before = Path.cwd()
    os.chdir(folders.working)
    try:
        with (
            mock.patch.dict(os.environ, {"HOME": str(folders.home), "TMPDIR": str(folders.temporary)}),
            mock.patch("tempfile.tempdir", str(folders.temporary)),
        ):
            yield folders
    finally:
        os.chdir(before)


class MachineState:
    """Processes, descriptors and files, at the time of its creation; later, what has been added or has changed."""

    def __init__(self, *folders: Path) -> None:
        self._folders = folders
        self._files, self._descriptors, self._processes = self._read_files(), descriptors(), self._read_processes()

    async def check(self) -> None:
        """Raises AssertionError unless all is as before, once the event loop has closed what it is about to close."""
        try:
            await eventually(lambda: not self.changes(), "nothing has changed", within=30)
        except AssertionError:
            changes = self.changes()
            if changes:
                raise AssertionError(f"left on this machine: {'; '.join(changes)}") from None

    def changes(self) -> list[str]:
        files = self._read_files()
        paths = sorted(path for path in {*files, *self._files} if files.get(path) != self._files.get(path))
        return [
            *(f"process {pid}: {command}" for pid, command in (self._read_processes() - self._processes)),
            *(f"descriptor {fd}: {target}" for fd, target in (descriptors() - self._descriptors)),
            *(f"file {path}" for path in paths),
        ]

    def _read_files(self) -> dict[Path, tuple[int, int, str]]:
        """Times, modes and contents; a folder's time changes even if a file in it is created and deleted."""
        entries = [path for folder in self._folders for path in (folder, *folder.rglob("*"))]
        return {path: _file_state(path) for path in entries}

    def _read_processes(self) -> set[tuple[int, str]]:
        """Children of this process, and processes that lost their parent but have its working folder."""
        own = os.getpid()
        found = {*children(own), *(pid for pid in _processes() if pid != own and _working_folder(pid) in self._folders)}
        return {(pid, _command(pid)) for pid in found}


def end_processes_in(folder: Path, within: float) -> list[str]:
    """Kill the processes that are still in `folder`, or were started with a path in it, after `within` seconds.

    Returns a line about each. Processes that have only just lost their parent end meanwhile.
    """
    with suppress(AssertionError):
        until(lambda: not _processes_in(folder), "processes have ended", within)
    left = _processes_in(folder)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return [f"process {pid}: {command}" for pid, command in left.items()]


def _processes_in(folder: Path) -> dict[int, str]:
    """Their commands by pid. A zombie has neither a folder nor a command."""
    found = {}
    for pid in _processes():
        working = _working_folder(pid)
        inside = working is not None and working.is_relative_to(folder)
        if pid != os.getpid() and (inside or f"{folder}/" in read(pid, "cmdline")):
            found[pid] = _command(pid).strip()
    return found


def descriptors() -> set[tuple[int, str]]:
    """The open descriptors of this process and what they lead to."""
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # that of the listing
            found.add((int(link.name), str(link.readlink())))
    return {(fd, target) for fd, target in found if not target.endswith(f"/proc/{os.getpid()}/fd")}


def _file_state(path: Path) -> tuple[int, int, str]:
    status = path.stat()
    content = path.read_bytes() if path.is_file() else b""
    return status.st_mtime_ns, status.st_mode, hashlib.sha256(content).hexdigest()


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def _working_folder(pid: int) -> Path | None:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cwd").readlink()
    return None


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")[:200]
    return "ended"
