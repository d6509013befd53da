"""Several clips at a glance."""

from collections.abc import Mapping, Sequence

from vmafx.reports import words
from vmafx.reports.budget import Budget
from vmafx.reports.charts import FrameChart, Line, draw, figure, gauge, legend, swatch
from vmafx.reports.curves import thin
from vmafx.reports.markup import Html, tag
from vmafx.reports.section import note_on, rate_of
from vmafx.scoring.result import Report


def overview(reports: Sequence[Report], names: Sequence[str], anchors: Mapping[int, str], room: Budget) -> Html:
    """All in a table; those with a section of their own, which `anchors` leads to, also as curves."""
    references = {report.result.reference.uri for report in reports}
    against = f" compared with {words.name(references.pop())}" if len(references) == 1 else ""
    return tag(
        "section",
        tag("header", tag("h2", f"{len(reports)} clips"), tag("p", tag("bdi", against), class_="against")),
        tag("div", _table(reports, names, anchors, room), class_="panel"),
        _curves([reports[place] for place in anchors], [names[place] for place in anchors], room.points),
        _left_out(len(reports), len(anchors)),
        id="overview",
    )


def _left_out(clips: int, shown: int) -> Html | None:
    if shown == clips:
        return None
    told = f"Curves and sections are of the {shown} clips with the lowest scores; a report as CSV or JSON has all."
    return tag("p", told, class_="muted")


def _table(reports: Sequence[Report], names: Sequence[str], anchors: Mapping[int, str], room: Budget) -> Html:
    heads = ["Distorted clip", "Score", "Mean", "p5", "Min", *(["Spread, 0 to 100"] if room.gauges else [])]
    colours = {place: colour for colour, place in enumerate(anchors)}
    rows = (
        _row(report, names[place], anchors.get(place), colours.get(place), gauges=room.gauges)
        for place, report in enumerate(reports)
    )
    head = tag("thead", tag("tr", *(tag("th", text, scope="col") for text in heads)))
    table = tag("table", head, tag("tbody", *rows), class_="numbers overview")
    return tag("div", table, class_="wide", tabindex=0, role="region", aria_label="All clips")


def _row(report: Report, name: str, anchor: str | None, colour: int | None, *, gauges: bool) -> Html:
    result = report.result
    vmaf = result.features["vmaf"]
    shown = tag("bdi", name) if anchor is None else tag("a", tag("bdi", name), href=f"#{anchor}")
    cells = (tag("td", words.number(value)) for value in (vmaf.mean, vmaf.percentiles["p5"], vmaf.min))
    return tag(
        "tr",
        tag("th", tag("span", None if colour is None else swatch(colour), shown, class_="named"), scope="row"),
        tag("td", tag("b", words.number(result.score))),
        *cells,
        tag("td", gauge(result.score, vmaf, ticks=False), class_="spread") if gauges else None,
    )


def _curves(reports: Sequence[Report], names: Sequence[str], points: int) -> Html:
    curves = [thin(report.numbers, report.values["vmaf"], points) for report in reports]
    rates = {rate_of(report.result) for report in reports}
    chart = FrameChart(
        label=f"VMAF by frame of {len(reports)} clips",
        first=min(report.numbers[0] for report in reports),
        last=max(report.numbers[-1] for report in reports),
        lines=[Line(name, curve, place) for place, (name, curve) in enumerate(zip(names, curves, strict=True))],
        rate=rates.pop() if len(rates) == 1 else None,
    )
    longest = max(curves, key=lambda curve: curve.size)
    drawing = tag("div", draw(chart), legend(names))
    return figure("VMAF by frame", drawing, note_on(longest) if longest.buckets else None)
