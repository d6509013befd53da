"""Atomic file writes: a reader sees the whole file or the one before it.

A writer that is killed may leave a hidden file named `.*.part`, on most file systems only at the moment of a rename.
"""

import errno
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

Writer = Callable[[BinaryIO], object]

_NO_TMPFILE = {errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL}  # file systems without O_TMPFILE
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS}  # file systems without hard links


def write_atomic(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Write `path`, replacing a file that exists. Where the file system can, the file has no name until complete.

    `durable`: the file is synced to the disk before this returns, so that it survives a power failure.
    """
    write_atomic_with(path, lambda file: file.write(content), durable=durable)


def write_atomic_with(path: Path, write: Writer, *, durable: bool = False) -> None:
    """Like `write_atomic`, for content that is not in memory as a whole.

    `write` is called with the open file; if the first way to write a file fails, again with another, empty one.
    """
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    sync = os.fsync if durable else _leave_as_it_is
    try:
        write_in_folder(folder, path.name, write, replace=True, finish=sync)
        sync(folder)
    finally:
        os.close(folder)


def _leave_as_it_is(_fd: int) -> None:
    """The kernel decides when the file reaches the disk."""


def write_in_folder(
    folder: int,
    name: str,
    write: Writer,
    *,
    replace: bool,
    finish: Callable[[int], None] = _leave_as_it_is,
) -> None:
    """Write a file in a folder given by its descriptor. Raises FileExistsError if there is one and not `replace`.

    `finish` is called with the descriptor of the complete file, before that has its name.
    """
    try:
        _write_unnamed(folder, name, write, finish, replace=replace)
    except OSError as error:
        if error.errno not in _NO_TMPFILE:
            raise
        _write_named(folder, name, write, finish, replace=replace)


def _write_unnamed(folder: int, name: str, write: Writer, finish: Callable[[int], None], *, replace: bool) -> None:
    with os.fdopen(os.open(".", os.O_TMPFILE | os.O_WRONLY, 0o666, dir_fd=folder), "wb") as file:
        write(file)
        file.flush()
        finish(file.fileno())
        unnamed = f"/proc/self/fd/{file.fileno()}"
        # os.link follows this symbolic link only if it is given a folder.
        try:
            os.link(unnamed, name, dst_dir_fd=folder)
        except FileExistsError:  # a link cannot replace a file, a rename can
            if not replace:
                raise
            temporary = _temporary_name()
            os.link(unnamed, temporary, dst_dir_fd=folder)
            _rename(folder, temporary, name)


def _write_named(folder: int, name: str, write: Writer, finish: Callable[[int], None], *, replace: bool) -> None:
    temporary = _temporary_name()
    try:
        with os.fdopen(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666, dir_fd=folder), "wb") as file:
            write(file)
            file.flush()
            finish(file.fileno())
        (_rename if replace else _rename_to_new)(folder, temporary, name)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
        raise


def _rename_to_new(folder: int, temporary: str, name: str) -> None:
    """Rename without replacing a file. Raises FileExistsError."""
    try:
        os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        os.unlink(temporary, dir_fd=folder)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666, dir_fd=folder))  # reserves the name
        _rename(folder, temporary, name)


def _rename(folder: int, temporary: str, name: str) -> None:
    try:
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.unlink(temporary, dir_fd=folder)
        raise


def _temporary_name() -> str:
    """Without the name of the file, which may already have the maximum length."""
    return f".{secrets.token_hex(8)}.part"
