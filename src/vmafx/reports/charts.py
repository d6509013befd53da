"""Chart types, and their markup; plots.py draws them.

A chart is drawn once for each page width, and page.css shows the one that fits, so that text is readable on any
screen. curves.js reads the data-* attributes to show the values under the pointer, and to zoom.
"""

from collections.abc import Mapping, Sequence

import msgspec

from vmafx.reports import formatting
from vmafx.reports.curves import Curve, histogram_bins
from vmafx.reports.features import VMAF, FeatureInfo
from vmafx.reports.markup import Html, tag
from vmafx.scoring.result import FeatureStatistics

COLOURS = 8
# For lines 0 to 7, 8 to 15 and 16 to 23: colours repeat, strokes differ.
DASHES: tuple[tuple[int, ...], ...] = ((), (7, 4), (2, 4))


class Size(msgspec.Struct, frozen=True):
    """A size in CSS pixels that charts are drawn in; page.css has the page widths at which it is shown."""

    name: str
    width: int
    height: int
    font: int = 13


WIDE, MEDIUM, NARROW = Size("wide", 1080, 310), Size("medium", 680, 290), Size("narrow", 360, 260)
SMALL = Size("small", 300, 150, 12)
LARGE = (WIDE, MEDIUM, NARROW)


class ChartLine(msgspec.Struct, frozen=True):
    name: str
    curve: Curve  # as drawn
    index: int = 0  # in the chart; determines colour and stroke
    detail: Curve | None = None  # with more points, for the values on the page and the zoom


class FrameChart(msgspec.Struct, frozen=True, kw_only=True):
    """Curves over the frames from `first` to `last`."""

    label: str  # for screen readers
    first: int
    last: int
    lines: Sequence[ChartLine]
    feature: FeatureInfo = VMAF
    rate: float | None = None  # frames per second; adds times to the axis
    levels: Mapping[str, float] = {}  # horizontal lines by name, such as the mean
    dots: Sequence[tuple[int, float]] = ()
    sizes: tuple[Size, ...] = LARGE


class HistogramChart(msgspec.Struct, frozen=True, kw_only=True):
    """Number of frames per bin of scores; a bin is its lower edge and its count."""

    label: str
    width: float
    bins: Sequence[tuple[float, int]]
    sizes: tuple[Size, ...] = (Size("small", 360, 260),)


class RatePoint(msgspec.Struct, frozen=True):
    """Bitrate and score of one encode."""

    name: str
    codec: str
    kbits: float
    vmaf: float


class RateChart(msgspec.Struct, frozen=True, kw_only=True):
    """VMAF against bitrate: a line for each codec, a dot for each encode; scores beside the dots of `labelled` only."""

    label: str
    points: Sequence[RatePoint]
    labelled: str = ""  # a codec; all of them without it
    sizes: tuple[Size, ...] = (Size("wide", 1080, 560), Size("medium", 680, 460), Size("narrow", 360, 340))

    @property
    def codecs(self) -> list[str]:
        """The codecs, in order of first appearance."""
        return list(dict.fromkeys(one.codec for one in self.points))


Chart = FrameChart | HistogramChart | RateChart


def draw(chart: Chart) -> Html:
    from vmafx.reports import plots  # noqa: PLC0415 - matplotlib takes 0.6 s and 50 MB

    drawings = [plots.draw(chart, size) for size in chart.sizes]
    svgs = [drawing.svg for drawing in drawings]
    if not isinstance(chart, FrameChart):
        return tag("div", *svgs, class_="plot")
    (first, last), (low, high), exact = drawings[0].x, drawings[0].y, chart.feature.decimals
    dots = " ".join(f"{frame} {value:.{exact}f}" for frame, value in chart.dots) or None
    levels = " ".join(f"{name} {value:.{exact}f}" for name, value in chart.levels.items()) or None
    return tag("div", *svgs, *(_values(line, exact) for line in chart.lines), class_="plot", data_from=_plain(first),
               data_to=_plain(last), data_low=low, data_high=high, data_decimals=exact,
               data_span=chart.feature.min_span, data_best=chart.feature.max_value, data_rate=chart.rate,
               data_dots=dots, data_levels=levels)  # fmt: skip


def _values(line: ChartLine, exact: int) -> Html:
    """The points of a line, for curves.js."""
    points = (line.detail or line.curve).points
    return tag(
        "i",
        class_=_colour(line.index),
        hidden="",
        data_name=line.name,
        data_frames=" ".join(str(frame) for frame, _ in points),
        data_values=" ".join(f"{value:.{exact}f}" for _, value in points),
        data_dashes=_dash_array(line.index),
    )


def histogram(values: Sequence[float]) -> HistogramChart:
    width, bins = histogram_bins(values)
    frames = formatting.plural(len(values), "frame")
    label = f"Histogram of the VMAF of {frames}, from {min(values):.2f} to {max(values):.2f}"
    return HistogramChart(label=label, width=width, bins=bins)


def figure(title: str, chart: Html, note: str | None = None, *, heading: str = "h3") -> Html:
    note_line = tag("p", note) if note else None
    return tag("figure", tag("figcaption", tag(heading, title), note_line), chart, class_="panel")


def legend(names: Sequence[str]) -> Html:
    return tag("ul", *(tag("li", swatch(index), tag("bdi", name)) for index, name in enumerate(names)), class_="legend")


def swatch(index: int) -> Html:
    """A short line in the colour and stroke of a series, for legends."""
    line = tag("line", x1=0, x2=22, y1=5, y2=5, stroke_dasharray=_dash_array(index))
    return tag("svg", line, width=22, height=10, class_=f"swatch {_colour(index)}", aria_hidden="true")


def dashes(index: int) -> tuple[int, ...]:
    return DASHES[index // COLOURS % len(DASHES)]


def _dash_array(index: int) -> str | None:
    return " ".join(map(str, dashes(index))) or None


def gauge(score: float, summary: FeatureStatistics, *, ticks: bool = True) -> Html:
    """A scale from 0 to 100: thin bar from minimum to maximum, thick bar from p5 to p95, a mark at the score."""
    low, high = summary.percentiles["p5"], summary.percentiles["p95"]
    parts = [
        tag("rect", x=0, width="100%", y=9, height=2, class_="rail"),
        _bar(summary.min, summary.max, y=8, height=4, class_="all"),
        _bar(low, high, y=5, height=10, class_="most"),
        tag("line", x1=_percent(score), x2=_percent(score), y1=2, y2=18, class_="mark"),
    ]
    for value in range(0, 101, 20) if ticks else ():
        anchor = {0: "start", 100: "end"}.get(value, "middle")
        parts.append(tag("text", f"{value}", x=_percent(value), y=34, text_anchor=anchor))
    label = f"{score:.2f} on a scale from 0 to 100; 5th percentile {low:.2f}, 95th percentile {high:.2f}"
    return tag("svg", *parts, role="img", aria_label=label, class_="gauge", height=38 if ticks else 20)


def _bar(low: float, high: float, **attributes: str | float) -> Html:
    low, high = (min(max(score, 0.0), 100.0) for score in (low, high))
    return tag("rect", x=_percent(low), width=_percent(max(high - low, 0.4)), rx=1, **attributes)


def _percent(score: float) -> str:
    return f"{min(max(score, 0.0), 100.0):.2f}%"


def _colour(index: int) -> str:
    return f"c{index % COLOURS}"


def _plain(frame: float) -> str:
    """Whole numbers without decimals, and never with an exponent."""
    return f"{frame:.1f}".removesuffix(".0")
