"""Several encoders compared on one source: a page with their curves and the figures of every encode."""

from collections.abc import Sequence

import msgspec

from vmafx.reports import formatting
from vmafx.reports.charts import RatePoint, draw, figure, legend, swatch
from vmafx.reports.markup import Html, tag
from vmafx.reports.page import document, list_panel, number_table
from vmafx.reports.score_charts import RATE_SUBTITLE, RATE_TITLE, rate_chart

DASH = "\N{EN DASH}"


class ComparedEncode(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the page."""

    quality: str
    kbits: float
    score: float
    p5: float
    lowest: float
    fps: float
    chosen: bool = False  # by a search


class ComparedEncoder(msgspec.Struct, frozen=True, kw_only=True):
    """A curve of the page; `summary` is about the encoder as a whole."""

    name: str
    encodes: Sequence[ComparedEncode]
    bd_rate: float | None = None
    bd_score: float | None = None
    summary: str = ""


class ComparisonPage(msgspec.Struct, frozen=True, kw_only=True):
    source: str
    facts: str
    encoders: Sequence[ComparedEncoder]
    notes: Sequence[str] = ()
    failures: Sequence[str] = ()


def encoder_comparison(page: ComparisonPage) -> str:
    encoded = [one for one in page.encoders if one.encodes]
    points = [
        RatePoint(f"{one.name} {encode.quality}", one.name, encode.kbits, encode.score)
        for one in encoded
        for encode in one.encodes
    ]
    return document(
        f"Encoders compared: {page.source}",
        "Encoder comparison",
        tag(
            "section",
            tag(
                "header",
                tag("h2", tag("bdi", page.source)),
                tag("p", page.facts, class_="against"),
            ),
            _summary(page.encoders),
            _chart(points) if len(points) > 1 else None,
            _encodes(encoded),
            list_panel(page.notes, "Notes"),
            list_panel(page.failures, "Failed"),
        ),
    )


def _chart(points: Sequence[RatePoint]) -> Html:
    chart = rate_chart(points)
    return figure(RATE_TITLE, tag("div", draw(chart), legend(chart.codecs)), f"{RATE_SUBTITLE}.")


def _summary(encoders: Sequence[ComparedEncoder]) -> Html:
    first = encoders[0].name if encoders else ""
    searched = any(one.summary for one in encoders)
    drawn = [one.name for one in encoders if one.encodes]  # in the colours of the chart
    heads = ("Encoder", "Encodes", "BD-rate", "BD-VMAF", *(("Found",) if searched else ()))
    rows = (
        tag(
            "tr",
            tag(
                "th",
                tag(
                    "span",
                    swatch(drawn.index(one.name)) if one.encodes else None,
                    tag("bdi", one.name),
                    class_="named",
                ),
                scope="row",
            ),
            tag("td", str(len(one.encodes))),
            tag("td", DASH if one.bd_rate is None else f"{_signed(one.bd_rate, 1)} %"),
            tag("td", DASH if one.bd_score is None else _signed(one.bd_score, 2)),
            tag("td", one.summary, class_="word") if searched else None,
        )
        for one in encoders
    )
    compared = any(one.bd_rate is not None for one in encoders)
    note = (
        f"BD-rate: difference in bitrate at the same VMAF, on average, against {first}; less is better. "
        "BD-VMAF: difference in VMAF at the same bitrate; more is better."
    )
    return tag(
        "div",
        number_table("All encoders", heads, rows),
        tag("p", note, class_="muted") if compared else None,
        class_="panel",
    )


def _encodes(encoders: Sequence[ComparedEncoder]) -> Html:
    heads = ("Encode", "kbit/s", "VMAF", "p5", "Min", "Encoded at")
    rows = (
        tag(
            "tr",
            tag(
                "th",
                tag("span", swatch(index), tag("bdi", f"{one.name} {encode.quality}"), class_="named"),
                tag("b", " \N{CHECK MARK}", title="found by the search") if encode.chosen else None,
                scope="row",
            ),
            tag("td", f"{encode.kbits:,.0f}" if encode.kbits >= 10 else f"{encode.kbits:,.2f}"),
            tag("td", tag("b", formatting.number(encode.score))),
            tag("td", formatting.number(encode.p5)),
            tag("td", formatting.number(encode.lowest)),
            tag("td", f"{encode.fps:,.1f} fps"),
        )
        for index, one in enumerate(encoders)
        for encode in one.encodes
    )
    return tag("div", number_table("All encodes", heads, rows), class_="panel")


def _signed(value: float, decimals: int) -> str:
    text = formatting.number(value, decimals)
    return f"+{text}" if value > 0 and text.strip("0.") else text
