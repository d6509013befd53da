"""Writes a report, whole or not at all.

The file has no name until it is complete, so a reader never sees half of it, and a process that is killed leaves
nothing behind. Only where the file system knows no nameless files is it written under another name first.
"""

import errno
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from vmafx.scoring.errors import BadInput, NodeFault
from vmafx.scoring.report.data import csv, json
from vmafx.scoring.report.page import html
from vmafx.scoring.report.pictures import Picture
from vmafx.scoring.result import Report

Render = Callable[[Sequence[Report], Mapping[str, Sequence[Picture]]], bytes]

RENDER: dict[str, Render] = {
    ".html": lambda reports, pictures: html(reports, pictures).encode(),
    ".json": lambda reports, _: json(reports),
    ".csv": lambda reports, _: csv(reports).encode(errors="backslashreplace"),
}
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EIO}
NO_NAMELESS = {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT}


def check(path: Path) -> None:
    """Refuse what `write` would refuse: better before the clips are scored than after."""
    _render(path)
    if not path.parent.is_dir():
        raise BadInput("options", f"the report's folder {path.parent} does not exist")
    if path.is_dir():
        raise BadInput("options", f"the report cannot be written: {path} is a folder")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise BadInput("options", f"the report's folder {path.parent} cannot be written to")


def write(path: Path, reports: Sequence[Report], pictures: Mapping[str, Sequence[Picture]] = {}) -> None:
    """Write `path`, by its ending as HTML, JSON or CSV, in place of what may be there."""
    check(path)
    content = _render(path)(reports, pictures)
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _put(folder, path.name, content)
        finally:
            os.close(folder)
    except OSError as error:
        why = f"the report {path} cannot be written: {error.strerror}"
        raise (NodeFault(why) if error.errno in FULL else BadInput("options", why)) from error


def _render(path: Path) -> Render:
    try:
        return RENDER[path.suffix.lower()]
    except KeyError:
        endings = ", ".join(RENDER)
        raise BadInput("options", f"the report {path} must end in one of {endings}") from None


def _put(folder: int, name: str, content: bytes) -> None:
    try:
        _put_nameless(folder, name, content)
    except OSError as error:
        if error.errno not in NO_NAMELESS:
            raise
        _put_named(folder, name, content)


def _put_nameless(folder: int, name: str, content: bytes) -> None:
    with os.fdopen(os.open(".", os.O_TMPFILE | os.O_WRONLY, 0o666, dir_fd=folder), "wb") as file:
        file.write(content)
        file.flush()
        complete = f"/proc/self/fd/{file.fileno()}"
        # Only with a folder given does os.link follow the link that this is.
        try:
            os.link(complete, name, dst_dir_fd=folder)
        except FileExistsError:  # a link takes nobody's place, a rename does
            between = _unused()
            os.link(complete, between, dst_dir_fd=folder)
            _rename(folder, between, name)


def _put_named(folder: int, name: str, content: bytes) -> None:
    between = _unused()
    try:
        with os.fdopen(os.open(between, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666, dir_fd=folder), "wb") as file:
            file.write(content)
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
    """Made without the report's own name, which may be as long as names can be."""
    return f".{secrets.token_hex(8)}.part"
