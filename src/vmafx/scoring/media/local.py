"""Clips and reports in files of this machine."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vmafx.atomic_write import write_atomic
from vmafx.scoring.errors import DISK_ERRORS, BadInput, InputPart, NodeFault, ScoringError
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.media.uri import Location
from vmafx.tasks import in_thread

_NO_SUCH_FILE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG}
_NO_PERMISSION = {errno.EACCES, errno.EPERM}
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
    return not policy.roots or any(path.is_relative_to(root.resolve()) for root in policy.roots)


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
    await in_thread(_write, location, content, policy)


def _write(location: Location, content: bytes, policy: MediaPolicy) -> None:
    path = Path(location.target)
    try:
        folder = path.parent.resolve(strict=True)
        if not _within_roots(folder, policy):
            name = location.display_name
            raise BadInput("options", f"output {name} is outside the folders that VMAFX_MEDIA_ROOTS allows")
        write_atomic(folder / path.name, content)
    except OSError as error:
        why = f"output {location.display_name} cannot be written: {error.strerror}"
        raise (NodeFault(why) if error.errno in DISK_ERRORS else BadInput("options", why)) from None
