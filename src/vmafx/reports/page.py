"""HTML pages: self-contained files, with an overview table when there are several clips."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from importlib import resources

from vmafx.reports import formatting
from vmafx.reports.budget import Budget, budget
from vmafx.reports.charts import ChartLine, FrameChart, draw, figure, gauge, legend, swatch
from vmafx.reports.curves import thin
from vmafx.reports.markup import Html, tag
from vmafx.reports.section import note_on, rate_of, section
from vmafx.scoring.pictures import FramePair
from vmafx.scoring.result import Report


def overview(reports: Sequence[Report], names: Sequence[str], anchors: Mapping[int, str], room: Budget) -> Html:
    """All in a table; those with a section of their own, which `anchors` leads to, also as curves."""
    references = {report.result.reference.uri for report in reports}
    against = f" compared with {formatting.name(references.pop())}" if len(references) == 1 else ""
    return tag(
        "section",
        tag("header", tag("h2", f"{len(reports)} clips"), tag("p", tag("bdi", against), class_="against")),
        tag("div", _overview_table(reports, names, anchors, room), class_="panel"),
        _curves([reports[place] for place in anchors], [names[place] for place in anchors], room.points),
        _left_out(len(reports), len(anchors)),
        id="overview",
    )


def _left_out(clips: int, shown: int) -> Html | None:
    if shown == clips:
        return None
    told = f"Curves and sections are of the {shown} clips with the lowest scores; a report as CSV or JSON has all."
    return tag("p", told, class_="muted")


def _overview_table(reports: Sequence[Report], names: Sequence[str], anchors: Mapping[int, str], room: Budget) -> Html:
    heads = ["Distorted clip", "Score", "Mean", "p5", "Min", *(["Spread, 0 to 100"] if room.gauges else [])]
    colours = {place: colour for colour, place in enumerate(anchors)}
    rows = (
        _overview_row(report, names[place], anchors.get(place), colours.get(place), gauges=room.gauges)
        for place, report in enumerate(reports)
    )
    head = tag("thead", tag("tr", *(tag("th", text, scope="col") for text in heads)))
    table = tag("table", head, tag("tbody", *rows), class_="numbers overview")
    return tag("div", table, class_="wide", tabindex=0, role="region", aria_label="All clips")


def _overview_row(report: Report, name: str, anchor: str | None, colour: int | None, *, gauges: bool) -> Html:
    result = report.result
    vmaf = result.features["vmaf"]
    shown = tag("bdi", name) if anchor is None else tag("a", tag("bdi", name), href=f"#{anchor}")
    cells = (tag("td", formatting.number(value)) for value in (vmaf.mean, vmaf.percentiles["p5"], vmaf.min))
    return tag(
        "tr",
        tag("th", tag("span", None if colour is None else swatch(colour), shown, class_="named"), scope="row"),
        tag("td", tag("b", formatting.number(result.score))),
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
        lines=[ChartLine(name, curve, place) for place, (name, curve) in enumerate(zip(names, curves, strict=True))],
        rate=rates.pop() if len(rates) == 1 else None,
    )
    longest = max(curves, key=lambda curve: curve.size)
    drawing = tag("div", draw(chart), legend(names))
    return figure("VMAF by frame", drawing, note_on(longest) if longest.buckets else None)


def html(reports: Sequence[Report], pictures: Mapping[str, Sequence[FramePair]] = {}) -> str:
    """The page; `pictures` are of the worst frames, by the `key` of the result that they belong to."""
    names = formatting.names([report.result.distorted.uri for report in reports])
    anchors = [f"clip-{place}" for place in range(1, len(reports) + 1)]
    room = budget(reports)
    worst = sorted(range(len(reports)), key=lambda place: reports[place].result.score)[: room.sections]
    detailed = sorted(worst)
    sections = [
        section(reports[place], names[place], anchors[place], pictures.get(reports[place].result.key, ()), room)
        for place in detailed
    ]
    if len(reports) > 1:
        sections.insert(0, overview(reports, names, {place: anchors[place] for place in detailed}, room))
    return document(_title(reports, names), "Video quality report", *sections)


def document(title: str, heading: str, *content: Html) -> str:
    """A whole page: one file that needs nothing else, in which only our own script may run."""
    style, script = _piece("page.css"), _piece("page.js")
    policy = "; ".join((
        "default-src 'none'",
        "style-src 'unsafe-inline'",
        "img-src data:",
        f"script-src 'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'",
        "base-uri 'none'",
        "form-action 'none'",
    ))  # fmt: skip
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        tag("link", rel="icon", href="data:,"),
        tag("style", style),
    )
    toggle = tag("button", "Dark", type="button", id="theme", hidden="")
    banner = tag("header", tag("h1", heading), toggle, class_="banner")
    body = tag("body", banner, tag("main", *content), tag("footer", tag("p", "Made by vmafx")), tag("script", script))
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def _title(reports: Sequence[Report], names: Sequence[str]) -> str:
    if len(reports) == 1:
        return f"VMAF {formatting.number(reports[0].result.score)}: {names[0]}"
    return f"VMAF of {len(reports)} clips"


@cache
def _piece(name: str) -> Html:
    return Html(resources.files("vmafx.reports").joinpath(name).read_text(encoding="utf-8"))
