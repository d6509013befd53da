"""Reports for programs: JSON and CSV."""

import csv as lines
import io
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any

import msgspec

from vmafx.scoring.result import Report

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what makes a spreadsheet take a cell for one


def json(reports: Sequence[Report]) -> bytes:
    """One report is an object, several are a list of them. A value that is no number is null, as JSON has no other."""
    objects = [_object(report) for report in reports]
    return msgspec.json.encode(objects[0] if len(objects) == 1 else objects) + b"\n"


def csv(reports: Sequence[Report]) -> str:
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
