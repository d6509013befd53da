"""Charts: what they show, and their markup around what plots.py draws of them.

A chart is drawn once for each width that it may get, and page.css shows the one that suits; so text is readable on any
screen. page.js reads the data-* attributes to tell the values under the pointer.
"""

from collections.abc import Mapping, Sequence

import msgspec

from vmafx.reports import formatting
from vmafx.reports.curves import Curve, bins
from vmafx.reports.features import VMAF, FeatureInfo
from vmafx.reports.markup import Html, tag
from vmafx.scoring.result import FeatureStatistics

COLOURS = 8
DASHES: tuple[tuple[int, ...], ...] = ((), (7, 4), (2, 4))  # the colours come again, in another stroke


class Size(msgspec.Struct, frozen=True):
    """What a chart is drawn for, in CSS pixels; page.css has the widths from which each is shown."""

    name: str
    width: int
    height: int
    font: int = 13


WIDE, MEDIUM, NARROW = Size("wide", 1080, 310), Size("medium", 680, 290), Size("narrow", 360, 260)
SMALL = Size("small", 300, 150, 12)
LARGE = (WIDE, MEDIUM, NARROW)


class ChartLine(msgspec.Struct, frozen=True):
    name: str
    curve: Curve
    place: int = 0  # among the lines: says the colour and the stroke


class FrameChart(msgspec.Struct, frozen=True, kw_only=True):
    """Curves over the frames from `first` to `last`."""

    label: str  # what a screen reader says
    first: int
    last: int
    lines: Sequence[ChartLine]
    measure: FeatureInfo = VMAF
    rate: float | None = None  # frames in a second: adds times
    levels: Mapping[str, float] = {}  # lines across, with their names
    dots: Sequence[tuple[int, float]] = ()
    sizes: tuple[Size, ...] = LARGE


class HistogramChart(msgspec.Struct, frozen=True, kw_only=True):
    """How many frames have a score from each bin's beginning to the next's."""

    label: str
    width: float
    bins: Sequence[tuple[float, int]]
    sizes: tuple[Size, ...] = (Size("small", 360, 260),)


class RatePoint(msgspec.Struct, frozen=True):
    """One encode: what it costs, and how good it looks."""

    name: str
    codec: str
    kbits: float
    vmaf: float


class RateChart(msgspec.Struct, frozen=True, kw_only=True):
    """Quality against rate: a line for each codec, from its lowest rate to its highest; a dot for each encode."""

    label: str
    points: Sequence[RatePoint]
    sizes: tuple[Size, ...] = (Size("wide", 1080, 560), Size("medium", 680, 460), Size("narrow", 360, 340))

    @property
    def codecs(self) -> list[str]:
        """Each once, in the order in which they come."""
        return list(dict.fromkeys(one.codec for one in self.points))


Chart = FrameChart | HistogramChart | RateChart


def draw(chart: Chart) -> Html:
    from vmafx.reports import plots  # noqa: PLC0415 - matplotlib takes 0.6 s and 50 MB

    drawings = [plots.draw(chart, size) for size in chart.sizes]
    svgs = [drawing.svg for drawing in drawings]
    if not isinstance(chart, FrameChart):
        return tag("div", *svgs, class_="plot")
    (first, last), (low, high), exact = drawings[0].x, drawings[0].y, chart.measure.decimals
    values = (
        tag(
            "i",
            class_=_colour(line.place),
            hidden="",
            data_name=line.name,
            data_frames=" ".join(str(frame) for frame, _ in line.curve.points),
            data_values=" ".join(f"{value:.{exact}f}" for _, value in line.curve.points),
        )
        for line in chart.lines
    )
    return tag("div", *svgs, *values, class_="plot", data_from=f"{first:g}", data_to=f"{last:g}", data_low=low,
               data_high=high, data_decimals=exact, data_rate=chart.rate)  # fmt: skip


def histogram(values: Sequence[float]) -> HistogramChart:
    width, counted = bins(values)
    frames = formatting.plural(len(values), "frame")
    label = f"Histogram of the VMAF of {frames}, from {min(values):.2f} to {max(values):.2f}"
    return HistogramChart(label=label, width=width, bins=counted)


def figure(title: str, chart: Html, note: str | None = None, *, heading: str = "h3") -> Html:
    told = tag("p", note) if note else None
    return tag("figure", tag("figcaption", tag(heading, title), told), chart, class_="panel")


def legend(names: Sequence[str]) -> Html:
    return tag("ul", *(tag("li", swatch(place), tag("bdi", name)) for place, name in enumerate(names)), class_="legend")


def swatch(place: int) -> Html:
    """A piece of a line, for legends."""
    dash = " ".join(map(str, dashes(place))) or None
    line = tag("line", x1=0, x2=22, y1=5, y2=5, stroke_dasharray=dash)
    return tag("svg", line, width=22, height=10, class_=f"swatch {_colour(place)}", aria_hidden="true")


def dashes(place: int) -> tuple[int, ...]:
    return DASHES[place // COLOURS % len(DASHES)]


def gauge(score: float, summary: FeatureStatistics, *, ticks: bool = True) -> Html:
    """From 0 to 100: all frames thin, nine in ten of them thick, the score as a mark."""
    low, high = summary.percentiles["p5"], summary.percentiles["p95"]
    drawn = [
        tag("rect", x=0, width="100%", y=9, height=2, class_="rail"),
        _stretch(summary.min, summary.max, y=8, height=4, class_="all"),
        _stretch(low, high, y=5, height=10, class_="most"),
        tag("line", x1=_percent(score), x2=_percent(score), y1=2, y2=18, class_="mark"),
    ]
    for value in range(0, 101, 20) if ticks else ():
        anchor = {0: "start", 100: "end"}.get(value, "middle")
        drawn.append(tag("text", f"{value}", x=_percent(value), y=34, text_anchor=anchor))
    label = f"{score:.2f} on a scale from 0 to 100; nine in ten frames from {low:.2f} to {high:.2f}"
    return tag("svg", *drawn, role="img", aria_label=label, class_="gauge", height=38 if ticks else 20)


def _stretch(low: float, high: float, **attributes: str | float) -> Html:
    low, high = (min(max(score, 0.0), 100.0) for score in (low, high))
    return tag("rect", x=_percent(low), width=_percent(max(high - low, 0.4)), rx=1, **attributes)


def _percent(score: float) -> str:
    return f"{min(max(score, 0.0), 100.0):.2f}%"


def _colour(place: int) -> str:
    return f"c{place % COLOURS}"
