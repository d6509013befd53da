"""Reports as HTML, JSON or CSV files; the extension of the file name selects the format."""

import csv
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
from vmafx.scoring.errors import DISK_ERRORS, BadInput, NodeFault
from vmafx.scoring.media.policy import OUTPUT_DIR
from vmafx.scoring.pictures import FramePair
from vmafx.scoring.result import Report
from vmafx.settings import Setting, Settings

FORMULA_PREFIXES = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet takes such a cell for a formula

Renderer = Callable[[Sequence[Report], Mapping[str, Sequence[FramePair]]], bytes]

RENDERERS: dict[str, Renderer] = {
    ".html": lambda reports, pictures: html(reports, pictures).encode(),
    ".json": lambda reports, _: json_report(reports),
    ".csv": lambda reports, _: csv_report(reports).encode(errors="backslashreplace"),
}


class ReportSettings(Settings):
    """Where reports are written."""

    output_dir: Annotated[Path | None, Setting(
        "Folder for `vmafx score --report` with a relative path (default: the current folder). Of several, separated by"
        " colons, the first.",
        variable=OUTPUT_DIR, parse=lambda text: next((Path(folder) for folder in text.split(":") if folder), None),
    )] = None  # fmt: skip


def json_report(reports: Sequence[Report]) -> bytes:
    """An object for one report, a list for several. Infinite and NaN values are null."""
    objects = [_object(report) for report in reports]
    return msgspec.json.encode(objects[0] if len(objects) == 1 else objects) + b"\n"


def csv_report(reports: Sequence[Report]) -> str:
    """A row for each frame; with several clips, the first column is the clip. A feature that a clip lacks is empty."""
    columns = list(dict.fromkeys(column for report in reports for column in report.values))
    several = len(reports) > 1
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow([*(["distorted"] if several else []), "frame", *columns])
    for report in reports:
        clip = [repeat(_cell(report.result.distorted.uri), len(report.numbers))] if several else []
        writer.writerows(zip(*clip, *_columns(report, columns), strict=True))
    return output.getvalue()


def _object(report: Report) -> dict[str, Any]:
    result: dict[str, Any] = msgspec.to_builtins(report.result)
    return result | {"perFrame": {"frame": report.numbers, **report.values}}


def _columns(report: Report, columns: Sequence[str]) -> Iterator[Sequence[object]]:
    yield report.numbers
    for column in columns:
        yield report.values.get(column) or [""] * len(report.numbers)


def _cell(uri: str) -> str:
    """The URI as text, even if a spreadsheet would take it for a formula."""
    return f"'{uri}" if uri.startswith(FORMULA_PREFIXES) else uri


def resolve_path(path: Path, settings: ReportSettings) -> Path:
    """The path that a report is written to; raises BadInput if `write_report` would."""
    folder = settings.output_dir
    if folder is not None and not path.is_absolute():
        if not folder.is_dir():
            hint = "create it, or give the report an absolute path"
            raise BadInput("options", f"{OUTPUT_DIR} is {folder}, which is not a folder; {hint}")
        path = folder / path
    check_path(path)
    return path


def check_path(path: Path) -> None:
    """Raises BadInput if `write_report` would, before the clips are scored."""
    _renderer(path)
    with _os_errors(path):
        if not path.parent.is_dir():
            raise BadInput("options", f"the report's folder {path.parent} does not exist; create it")
        if path.is_dir():
            raise BadInput("options", f"the report cannot be written: {path} is a folder")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise BadInput("options", f"the report's folder {path.parent} cannot be written to")


def write_report(path: Path, reports: Sequence[Report], pictures: Mapping[str, Sequence[FramePair]] = {}) -> None:
    """Writes `path` as HTML, JSON or CSV by its extension, replacing an existing file."""
    check_path(path)
    content = _renderer(path)(reports, pictures)
    with _os_errors(path):
        write_atomic(path, content)


def render_report(name: str, report: Report, pictures: Sequence[FramePair] = ()) -> bytes:
    """One report in the format of the name's extension, or as JSON if that is unknown."""
    renderer = RENDERERS.get(PurePosixPath(name).suffix.lower(), RENDERERS[".json"])
    return renderer([report], {report.result.key: pictures})


def shows_pictures(name: str | Path) -> bool:
    """Whether a report of this name has pictures of frames."""
    return PurePosixPath(name).suffix.lower() == ".html"


@contextmanager
def _os_errors(path: Path) -> Iterator[None]:
    """Raises NodeFault for errors of the disk, BadInput for any other OSError."""
    try:
        yield
    except OSError as error:
        message = f"the report {path} cannot be written: {error.strerror}"
        raise (NodeFault(message) if error.errno in DISK_ERRORS else BadInput("options", message)) from error


def _renderer(path: Path) -> Renderer:
    try:
        return RENDERERS[path.suffix.lower()]
    except KeyError:
        raise BadInput("options", f"the name of report {path} must end in .html, .json or .csv") from None
