"""Charts of scored clips as files: SVG or PNG."""

from collections.abc import Sequence
from math import isfinite
from typing import Literal

import msgspec

from vmafx.reports import formatting
from vmafx.reports.budget import MAX_POINTS
from vmafx.reports.charts import COLOURS, DASHES, FrameChart
from vmafx.reports.curves import downsample
from vmafx.reports.features import feature_info
from vmafx.reports.score_charts import (
    RATE_SUBTITLE,
    RATE_TITLE,
    clip_chart,
    clips_chart,
    feature_chart,
    rate_chart,
    rate_points,
)
from vmafx.scoring.errors import BadInput
from vmafx.scoring.result import Report

ChartFormat = Literal["svg", "png"]
RATE_QUALITY = "rate-quality"
MAX_LINES = COLOURS * len(DASHES)  # more could not be told apart


def chart_file(reports: Sequence[Report], kind: str, file_format: ChartFormat) -> bytes:
    """A feature per frame of the clips, such as vmaf or psnr_y, or with `kind` rate-quality, VMAF against bitrate.

    Raises BadInput if the clips have no such values.
    """
    from vmafx.reports import plots  # noqa: PLC0415 - matplotlib takes 0.6 s and 50 MB

    if kind == RATE_QUALITY:
        points = rate_points(reports, _names(reports))
        if not points:
            needed = "two or more distorted clips of one reference, with known bitrates, scored in the same way"
            raise BadInput("options", f"a rate-quality chart needs {needed}")
        return plots.picture(rate_chart(points), RATE_TITLE, f"{RATE_SUBTITLE}{_against(reports)}", file_format)
    measured = [report for report in reports if any(map(isfinite, report.values.get(kind, ())))]
    if not measured:
        features = ", ".join(dict.fromkeys(column for report in reports for column in report.values))
        raise BadInput("options", f"there is no chart of {kind}, which has no values; the clips have {features}")
    title, chart = _one(measured[0], kind) if len(measured) == 1 else _several(measured, kind)
    known = feature_info(kind)
    unit, hint = f" in {known.unit}" if known.unit else "", f" ({known.hint})" if known.hint else ""
    most = f", the {MAX_LINES} clips with the lowest scores" if len(measured) > MAX_LINES else ""
    return plots.picture(chart, title, f"{known.label}{unit} per frame{hint}{most}{_against(measured)}", file_format)


def _one(report: Report, column: str) -> tuple[str, FrameChart]:
    """The title and the chart of one clip."""
    name = formatting.name(report.result.distorted.uri)
    if column == "vmaf":
        return f"VMAF {formatting.number(report.result.score)}: {name}", clip_chart(report, (), MAX_POINTS)
    chart = feature_chart(report, column, downsample(report.numbers, report.values[column], MAX_POINTS))
    mean = report.result.features[column].mean
    levels = {"mean": mean} if isfinite(mean) and len(report.numbers) > 1 else {}
    return f"{feature_info(column).label}: {name}", msgspec.structs.replace(chart, levels=levels)


def _several(reports: Sequence[Report], column: str) -> tuple[str, FrameChart]:
    names = _names(reports)
    worst = sorted(range(len(reports)), key=lambda index: reports[index].result.score)[:MAX_LINES]
    shown = sorted(worst)
    chart = clips_chart(
        [reports[index] for index in shown], [names[index] for index in shown], MAX_POINTS, column=column
    )
    return f"{feature_info(column).label} of {len(reports)} clips", chart


def _names(reports: Sequence[Report]) -> list[str]:
    return formatting.names([report.result.distorted.uri for report in reports])


def _against(reports: Sequence[Report]) -> str:
    """The reference, if there is only one."""
    references = {report.result.reference.uri for report in reports}
    return f"; reference: {formatting.name(references.pop())}" if len(references) == 1 else ""
