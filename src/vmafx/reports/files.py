"""Reports as HTML, JSON or CSV files, and charts as SVG or PNG; the ending of the file name selects the format."""

import csv
import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice, repeat
from pathlib import Path, PurePath, PurePosixPath
from typing import Annotated

import msgspec

from vmafx.atomic_write import write_atomic_with
from vmafx.reports.chart_files import RATE_QUALITY, ChartFormat, chart_file
from vmafx.reports.features import is_feature, requested_feature
from vmafx.reports.page import html
from vmafx.scoring.errors import DISK_ERRORS, BadInput, NodeFault
from vmafx.scoring.media.policy import OUTPUT_DIR
from vmafx.scoring.result import Pictures, Report
from vmafx.settings import Setting, Settings

FORMULA_PREFIXES = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet takes such a cell for a formula

Renderer = Callable[[Sequence[Report], Mapping[str, Pictures]], Iterator[bytes]]
BLOCK = 4096  # rows of a CSV report that are in memory at once


def _chart(kind: str, file_format: ChartFormat) -> Renderer:
    return lambda reports, _: iter((chart_file(reports, kind, file_format),))


RENDERERS: dict[str, Renderer] = {
    ".html": lambda reports, pictures: iter((html(reports, pictures).encode(),)),
    ".json": lambda reports, _: json_report(reports),
    ".csv": lambda reports, _: csv_report(reports),
    ".svg": _chart("vmaf", "svg"),
    ".png": _chart("vmaf", "png"),
}
CHART_FORMATS: dict[str, ChartFormat] = {".svg": "svg", ".png": "png"}


class ReportSettings(Settings):
    """Where reports are written."""

    output_dir: Annotated[Path | None, Setting(
        "Folder for `vmafx score --report` with a relative path (default: the current folder). Of several, separated by"
        " colons, the first.",
        variable=OUTPUT_DIR, parse=lambda text: next((Path(folder) for folder in text.split(":") if folder), None),
    )] = None  # fmt: skip


def json_report(reports: Sequence[Report]) -> Iterator[bytes]:
    """An object for one report, a list for several, in parts. Infinite and NaN values are null."""
    several = len(reports) != 1
    if several:
        yield b"["
    for index, report in enumerate(reports):
        if index:
            yield b","
        yield from _object(report)
    yield b"]\n" if several else b"\n"


def _object(report: Report) -> Iterator[bytes]:
    """The fields of the result, and `perFrame` with the columns, which are encoded one at a time."""
    yield msgspec.json.encode(report.result).removesuffix(b"}") + b',"perFrame":{"frame":'
    yield msgspec.json.encode(report.numbers.tolist())
    for name, column in report.values.items():
        yield b"," + msgspec.json.encode(name) + b":"
        yield msgspec.json.encode(column.tolist())
    yield b"}}"


def csv_report(reports: Sequence[Report]) -> Iterator[bytes]:
    """A row for each frame; with several clips, the first column is the clip. A feature that a clip lacks is empty."""
    columns = list(dict.fromkeys(column for report in reports for column in report.values))
    several = len(reports) > 1
    yield _csv([[*(["distorted"] if several else []), "frame", *columns]])
    for report in reports:
        frames = len(report.numbers)
        clip = [repeat(_cell(report.result.distorted.uri), frames)] if several else []
        values = (report.values.get(column) or repeat("", frames) for column in columns)
        rows = zip(*clip, report.numbers, *values, strict=True)
        while block := list(islice(rows, BLOCK)):
            yield _csv(block)


def _csv(rows: Iterable[Iterable[object]]) -> bytes:
    output = io.StringIO()
    csv.writer(output, lineterminator="\n").writerows(rows)
    return output.getvalue().encode(errors="backslashreplace")


def _cell(uri: str) -> str:
    """The URI as text, even if a spreadsheet would take it for a formula."""
    return f"'{uri}" if uri.startswith(FORMULA_PREFIXES) else uri


def resolve_path(path: Path, settings: ReportSettings) -> Path:
    """The path that a report is written to; raises BadInput as `check_path` does."""
    folder = settings.output_dir
    if folder is not None and not path.is_absolute():
        if not folder.is_dir():
            hint = "create it, or give the report an absolute path"
            raise BadInput("options", f"{OUTPUT_DIR} is {folder}, which is not a folder; {hint}")
        path = folder / path
    check_path(path)
    return path


def needed_feature(path: Path) -> str:
    """The additional feature that a chart shows, by its name; empty for all other reports."""
    ending, kind = _ending_and_kind(path)
    return requested_feature(kind) if ending in CHART_FORMATS else ""


def check_path(path: Path) -> None:
    """Raises BadInput for a path that cannot be written, before the clips are scored.

    `write_report` also refuses charts of values that the clips do not have.
    """
    _renderer(path)
    with _os_errors(path):
        if not path.parent.is_dir():
            raise BadInput("options", f"the report's folder {path.parent} does not exist; create it")
        if path.is_dir():
            raise BadInput("options", f"the report cannot be written: {path} is a folder")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise BadInput("options", f"the report's folder {path.parent} cannot be written to")


def write_report(path: Path, reports: Sequence[Report], pictures: Mapping[str, Pictures] = {}) -> None:
    """Writes `path` in the format that its name ends in, replacing an existing file.

    Raises BadInput for a chart that these reports do not have.
    """
    check_path(path)
    render = _renderer(path)
    with _os_errors(path):
        write_atomic_with(path, lambda file: file.writelines(render(reports, pictures)))


def render_report(name: str, report: Report, pictures: Pictures = ()) -> bytes:
    """One report in the format of the name's extension, or as JSON if that is unknown."""
    renderer = RENDERERS.get(PurePosixPath(name).suffix.lower(), RENDERERS[".json"])
    content = io.BytesIO()
    content.writelines(renderer([report], {report.result.key: pictures}))
    return content.getvalue()


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


def _renderer(path: PurePath) -> Renderer:
    """By the ending; `.svg` and `.png` may follow the kind of a chart, as in `clip.psnr_y.svg`."""
    ending, kind = _ending_and_kind(path)
    if ending in CHART_FORMATS and (kind == RATE_QUALITY or is_feature(kind)):
        return _chart(kind, CHART_FORMATS[ending])
    renderer = RENDERERS.get(ending)
    if renderer is None:
        endings = "in .html, .json or .csv, or for a chart in .svg or .png"
        raise BadInput("options", f"the name of report {path} must end {endings}")
    return renderer


def _ending_and_kind(path: PurePath) -> tuple[str, str]:
    return path.suffix.lower(), PurePath(path.stem).suffix.lower().removeprefix(".")
