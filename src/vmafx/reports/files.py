"""Writes a report as HTML, JSON or CSV, by the file name's extension."""

import csv as lines
import errno
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import msgspec

from vmafx.atomic_write import write_atomic
from vmafx.reports.page import html
from vmafx.scoring.errors import BadInput, NodeFault
from vmafx.scoring.pictures import FramePair
from vmafx.scoring.result import Report
from vmafx.settings import Setting, Settings

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what makes a spreadsheet take a cell for one


def json_report(reports: Sequence[Report]) -> bytes:
    """One report is an object, several are a list of them. A value that is no number is null, as JSON has no other."""
    objects = [_object(report) for report in reports]
    return msgspec.json.encode(objects[0] if len(objects) == 1 else objects) + b"\n"


def csv_report(reports: Sequence[Report]) -> str:
    """A row for each frame, with the clip in front where there are several. A measure that one clip lacks is empty."""
    columns = list(dict.fromkeys(column for report in reports for column in report.values))
    several = len(reports) > 1
    written = io.StringIO()
    writer = lines.writer(written, lineterminator="\n")
    writer.writerow([*(["distorted"] if several else []), "frame", *columns])
    for report in reports:
        clip = [repeat(_cell(report.result.distorted.uri), len(report.numbers))] if several else []
        writer.writerows(zip(*clip, *_columns(report, columns), strict=True))
    return written.getvalue()


def _object(report: Report) -> dict[str, Any]:
    result: dict[str, Any] = msgspec.to_builtins(report.result)
    return result | {"perFrame": {"frame": report.numbers, **report.values}}


def _columns(report: Report, columns: Sequence[str]) -> Iterator[Sequence[object]]:
    yield report.numbers
    for column in columns:
        yield report.values.get(column) or [""] * len(report.numbers)


def _cell(uri: str) -> str:
    """A clip's name must not become a formula in whoever opens the table."""
    return f"'{uri}" if uri.startswith(FORMULA) else uri


Render = Callable[[Sequence[Report], Mapping[str, Sequence[FramePair]]], bytes]

RENDER: dict[str, Render] = {
    ".html": lambda reports, pictures: html(reports, pictures).encode(),
    ".json": lambda reports, _: json_report(reports),
    ".csv": lambda reports, _: csv_report(reports).encode(errors="backslashreplace"),
}
OUTPUT_DIR = "VMAFX_OUTPUT_DIR"
DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EIO}


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
    check_path(path)
    return path


def check_path(path: Path) -> None:
    """Refuse what `write` would refuse: better before the clips are scored than after."""
    _render(path)
    with _told_of(path):
        if not path.parent.is_dir():
            raise BadInput("options", f"the report's folder {path.parent} does not exist")
        if path.is_dir():
            raise BadInput("options", f"the report cannot be written: {path} is a folder")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise BadInput("options", f"the report's folder {path.parent} cannot be written to")


def write_report(path: Path, reports: Sequence[Report], pictures: Mapping[str, Sequence[FramePair]] = {}) -> None:
    """Write `path`, by its ending as HTML, JSON or CSV, in place of what may be there."""
    check_path(path)
    content = _render(path)(reports, pictures)
    with _told_of(path):
        write_atomic(path, content)


def render_report(name: str, report: Report, pictures: Sequence[FramePair] = ()) -> bytes:
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
        raise (NodeFault(why) if error.errno in DISK_FULL else BadInput("options", why)) from error


def _render(path: Path) -> Render:
    try:
        return RENDER[path.suffix.lower()]
    except KeyError:
        endings = ", ".join(RENDER)
        raise BadInput("options", f"the report {path} must end in one of {endings}") from None
