"""VMAF against bitrate of several encodes: an HTML page, and the same chart as a PNG."""

from collections.abc import Sequence

from vmafx.reports.charts import RateChart, RatePoint, draw, figure, legend
from vmafx.reports.markup import Html, tag
from vmafx.reports.page import document

TITLE = "Rate and quality"
CAVEAT = "Fast presets, chosen for a short demo; not a comparison of codecs."
SUBTITLE = "VMAF against bitrate in kbit/s; up and to the left is better"


def rate_quality_html(points: Sequence[RatePoint], reference: str) -> str:
    chart = _chart(points)
    drawing = tag("div", draw(chart), legend(chart.codecs))
    section = tag(
        "section",
        tag(
            "header",
            tag("h2", f"VMAF of {len(points)} encodes"),
            tag("p", "Reference: ", tag("bdi", reference), class_="against"),
        ),
        figure(TITLE, drawing, f"{SUBTITLE}. {CAVEAT}"),
        tag("div", _table(points), class_="panel"),
    )
    return document(f"{TITLE}: {len(points)} encodes", TITLE, section)


def rate_quality_png(points: Sequence[RatePoint]) -> bytes:
    from vmafx.reports import plots  # noqa: PLC0415 - matplotlib takes 0.6 s and 50 MB

    return plots.png(_chart(points), TITLE, SUBTITLE)


def _chart(points: Sequence[RatePoint]) -> RateChart:
    low, high = min(points, key=lambda one: one.vmaf), max(points, key=lambda one: one.vmaf)
    label = (
        f"VMAF against bitrate of {len(points)} encodes, from {low.vmaf:.1f} ({low.name}, {low.kbits:,.0f} kbit/s) "
        f"to {high.vmaf:.1f} ({high.name}, {high.kbits:,.0f} kbit/s); the table below lists all"
    )
    return RateChart(label=label, points=points)


def _table(points: Sequence[RatePoint]) -> Html:
    heads = ("Encode", "Codec", "kbit/s", "VMAF")
    rows = (
        tag(
            "tr",
            tag("th", one.name, scope="row"),
            tag("td", one.codec, class_="word"),
            tag("td", f"{one.kbits:,.0f}"),
            tag("td", f"{one.vmaf:.2f}"),
        )
        for one in sorted(points, key=lambda one: -one.vmaf)
    )
    head = tag(
        "thead",
        tag("tr", *(tag("th", text, scope="col", class_="word" if text == "Codec" else None) for text in heads)),
    )
    table = tag("table", head, tag("tbody", *rows), class_="numbers")
    return tag("div", table, class_="wide", tabindex=0, role="region", aria_label="All encodes")
