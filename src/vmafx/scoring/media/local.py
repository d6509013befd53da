"""Files of this machine."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vmafx.atomic_write import write_atomic
from vmafx.scoring.errors import BadInput, InputPart, NodeFault, ScoringError
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.media.uri import Location
from vmafx.tasks import in_thread

_NOT_THERE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG}
_NOT_OURS = {errno.EACCES, errno.EPERM}
_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS}
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


@contextmanager
def local_file(place: Location, part: InputPart, policy: MediaPolicy) -> Iterator[int]:
    """A descriptor to read from. Every check is made on what was opened, not on its name."""
    try:
        fd = _open(place, part, policy)
    except OSError as error:
        raise _reason(error, place, part, policy) from None
    try:
        yield fd
    finally:
        os.close(fd)


def _open(place: Location, part: InputPart, policy: MediaPolicy) -> int:
    # O_PATH holds the file without opening it: a pipe does not wait, and a device does nothing.
    found = os.open(place.target, os.O_PATH | os.O_CLOEXEC)
    try:
        held = Path(f"/proc/self/fd/{found}")
        if not _within(held.readlink(), policy):
            raise _outside(place, part)
        status = os.fstat(found)
        if not stat.S_ISREG(status.st_mode):
            kind = _KINDS.get(stat.S_IFMT(status.st_mode), "no file")
            raise BadInput(part, f"{place.shown} is {kind}; a clip must be a file")
        if status.st_size == 0:
            raise BadInput(part, f"{place.shown} is empty")
        policy.bound(status.st_size, place.shown, part)
        return os.open(held, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
    finally:
        os.close(found)


def _within(path: Path, policy: MediaPolicy) -> bool:
    return not policy.roots or any(path.is_relative_to(root.resolve()) for root in policy.roots)


def _outside(place: Location, part: InputPart) -> BadInput:
    return BadInput(part, f"{place.shown} lies outside the folders that VMAFX_MEDIA_ROOTS allows")


def _reason(error: OSError, place: Location, part: InputPart, policy: MediaPolicy) -> ScoringError:
    # Outside the roots nobody learns what there is.
    if not _within(Path(os.path.realpath(place.target)), policy):
        return _outside(place, part)
    if error.errno in _NOT_THERE:
        return BadInput(part, f"there is no file {place.shown}; check the path")
    if error.errno in _NOT_OURS:
        return BadInput(part, f"{place.shown} cannot be read: no permission; let this user read it")
    return NodeFault(f"cannot open {place.shown}: {error.strerror}")


async def put(place: Location, content: bytes, policy: MediaPolicy) -> None:
    await in_thread(_write, place, content, policy)


def _write(place: Location, content: bytes, policy: MediaPolicy) -> None:
    path = Path(place.target)
    try:
        folder = path.parent.resolve(strict=True)
        if not _within(folder, policy):
            raise BadInput("options", f"output {place.shown} lies outside the folders that VMAFX_MEDIA_ROOTS allows")
        write_atomic(folder / path.name, content)
    except OSError as error:
        why = f"output {place.shown} cannot be written: {error.strerror}"
        raise (NodeFault(why) if error.errno in _DISK else BadInput("options", why)) from None
