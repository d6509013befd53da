"""Files that are there whole or not at all: readers never see half of one, and a killed writer leaves nothing."""

import errno
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

NO_NAMELESS = {errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL}  # file systems without O_TMPFILE


def put_whole(path: Path, content: bytes, *, lasting: bool = False) -> None:
    """Write `path` in place of what may be there. Where the file system can, the file has no name until complete.

    `lasting`: on the disk itself when this returns, so that a power cut takes nothing back.
    """
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    sync = os.fsync if lasting else _leave
    try:
        try:
            _put_nameless(folder, path.name, content, sync)
        except OSError as error:
            if error.errno not in NO_NAMELESS:
                raise
            _put_named(folder, path.name, content, sync)
        sync(folder)
    finally:
        os.close(folder)


def _leave(_fd: int) -> None:
    """To the kernel, which writes it in its own time."""


def _put_nameless(folder: int, name: str, content: bytes, sync: Callable[[int], None]) -> None:
    with os.fdopen(os.open(".", os.O_TMPFILE | os.O_WRONLY, 0o666, dir_fd=folder), "wb") as file:
        file.write(content)
        file.flush()
        sync(file.fileno())
        complete = f"/proc/self/fd/{file.fileno()}"
        # Only with a folder given does os.link follow the link that this is.
        try:
            os.link(complete, name, dst_dir_fd=folder)
        except FileExistsError:  # a link takes nobody's place, a rename does
            between = _unused()
            os.link(complete, between, dst_dir_fd=folder)
            _rename(folder, between, name)


def _put_named(folder: int, name: str, content: bytes, sync: Callable[[int], None]) -> None:
    between = _unused()
    try:
        with os.fdopen(os.open(between, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666, dir_fd=folder), "wb") as file:
            file.write(content)
            file.flush()
            sync(file.fileno())
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(between, dir_fd=folder)
        raise
    _rename(folder, between, name)


def _rename(folder: int, between: str, name: str) -> None:
    try:
        os.replace(between, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.unlink(between, dir_fd=folder)
        raise


def _unused() -> str:
    """Made without the file's own name, which may be as long as names can be."""
    return f".{secrets.token_hex(8)}.part"
