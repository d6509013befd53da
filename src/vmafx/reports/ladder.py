"""A ladder of sizes and qualities for one source: a page with its rungs, and the curves that they were chosen from."""

from collections.abc import Sequence

import msgspec

from vmafx.reports import formatting
from vmafx.reports.charts import RatePoint, draw, figure, legend
from vmafx.reports.markup import Html, tag
from vmafx.reports.page import document, list_panel, number_table
from vmafx.reports.score_charts import RATE_SUBTITLE, rate_chart

RUNGS = "ladder"


class LadderEncode(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the page."""

    width: int
    height: int
    quality: str
    kbits: float
    score: float
    lowest: float
    target: float = 0.0  # of each shot


class LadderShot(msgspec.Struct, frozen=True, kw_only=True):
    """A shot of the source, with what it has in each rung."""

    start: float  # seconds
    frames: int
    rungs: Sequence[LadderEncode]


class LadderPage(msgspec.Struct, frozen=True, kw_only=True):
    source: str
    facts: str
    rungs: Sequence[LadderEncode]
    encodes: Sequence[LadderEncode]
    shots: Sequence[LadderShot] = ()
    notes: Sequence[str] = ()
    failures: Sequence[str] = ()


def ladder_page(page: LadderPage) -> str:
    return document(
        f"Ladder: {page.source}",
        "Encoding ladder",
        tag(
            "section",
            tag("header", tag("h2", tag("bdi", page.source)), tag("p", page.facts, class_="against")),
            tag("div", _table("All rungs", page.rungs), class_="panel") if page.rungs else None,
            _chart(page) if len(page.encodes) > 1 else None,
            _shots(page) if page.shots else None,
            tag("div", tag("h3", "All encodes"), _table("All encodes", page.encodes), class_="panel"),
            list_panel(page.notes, "Notes"),
            list_panel(page.failures, "Failed"),
        ),
    )


def _chart(page: LadderPage) -> Html:
    points = [*_points(page.encodes), *_points(page.rungs, RUNGS)]  # the last line is drawn over the others
    chart = rate_chart(points, RUNGS)
    return figure("Rate and quality by size", tag("div", draw(chart), legend(chart.codecs)), f"{RATE_SUBTITLE}.")


def _points(encodes: Sequence[LadderEncode], line: str = "") -> list[RatePoint]:
    """On one line, or on one for each height."""
    sizes = [f"{one.height}p" for one in encodes]
    return [
        RatePoint(f"{size} {one.quality}", line or size, one.kbits, one.score)
        for size, one in zip(sizes, encodes, strict=True)
    ]


def _shots(page: LadderPage) -> Html:
    """A row for each shot: of each rung the score, the bitrate and the quality."""
    heads = ["Shot", "Start", "Frames", *(f"{rung.height}p for {rung.target:.1f}" for rung in page.rungs)]
    rows = (
        tag(
            "tr",
            tag("th", str(number), scope="row"),
            tag("td", formatting.clock(shot.start)),
            tag("td", f"{shot.frames:,}"),
            *(_shot_cell(one) for one in shot.rungs),
        )
        for number, shot in enumerate(page.shots, 1)
    )
    note = "VMAF of each shot in each rung, its bitrate in kbit/s, and its quality setting."
    return tag("div", tag("h3", "Shots"), tag("p", note), number_table("All shots", heads, rows), class_="panel")


def _shot_cell(one: LadderEncode) -> Html:
    return tag("td", tag("b", formatting.number(one.score)), f", {_kbits(one.kbits)}, {one.quality}")


def _kbits(kbits: float) -> str:
    return f"{kbits:,.0f}" if kbits >= 10 else f"{kbits:,.2f}"


def _table(label: str, encodes: Sequence[LadderEncode]) -> Html:
    heads = ("Size", "Quality", "kbit/s", "VMAF", "Min")
    rows = (
        tag(
            "tr",
            tag("th", formatting.size(one.width, one.height), scope="row"),
            tag("td", one.quality),
            tag("td", _kbits(one.kbits)),
            tag("td", tag("b", formatting.number(one.score))),
            tag("td", formatting.number(one.lowest)),
        )
        for one in encodes
    )
    return number_table(label, heads, rows)
