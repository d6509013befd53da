"""Writes a report by the ending of its name, or says in a sentence why it cannot."""

import errno
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Annotated

from vmafx.atomic_write import put_whole
from vmafx.reports.data import csv, json
from vmafx.reports.page import html
from vmafx.scoring.errors import BadInput, NodeFault
from vmafx.scoring.frames import Picture
from vmafx.scoring.result import Report
from vmafx.settings import Setting, Settings

Render = Callable[[Sequence[Report], Mapping[str, Sequence[Picture]]], bytes]

RENDER: dict[str, Render] = {
    ".html": lambda reports, pictures: html(reports, pictures).encode(),
    ".json": lambda reports, _: json(reports),
    ".csv": lambda reports, _: csv(reports).encode(errors="backslashreplace"),
}
OUTPUT_DIR = "VMAFX_OUTPUT_DIR"
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EIO}


class ReportSettings(Settings):
    """Where reports go."""

    output_dir: Annotated[Path | None, Setting(
        "The folder for reports that `vmafx score --report` names by a relative path; if not said, the current one.",
        variable=OUTPUT_DIR, parse=lambda text: Path(text) if text else None,
    )] = None  # fmt: skip


def placed(path: Path, settings: ReportSettings) -> Path:
    """Where a report of this name is written; refuses what `write` would refuse."""
    folder = settings.output_dir
    if folder is not None and not path.is_absolute():
        if not folder.is_dir():
            cure = "make it, or give the report an absolute path"
            raise BadInput("options", f"{OUTPUT_DIR} names {folder}, which is no folder; {cure}")
        path = folder / path
    check(path)
    return path


def check(path: Path) -> None:
    """Refuse what `write` would refuse: better before the clips are scored than after."""
    _render(path)
    with _told_of(path):
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
    with _told_of(path):
        put_whole(path, content)


def render(name: str, report: Report, pictures: Sequence[Picture] = ()) -> bytes:
    """One report as its name's ending asks, and as JSON where it asks for nothing we have."""
    known = {report.result.key: pictures}
    return RENDER.get(PurePosixPath(name).suffix.lower(), RENDER[".json"])([report], known)


def shows_pictures(name: str | Path) -> bool:
    """Whether a report of this name has pictures of frames; tables have none."""
    return PurePosixPath(name).suffix.lower() == ".html"


@contextmanager
def _told_of(path: Path) -> Iterator[None]:
    """A full disk is this machine's fault; anything else is wrong with the path."""
    try:
        yield
    except OSError as error:
        why = f"the report {path} cannot be written: {error.strerror}"
        raise (NodeFault(why) if error.errno in FULL else BadInput("options", why)) from error


def _render(path: Path) -> Render:
    try:
        return RENDER[path.suffix.lower()]
    except KeyError:
        endings = ", ".join(RENDER)
        raise BadInput("options", f"the report {path} must end in one of {endings}") from None
