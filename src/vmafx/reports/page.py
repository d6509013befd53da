"""The HTML report: one self-contained file, with an overview if there are several clips."""

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from hashlib import sha256
from importlib import resources

from vmafx.reports import formatting
from vmafx.reports.budget import Budget, page_budget
from vmafx.reports.charts import draw, figure, gauge, legend, swatch
from vmafx.reports.markup import Html, tag
from vmafx.reports.score_charts import (
    RATE_SUBTITLE,
    RATE_TITLE,
    clips_chart,
    downsampling_note,
    rate_chart,
    rate_points,
)
from vmafx.reports.section import section
from vmafx.scoring.result import Pictures, Report

SCRIPTS = ("page.js", "curves.js", "frames.js")  # in this order


def html(reports: Sequence[Report], pictures: Mapping[str, Pictures] = {}) -> str:
    """The page; `pictures` are the worst frames, by the `key` of their result."""
    names = formatting.names([report.result.distorted.uri for report in reports])
    anchors = [f"clip-{number}" for number in range(1, len(reports) + 1)]
    budget = page_budget(reports)
    worst = sorted(range(len(reports)), key=lambda index: reports[index].result.score)[: budget.sections]
    detailed = sorted(worst)
    sections = [
        section(reports[index], names[index], anchors[index], pictures.get(reports[index].result.key, ()), budget)
        for index in detailed
    ]
    if len(reports) > 1:
        sections.insert(0, _overview(reports, names, {index: anchors[index] for index in detailed}, budget))
    return document(_title(reports, names), "Video quality report", *sections)


def _title(reports: Sequence[Report], names: Sequence[str]) -> str:
    if len(reports) == 1:
        return f"VMAF {formatting.number(reports[0].result.score)}: {names[0]}"
    return f"VMAF of {len(reports)} clips"


def _overview(reports: Sequence[Report], names: Sequence[str], anchors: Mapping[int, str], budget: Budget) -> Html:
    """A table of all clips, their rates and qualities, and the curves of those that have a section.

    `anchors` are the sections by clip index.
    """
    references = {report.result.reference.uri for report in reports}
    reference = f"Reference: {formatting.name(references.pop())}" if len(references) == 1 else ""
    return tag(
        "section",
        tag("header", tag("h2", f"{len(reports)} clips"), tag("p", tag("bdi", reference), class_="against")),
        tag("div", _overview_table(reports, names, anchors, budget), class_="panel"),
        _rate_quality(reports, names) if budget.rates else None,
        _curves([reports[index] for index in anchors], [names[index] for index in anchors], budget),
        _omitted_clips_note(len(reports), len(anchors)),
        id="overview",
    )


def _overview_table(
    reports: Sequence[Report], names: Sequence[str], anchors: Mapping[int, str], budget: Budget
) -> Html:
    heads = ["Distorted clip", "Score", "Bitrate", "File size", "Mean", "p5", "Min"]
    heads += ["Range, 0 to 100"] if budget.gauges else []
    colours = {index: colour for colour, index in enumerate(anchors)}
    rows = (
        _overview_row(report, names[index], anchors.get(index), colours.get(index), gauges=budget.gauges)
        for index, report in enumerate(reports)
    )
    head = tag("thead", tag("tr", *(tag("th", text, scope="col") for text in heads)))
    table = tag("table", head, tag("tbody", *rows), class_="numbers overview")
    return tag("div", table, class_="wide", tabindex=0, role="region", aria_label="All clips")


def _overview_row(report: Report, name: str, anchor: str | None, colour: int | None, *, gauges: bool) -> Html:
    result = report.result
    vmaf = result.features["vmaf"]
    title = tag("bdi", name) if anchor is None else tag("a", tag("bdi", name), href=f"#{anchor}")
    cells = (tag("td", formatting.number(value)) for value in (vmaf.mean, vmaf.percentiles["p5"], vmaf.min))
    return tag(
        "tr",
        tag("th", tag("span", None if colour is None else swatch(colour), title, class_="named"), scope="row"),
        tag("td", tag("b", formatting.number(result.score))),
        *(tag("td", text or "\N{EN DASH}") for text in (result.distorted.kbits, result.distorted.file_size)),
        *cells,
        tag("td", gauge(result.score, vmaf, ticks=False), class_="spread") if gauges else None,
    )


def _rate_quality(reports: Sequence[Report], names: Sequence[str]) -> Html | None:
    points = rate_points(reports, names)
    if not points:
        return None
    chart = rate_chart(points)
    return figure(RATE_TITLE, tag("div", draw(chart), legend(chart.codecs)), f"{RATE_SUBTITLE}.")


def _curves(reports: Sequence[Report], names: Sequence[str], budget: Budget) -> Html:
    chart = clips_chart(reports, names, budget.points, budget.detail)
    return figure("VMAF per frame", tag("div", draw(chart), legend(names)), downsampling_note(chart))


def _omitted_clips_note(clips: int, shown: int) -> Html | None:
    if shown == clips:
        return None
    note = f"Curves and sections: the {shown} clips with the lowest scores. CSV and JSON reports have all clips."
    return tag("p", note, class_="muted")


def number_table(label: str, heads: Sequence[str], rows: Iterable[Html]) -> Html:
    """A table of numbers, which scrolls on a narrow page; `label` is for screen readers."""
    head = tag("thead", tag("tr", *(tag("th", text, scope="col") for text in heads)))
    table = tag("table", head, tag("tbody", *rows), class_="numbers")
    return tag("div", table, class_="wide", tabindex=0, role="region", aria_label=label)


def list_panel(lines: Sequence[str], title: str) -> Html | None:
    """A panel with a list; none if that is empty."""
    if not lines:
        return None
    return tag("div", tag("h3", title), tag("ul", *(tag("li", line) for line in lines)), class_="panel")


def document(title: str, heading: str, *content: Html) -> str:
    """A self-contained page; its content security policy allows only its own scripts and style sheet."""
    style, script = _asset("page.css"), _script()
    policy = "; ".join((
        "default-src 'none'",
        f"style-src-elem {_source(style)}",
        "style-src-attr 'unsafe-inline'",  # of the drawings, whose colours are variables of page.css
        "img-src data:",
        f"script-src {_source(script)}",
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
    footer = tag("footer", tag("p", "Generated by vmafx"))
    body = tag("body", banner, tag("main", *content), footer, tag("script", script))
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def _source(text: str) -> str:
    """The source expression that allows an inline element with this text."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


@cache
def _asset(name: str) -> Html:
    return Html(resources.files("vmafx.reports").joinpath(name).read_text(encoding="utf-8"))


@cache
def _script() -> Html:
    """All scripts, in one block: their names stay out of the global scope."""
    return Html('"use strict";\n{\n' + "".join(map(_asset, SCRIPTS)) + "}\n")
