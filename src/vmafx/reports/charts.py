"""Curves over the frames, as SVG.

Positions are in percent and text is in pixels, so that a chart fits any screen and its text stays readable. Only the
curves are stretched. page.js reads the data-* attributes to tell the values under the pointer.
"""

from collections.abc import Mapping, Sequence

import msgspec

from vmafx.reports import words
from vmafx.reports.markup import Html, tag
from vmafx.reports.scales import Axis, Curve

SIDE = 1000  # of the square that curves are drawn in before it is stretched
COLOURS = 8
DASHES = ("none", "7 4", "2 4")  # the colours come again, in another stroke


class Line(msgspec.Struct, frozen=True):
    name: str
    curve: Curve
    place: int = 0  # among the lines: says the colour and the stroke


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    label: str  # what a screen reader says
    x: Axis
    y: Axis
    lines: Sequence[Line]
    decimals: int
    rate: float | None = None
    levels: Mapping[str, float] = {}
    dots: Sequence[tuple[int, float]] = ()
    small: bool = False


def draw(chart: Chart) -> Html:
    strokes = (_strokes(chart, line) for line in chart.lines)
    drawing = tag(
        "svg",
        *_grid(chart),
        tag("svg", *strokes, viewBox=f"0 0 {SIDE} {SIDE}", preserveAspectRatio="none", width="100%", height="100%"),
        *_levels(chart),
        *_dots(chart),
        role="img",
        aria_label=chart.label,
    )
    return tag(
        "div",
        drawing,
        class_="plot small" if chart.small else "plot leveled" if chart.levels else "plot",
        data_from=chart.x.low,
        data_to=chart.x.high,
        data_low=chart.y.low,
        data_high=chart.y.high,
        data_decimals=chart.decimals,
        data_rate=chart.rate,
    )


def figure(title: str, chart: Html, note: str | None = None, *, heading: str = "h3") -> Html:
    told = tag("p", note) if note else None
    return tag("figure", tag("figcaption", tag(heading, title), told), chart, class_="panel")


def swatch(place: int) -> Html:
    """A piece of a line, for legends."""
    line = tag("line", x1=0, x2=22, y1=5, y2=5, class_="stroke", stroke_dasharray=_dash(place))
    return tag("svg", line, width=22, height=10, class_=f"swatch {_colour(place)}", aria_hidden="true")


def percent(fraction: float) -> str:
    return f"{fraction * 100:.2f}%"


def horizontal(y: Axis, decimals: int) -> list[Html]:
    """Lines across, with their values to the left."""
    drawn = []
    for value in y.ticks:
        at = percent(1 - y.at(value))
        drawn.append(tag("line", x1=0, x2="100%", y1=at, y2=at, class_="grid"))
        drawn.append(tag("text", words.number(value, decimals), x=-8, y=at, dy=".32em", class_="tick left"))
    return drawn


def _grid(chart: Chart) -> list[Html]:
    drawn = horizontal(chart.y, chart.y.decimals)
    step = chart.x.ticks[1] - chart.x.ticks[0] if len(chart.x.ticks) > 1 else 0
    for place, frame in enumerate(chart.x.ticks):
        at = percent(chart.x.at(frame))
        odd = " odd" if place % 2 else ""
        drawn.append(tag("text", f"{frame:,.0f}", x=at, y="100%", dy="1.6em", class_=f"tick below{odd}"))
        if chart.rate and not chart.small:
            time = words.clock(frame / chart.rate, 0 if step / chart.rate >= 1 else 2)
            drawn.append(tag("text", time, x=at, y="100%", dy="2.9em", class_=f"tick below time{odd}"))
    return drawn


def _strokes(chart: Chart, line: Line) -> Html:
    """The curve; of a long clip the reach of its values, and their trend over it."""
    curve = line.curve
    reach = tag(
        "path",
        d=_path(chart, curve.points),
        class_="reach" if curve.trend else "stroke",
        stroke_dasharray=None if curve.trend else _dash(line.place),
        data_name=line.name,
        data_frames=" ".join(str(frame) for frame, _ in curve.points),
        data_values=" ".join(f"{value:.{chart.decimals}f}" for _, value in curve.points),
    )
    trend = tag("path", d=_path(chart, curve.trend), class_="stroke", stroke_dasharray=_dash(line.place))
    return tag("g", reach, trend if curve.trend else None, class_=_colour(line.place))


def _path(chart: Chart, points: Sequence[tuple[int, float]]) -> str:
    return "M" + "L".join(
        f"{chart.x.at(frame) * SIDE:.1f} {(1 - chart.y.at(value)) * SIDE:.1f}" for frame, value in points
    )


def _levels(chart: Chart) -> list[Html]:
    """Lines across at a value, named beside them; two names that would meet give way to each other."""
    ranked = sorted(chart.levels.items(), key=lambda level: -level[1])
    tight = len(ranked) > 1 and chart.y.at(ranked[0][1]) - chart.y.at(ranked[-1][1]) < 0.06
    drawn = []
    for (name, value), side in zip(ranked, ("upper", "lower"), strict=False):
        at = percent(1 - chart.y.at(value))
        text = f"{name} {words.number(value, chart.decimals)}"
        shift = {"upper": "-.2em", "lower": "1em"}[side] if tight else ".32em"
        drawn.append(tag("line", x1=0, x2="100%", y1=at, y2=at, class_="level"))
        drawn.append(tag("text", text, x="100%", y=at, dx=8, dy=shift, class_=f"level {side}"))
    return drawn


def _dots(chart: Chart) -> list[Html]:
    """What was asked for; and a line of one point, which has no length to be seen by."""
    alone = [line.curve.points[0] for line in chart.lines if len(line.curve.points) == 1]
    return [
        tag("circle", cx=percent(chart.x.at(frame)), cy=percent(1 - chart.y.at(value)), r=4, class_="dot")
        for frame, value in (*chart.dots, *alone)
    ]


def _colour(place: int) -> str:
    return f"c{place % COLOURS}"


def _dash(place: int) -> str:
    return DASHES[place // COLOURS % len(DASHES)]
