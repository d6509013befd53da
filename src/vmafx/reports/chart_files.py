"""Charts of scored clips as files: SVG or PNG."""

from collections.abc import Sequence
from typing import Literal

from vmafx.reports import formatting
from vmafx.reports.budget import MAX_POINTS
from vmafx.reports.charts import COLOURS, DASHES
from vmafx.reports.score_charts import RATE_SUBTITLE, RATE_TITLE, clip_chart, clips_chart, rate_chart, rate_points
from vmafx.scoring.errors import BadInput
from vmafx.scoring.result import Report

ChartKind = Literal["vmaf", "rate-quality"]
ChartFormat = Literal["svg", "png"]
MAX_LINES = COLOURS * len(DASHES)  # more could not be told apart


def chart_file(reports: Sequence[Report], kind: ChartKind, file_format: ChartFormat) -> bytes:
    """VMAF per frame of the clips, or VMAF against their bitrates.

    Raises BadInput if there are not two clips of one reference with known bitrates to plot.
    """
    from vmafx.reports import plots  # noqa: PLC0415 - matplotlib takes 0.6 s and 50 MB

    names = formatting.names([report.result.distorted.uri for report in reports])
    if kind == "rate-quality":
        points = rate_points(reports, names)
        if not points:
            needed = "two or more distorted clips of one reference, with known bitrates, scored in the same way"
            raise BadInput("options", f"a rate-quality chart needs {needed}")
        return plots.picture(rate_chart(points), RATE_TITLE, f"{RATE_SUBTITLE}{_against(reports)}", file_format)
    if len(reports) == 1:
        (report,) = reports
        title = f"VMAF {formatting.number(report.result.score)}: {names[0]}"
        chart = clip_chart(report, (), MAX_POINTS)
    else:
        title = f"VMAF of {len(reports)} clips"
        worst = sorted(range(len(reports)), key=lambda index: reports[index].result.score)[:MAX_LINES]
        shown = sorted(worst)
        chart = clips_chart([reports[index] for index in shown], [names[index] for index in shown], MAX_POINTS)
    most = f", the {MAX_LINES} clips with the lowest scores" if len(reports) > MAX_LINES else ""
    return plots.picture(chart, title, f"VMAF per frame{most}{_against(reports)}", file_format)


def _against(reports: Sequence[Report]) -> str:
    """The reference, if there is only one."""
    references = {report.result.reference.uri for report in reports}
    return f"; reference: {formatting.name(references.pop())}" if len(references) == 1 else ""
