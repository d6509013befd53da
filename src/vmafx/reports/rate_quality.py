"""VMAF against bitrate of several encodes: an HTML page, and the same chart as a PNG."""

from collections.abc import Sequence

from vmafx.reports.charts import RatePoint, draw, figure, legend
from vmafx.reports.markup import Html, tag
from vmafx.reports.page import document
from vmafx.reports.score_charts import RATE_SUBTITLE, RATE_TITLE, rate_chart

CAVEAT = "Fast presets, chosen for a short demo; not a comparison of codecs."


def rate_quality_html(points: Sequence[RatePoint], reference: str) -> str:
    chart = rate_chart(points)
    drawing = tag("div", draw(chart), legend(chart.codecs))
    section = tag(
        "section",
        tag(
            "header",
            tag("h2", f"VMAF of {len(points)} encodes"),
            tag("p", "Reference: ", tag("bdi", reference), class_="against"),
        ),
        figure(RATE_TITLE, drawing, f"{RATE_SUBTITLE}. {CAVEAT}"),
        tag("div", _table(points), class_="panel"),
    )
    return document(f"{RATE_TITLE}: {len(points)} encodes", RATE_TITLE, section)


def rate_quality_png(points: Sequence[RatePoint]) -> bytes:
    from vmafx.reports import plots  # noqa: PLC0415 - matplotlib takes 0.6 s and 50 MB

    return plots.picture(rate_chart(points), RATE_TITLE, RATE_SUBTITLE, "png")


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
