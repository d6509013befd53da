"""Several clips at a glance."""

from collections.abc import Sequence

from vmafx.reports import words
from vmafx.reports.bars import gauge
from vmafx.reports.charts import Chart, Line, draw, figure, swatch
from vmafx.reports.markup import Html, tag
from vmafx.reports.measures import VMAF
from vmafx.reports.scales import POINTS, fit, frames, thin
from vmafx.reports.section import note_on, rate_of
from vmafx.scoring.result import Report

ALL_POINTS = 8 * POINTS  # of all curves together


def overview(reports: Sequence[Report], names: Sequence[str], anchors: Sequence[str]) -> Html:
    references = {report.result.reference.uri for report in reports}
    against = f" compared with {words.name(references.pop())}" if len(references) == 1 else ""
    return tag(
        "section",
        tag("header", tag("h2", f"{len(reports)} clips"), tag("p", tag("bdi", against), class_="against")),
        tag("div", _table(reports, names, anchors), class_="panel"),
        _curves(reports, names),
        id="overview",
    )


def _table(reports: Sequence[Report], names: Sequence[str], anchors: Sequence[str]) -> Html:
    heads = ("Distorted clip", "Score", "Mean", "p5", "Min", "Spread, 0 to 100")
    rows = (
        _row(place, report, name, anchor)
        for place, (report, name, anchor) in enumerate(zip(reports, names, anchors, strict=True))
    )
    head = tag("thead", tag("tr", *(tag("th", text, scope="col") for text in heads)))
    table = tag("table", head, tag("tbody", *rows), class_="numbers overview")
    return tag("div", table, class_="wide", tabindex=0, role="region", aria_label="All clips")


def _row(place: int, report: Report, name: str, anchor: str) -> Html:
    result = report.result
    vmaf = result.features["vmaf"]
    link = tag("a", tag("bdi", name), href=f"#{anchor}")
    cells = (tag("td", words.number(value)) for value in (vmaf.mean, vmaf.percentiles["p5"], vmaf.min))
    return tag(
        "tr",
        tag("th", tag("span", swatch(place), link, class_="named"), scope="row"),
        tag("td", tag("b", words.number(result.score))),
        *cells,
        tag("td", gauge(result.score, vmaf, ticks=False), class_="spread"),
    )


def _curves(reports: Sequence[Report], names: Sequence[str]) -> Html:
    most = min(POINTS, max(ALL_POINTS // len(reports), 200))
    curves = [thin(report.numbers, report.values["vmaf"], most) for report in reports]
    rates = {rate_of(report.result) for report in reports}
    chart = Chart(
        label=f"VMAF by frame of {len(reports)} clips",
        x=frames(min(report.numbers[0] for report in reports), max(report.numbers[-1] for report in reports)),
        y=fit(
            min(min(report.values["vmaf"]) for report in reports),
            max(max(report.values["vmaf"]) for report in reports),
            VMAF,
        ),
        lines=[Line(name, curve, place) for place, (name, curve) in enumerate(zip(names, curves, strict=True))],
        decimals=VMAF.decimals,
        rate=rates.pop() if len(rates) == 1 else None,
    )
    legend = tag(
        "ul", *(tag("li", swatch(place), tag("bdi", name)) for place, name in enumerate(names)), class_="legend"
    )
    longest = max(curves, key=lambda curve: curve.bucket)
    drawing = tag("div", draw(chart), legend)
    return figure("VMAF by frame", drawing, note_on(longest) if longest.trend else None)
