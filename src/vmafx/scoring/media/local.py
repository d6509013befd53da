"""Clips and reports in files of this machine. Clips are read from `roots`, reports are written to `outputs`."""

import asyncio
import errno
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from vmafx.atomic_write import write_in_folder
from vmafx.scoring.errors import DISK_ERRORS, BadInput, InputPart, NodeFault, ScoringError
from vmafx.scoring.media.policy import OUTPUT_DIR, OUTPUT_REPLACE, MediaPolicy
from vmafx.scoring.media.staging import FetchProgress
from vmafx.scoring.media.uri import Location
from vmafx.tasks import in_thread

_NO_SUCH_FILE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG}
_NO_PERMISSION = {errno.EACCES, errno.EPERM}
COPY_BLOCK = 1 << 20
_OWNER = "user.vmafx.job"  # extended attribute of a report: the uid of its job
_FILE_TYPES = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


@contextmanager
def local_file(location: Location, part: InputPart, policy: MediaPolicy) -> Iterator[int]:
    """A descriptor for reading. The checks apply to the opened file, not to its name."""
    try:
        fd = _open(location, part, policy)
    except OSError as error:
        raise _translated(error, location, part, policy) from None
    try:
        yield fd
    finally:
        os.close(fd)


def _open(location: Location, part: InputPart, policy: MediaPolicy) -> int:
    # O_PATH refers to the file without opening it: it neither blocks on a pipe nor acts on a device.
    path_fd = os.open(location.target, os.O_PATH | os.O_CLOEXEC)
    try:
        link = Path(f"/proc/self/fd/{path_fd}")
        if not _within_roots(link.readlink(), policy):
            raise _outside_roots(location, part)
        status = os.fstat(path_fd)
        if not stat.S_ISREG(status.st_mode):
            file_type = _FILE_TYPES.get(stat.S_IFMT(status.st_mode), "a special file")
            raise BadInput(part, f"{location.display_name} is {file_type}; it must be a regular file")
        if status.st_size == 0:
            raise BadInput(part, f"{location.display_name} is empty")
        policy.check_size(status.st_size, location.display_name, part)
        return os.open(link, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
    finally:
        os.close(path_fd)


def _within_roots(path: Path, policy: MediaPolicy) -> bool:
    return not policy.roots or _is_in(path, policy.roots)


def _is_in(path: Path, folders: tuple[Path, ...]) -> bool:
    return any(path.is_relative_to(folder.resolve()) for folder in folders)


def _outside_roots(location: Location, part: InputPart) -> BadInput:
    return BadInput(part, f"{location.display_name} is outside the folders that VMAFX_MEDIA_ROOTS allows")


def _translated(error: OSError, location: Location, part: InputPart, policy: MediaPolicy) -> ScoringError:
    # The answer for paths outside the roots must not reveal whether they exist.
    if not _within_roots(Path(os.path.realpath(location.target)), policy):
        return _outside_roots(location, part)
    if error.errno in _NO_SUCH_FILE:
        return BadInput(part, f"there is no file {location.display_name}; check the path")
    if error.errno in _NO_PERMISSION:
        return BadInput(
            part, f"{location.display_name} cannot be read: permission denied; make it readable for this user"
        )
    return NodeFault(f"cannot open {location.display_name}: {error.strerror}")


async def put(location: Location, content: bytes, policy: MediaPolicy) -> None:
    """Write a report. It replaces an earlier report of the same job, and another file only if the policy allows it."""
    await in_thread(_write, location, content, policy)


async def put_file(location: Location, fd: int, policy: MediaPolicy, progress: FetchProgress | None) -> None:
    """Copy an open file, in place of one of that name. Cancellation stops the copy, and leaves nothing."""
    stop, loop = threading.Event(), asyncio.get_running_loop()

    def copy(file: BinaryIO) -> None:
        size, done = os.fstat(fd).st_size, 0
        while block := os.pread(fd, COPY_BLOCK, done):
            if stop.is_set():
                raise InterruptedError(errno.EINTR, "it was stopped")
            file.write(block)
            done += len(block)
            if progress is not None:
                loop.call_soon_threadsafe(progress, done, size)

    def write() -> None:
        with _output_folder(location, policy) as folder, _output_errors(location):
            write_in_folder(folder, Path(location.target).name, copy, replace=True)

    await in_thread(write, on_cancel=stop.set)


async def stored_size(location: Location, policy: MediaPolicy) -> int | None:
    """The bytes of a file in one of the folders for outputs; None if there is none."""

    def look() -> int | None:
        with _output_folder(location, policy) as folder, _output_errors(location):
            try:
                status = os.stat(Path(location.target).name, dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:
                return None
        if not stat.S_ISREG(status.st_mode):
            raise BadInput(
                "options", f"{location.display_name} is not a regular file; delete it, or use another folder"
            )
        return status.st_size

    return await in_thread(look)


async def check_output(location: Location, policy: MediaPolicy) -> None:
    """Raises the error of `put` if the folder is missing or not allowed, before the clips are scored."""

    def check() -> None:
        with _output_folder(location, policy):
            pass

    await in_thread(check)


def _write(location: Location, content: bytes, policy: MediaPolicy) -> None:
    name = Path(location.target).name

    def mark(fd: int) -> None:
        with suppress(OSError):  # not every file system has attributes
            os.setxattr(fd, _OWNER, policy.job.encode())

    with _output_folder(location, policy) as folder, _output_errors(location):
        try:
            write_in_folder(folder, name, lambda file: file.write(content), replace=policy.replace_outputs, finish=mark)
        except FileExistsError:
            owner, same = _compare(folder, name, content)
            if policy.job and owner == policy.job:
                write_in_folder(folder, name, lambda file: file.write(content), replace=True, finish=mark)
            elif not same:
                raise BadInput(
                    "options",
                    f"output {location.display_name} exists already and is not a report of this job; delete it, use"
                    f" another name, or set {OUTPUT_REPLACE}=true on the node",
                ) from None


def _compare(folder: int, name: str, content: bytes) -> tuple[str, bool]:
    """The job that wrote a file, and whether it has this content; empty and False if it is not a regular file."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, dir_fd=folder)
    except OSError:  # a symbolic link, a socket, or not readable
        return "", False
    try:
        status, owner = os.fstat(fd), ""
        if not stat.S_ISREG(status.st_mode):
            return "", False
        with suppress(OSError):
            owner = os.getxattr(fd, _OWNER).decode(errors="replace")
        with os.fdopen(fd, "rb", closefd=False) as file:
            return owner, status.st_size == len(content) and file.read(len(content)) == content
    finally:
        os.close(fd)


@contextmanager
def _output_folder(location: Location, policy: MediaPolicy) -> Iterator[int]:
    """A descriptor of the folder of a report. The check applies to the opened folder, so that no name is used twice."""
    if not policy.outputs:
        raise BadInput(
            "options",
            f"output {location.display_name} is a file, but jobs may not write files on this node; set {OUTPUT_DIR} on"
            " the node to the folders for reports, or use the URI of a store or web server",
        )
    path = Path(location.target).parent
    outside = BadInput(
        "options", f"output {location.display_name} is outside the folders that {OUTPUT_DIR} allows on the node"
    )
    with _output_errors(location):
        try:
            folder = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            if not _is_in(Path(os.path.realpath(path)), policy.outputs):
                raise outside from None  # does not reveal what exists elsewhere
            raise
    try:
        if not _is_in(Path(f"/proc/self/fd/{folder}").readlink(), policy.outputs):
            raise outside
        yield folder
    finally:
        os.close(folder)


@contextmanager
def _output_errors(location: Location) -> Iterator[None]:
    """Raises NodeFault for errors of the disk, BadInput for any other OSError."""
    try:
        yield
    except OSError as error:
        why = f"output {location.display_name} cannot be written: {error.strerror}"
        raise (NodeFault(why) if error.errno in DISK_ERRORS else BadInput("options", why)) from None
