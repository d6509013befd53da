"""Draws every chart with matplotlib: ticks, curves, histogram and rate-quality chart, as SVG or PNG."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple, cast

import msgspec

from vmafx.reports import formatting
from vmafx.reports.canvas import (
    DPI,
    TITLE,
    Axes,
    Circle,
    Figure,
    Line2D,
    MaxNLocator,
    Polygon,
    as_picture,
    as_svg,
    chart_style,
    colours,
    drawable,
    new_axes,
)
from vmafx.reports.charts import (
    COLOURS,
    Chart,
    ChartLine,
    FrameChart,
    HistogramChart,
    RateChart,
    Size,
    dashes,
)
from vmafx.reports.curves import decimals
from vmafx.reports.features import VMAF, FeatureInfo
from vmafx.reports.markup import Html, showable

STEPS = [1, 2, 5, 10]  # between ticks
# Ticks per decade of a bitrate axis, from many to few.
RATE_STEPS = ((1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8), (1, 1.5, 2, 3, 4, 6, 8), (1, 2, 5), (1, 3), (1,))
DIGIT_WIDTH = 0.64  # as a fraction of the font size
PICTURE, PICTURE_SCALE = Size("picture", 960, 560, 14), 2
STACKED = Size("picture", 960, 720, 14)
HEADER, MARGIN = 104, 20  # of a picture
MAX_SUBTITLE = 100  # characters
Box = tuple[float, float, float, float]  # left, bottom, right, top


def value_ticks(low: float, high: float, feature: FeatureInfo, count: int = 5) -> list[float]:
    """About `count` ticks around values from `low` to `high`, not beyond the possible values of the feature."""
    floor = 0.0 if low >= 0 else -math.inf
    ceiling = feature.max_value if feature.max_value is not None and high <= feature.max_value else math.inf
    span = max(feature.min_span, abs(high) * 1e-3, 1e-6)
    if high - low < span:
        middle = (low + high) / 2
        high = min(middle + span / 2, ceiling)
        low = max(high - span, floor)
    return [float(tick) for tick in MaxNLocator(count, steps=STEPS).tick_values(low, high)]


def frame_ticks(first: int, last: int, count: int) -> list[int]:
    """About `count` frame numbers within the clip."""
    ticks = MaxNLocator(count, steps=STEPS, integer=True, min_n_ticks=1).tick_values(first, last)
    return [round(tick) for tick in ticks if first <= tick <= last] or [first]


def rate_ticks(low: float, high: float, distance: float) -> list[float]:
    """As many round bitrates as fit with `distance`, a fraction of the axis, between two of them."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in RATE_STEPS:
        candidates = (step * 10.0**power for power in powers for step in steps)
        ticks = [tick for tick in candidates if low <= tick <= high]
        if all(math.log(after / before) >= distance * math.log(high / low) for before, after in pairwise(ticks)):
            break
    return ticks


def count_ticks(max_count: int) -> list[float]:
    return [float(tick) for tick in MaxNLocator(4, steps=STEPS, integer=True).tick_values(0, max_count)]


class ChartArea(NamedTuple):
    """Where a chart is drawn: in a figure with others, with additional margins; by default in one of its own."""

    figure: Figure | None = None
    top: float | None = None
    bottom: float = 0
    side: float = 0


ALONE = ChartArea()


class Drawing(msgspec.Struct, frozen=True):
    svg: Html
    x: tuple[float, float]  # the limits of the axes
    y: tuple[float, float]


def draw(chart: Chart, size: Size) -> Drawing:
    with chart_style(size):
        match chart:
            case FrameChart():
                axes = _frame_chart(chart, size)
            case HistogramChart():
                axes = _histogram(chart, size)
            case RateChart():
                axes = _rate_chart(chart, size)
        return Drawing(as_svg(axes, size, chart.label), axes.get_xlim(), axes.get_ylim())


def picture(chart: FrameChart | RateChart, title: str, subtitle: str, kind: Literal["png", "svg"]) -> bytes:
    """The chart with title and legend, which a page has as markup."""
    match chart:
        case FrameChart():
            return _frame_picture(chart, title, subtitle, kind)
        case RateChart():
            return _rate_picture(chart, title, subtitle, kind)


def _rate_picture(chart: RateChart, title: str, subtitle: str, kind: Literal["png", "svg"]) -> bytes:
    with chart_style(PICTURE):
        axes = _rate_chart(chart, PICTURE, top=HEADER, margin=MARGIN)
        _titles(axes, PICTURE, title, subtitle)
        lines = [Line2D([], [], marker="o", lw=2.5, **_stroke(index)) for index in range(len(chart.codecs))]
        names = [drawable(codec) for codec in chart.codecs]
        axes.legend(lines, names, loc="lower right", bbox_to_anchor=(1, 1.03), ncols=6, borderaxespad=0)
        return as_picture(cast("Figure", axes.figure), PICTURE_SCALE, kind)


def _frame_picture(chart: FrameChart, title: str, subtitle: str, kind: Literal["png", "svg"]) -> bytes:
    """The names of several lines are below the chart, in as many columns as fit."""
    with chart_style(PICTURE):
        names = [drawable(line.name) for line in chart.lines] if len(chart.lines) > 1 else []
        column = max(map(len, names), default=0) * DIGIT_WIDTH * PICTURE.font + 60
        columns = max(int((PICTURE.width - 2 * MARGIN) // column), 1)
        below = math.ceil(len(names) / columns) * 1.6 * PICTURE.font
        size = msgspec.structs.replace(PICTURE, height=PICTURE.height + round(below))
        axes = _frame_chart(chart, size, ChartArea(top=HEADER, bottom=MARGIN + below, side=MARGIN))
        _titles(axes, size, title, subtitle)
        if names:
            lines = [Line2D([], [], lw=2.5, **_stroke(line.index)) for line in chart.lines]
            anchor = (MARGIN / size.width, MARGIN / 2 / size.height)
            axes.figure.legend(lines, names, loc="lower left", bbox_to_anchor=anchor, ncols=columns, borderaxespad=0)
        return as_picture(cast("Figure", axes.figure), PICTURE_SCALE, kind)


def _titles(axes: Axes, size: Size, title: str, subtitle: str) -> None:
    left = axes.get_position().x0
    axes.figure.text(left, 1 - 42 / size.height, drawable(title), fontsize=19, weight="bold")
    axes.figure.text(left, 1 - 70 / size.height, drawable(subtitle, MAX_SUBTITLE), color=colours()["muted"])


def stacked(charts: Mapping[str, FrameChart], title: str, subtitle: str, kind: Literal["png", "svg"]) -> bytes:
    """Charts over the same axis, one below the other, each with its name and legend."""
    size, header, margin = STACKED, 88, MARGIN
    with chart_style(size):
        figure = Figure(figsize=(size.width / DPI, size.height / DPI))
        height = (size.height - header) / len(charts)
        for row, (name, chart) in enumerate(charts.items()):
            top, bottom = header + row * height, size.height - header - (row + 1) * height
            axes = _frame_chart(chart, size, ChartArea(figure, top + 2.4 * size.font, bottom + margin, margin))
            axes.set_title(drawable(name), loc="left", fontsize=size.font, weight="bold", pad=size.font)
            if len(chart.lines) > 1:
                lines = [Line2D([], [], lw=2.5, **_stroke(line.index)) for line in chart.lines]
                names = [drawable(line.name) for line in chart.lines]
                axes.legend(lines, names, loc="lower right", bbox_to_anchor=(1, 1), ncols=6, borderaxespad=0)
        figure.text(margin / size.width, 1 - 42 / size.height, drawable(title), fontsize=19, weight="bold")
        figure.text(margin / size.width, 1 - 68 / size.height, drawable(subtitle), color=colours()["muted"])
        return as_picture(figure, PICTURE_SCALE, kind)


def _frame_chart(chart: FrameChart, size: Size, area: ChartArea = ALONE) -> Axes:
    small = size.name == "small"
    values = [value for line in chart.lines for _, value in line.curve.points]
    ticks = value_ticks(min(values), max(values), chart.feature, 3 if small else 5)
    levels = _level_names(chart, short=size.name == "narrow")
    axes = _grid(
        size,
        ticks,
        right=max([len(name) * DIGIT_WIDTH * size.font for name in levels] + [1.4 * size.font]) + 8 + area.side,
        bottom=(3.4 if chart.rate and not small else 2.1) * size.font + area.bottom,
        left=area.side,
        top=area.top,
        figure=area.figure,
    )
    first, last = (chart.first, chart.last) if chart.first < chart.last else (chart.first - 0.5, chart.last + 0.5)
    axes.set_xlim(first, last)
    _frame_axis(axes, chart, size, small=small)
    for line in chart.lines:
        _line(axes, line, band=0.3 if len(chart.lines) < 3 else 0.1)
    _levels(axes, levels, size)
    single = [line.curve.points[0] for line in chart.lines if len(line.curve.points) == 1]  # invisible as a line
    for frame, value in (*chart.dots, *single):
        _dot(axes, frame, value, colours()["c7"], 4)
    return axes


def _grid(
    size: Size,
    ticks: Sequence[float],
    *,
    right: float,
    bottom: float,
    left: float = 0,
    top: float | None = None,
    figure: Figure | None = None,
) -> Axes:
    """Axes with horizontal grid lines, and a left margin wide enough for their labels."""
    exact = decimals(ticks[1] - ticks[0])
    labels = [formatting.number(tick, exact) for tick in ticks]
    left += max(map(len, labels)) * DIGIT_WIDTH * size.font + 10
    axes = new_axes(size, left, right, size.font if top is None else top, bottom, figure)
    axes.set_ylim(ticks[0], ticks[-1])
    axes.set_yticks(ticks, labels)
    return axes


def _frame_axis(axes: Axes, chart: FrameChart, size: Size, *, small: bool) -> None:
    ticks = frame_ticks(chart.first, chart.last, min(_width(axes) // 62, 10))
    axes.set_xticks(ticks, [f"{frame:,}" for frame in ticks])
    if chart.rate is None or small:
        return
    step = ticks[1] - ticks[0] if len(ticks) > 1 else 0
    for frame in ticks:
        time = formatting.clock(frame / chart.rate, 0 if step / chart.rate >= 1 else 2)
        axes.annotate(time, (frame, 0), (0, -2 * size.font), xycoords=("data", "axes fraction"),
                      textcoords="offset points", ha="center", va="top", color=colours()["muted"],
                      fontsize=size.font - 1)  # fmt: skip


def _line(axes: Axes, line: ChartLine, band: float) -> None:
    """The curve; if downsampled, the mean of each bucket over a band from minimum to maximum."""
    curve, colour = line.curve, _colour(line.index)
    points = curve.points
    if curve.buckets:
        frames, low, mean, high = zip(*curve.buckets, strict=True)
        outline = [*zip(frames, high, strict=True), *zip(frames[::-1], low[::-1], strict=True)]
        axes.add_artist(Polygon(outline, fc=(colour, band), ec=(colour, 2 * band), lw=0.8))
        points = list(zip(frames, mean, strict=True))
    axes.plot(*zip(*points, strict=True), clip_on=False, **_stroke(line.index))


def _level_names(chart: FrameChart, *, short: bool) -> dict[str, float]:
    """Levels from highest to lowest; the name includes the value unless `short`."""
    ranked = sorted(chart.levels.items(), key=lambda level: -level[1])
    return {
        name if short else f"{name} {formatting.number(value, chart.feature.decimals)}": value for name, value in ranked
    }


def _levels(axes: Axes, levels: Mapping[str, float], size: Size) -> None:
    """Horizontal lines with a label on the right; two labels that would overlap are moved apart."""
    heights = [axes.transData.transform((0, value))[1] for value in levels.values()]
    tight = len(heights) > 1 and heights[0] - heights[-1] < 1.3 * size.font
    for (name, value), side in zip(levels.items(), ("bottom", "top"), strict=False):
        axes.axhline(value, color=colours()["muted"], lw=1, linestyle=(0, (5, 4)))
        axes.annotate(name, (1, value), (8, 0), xycoords=("axes fraction", "data"), textcoords="offset points",
                      va=side if tight else "center")  # fmt: skip


def _histogram(chart: HistogramChart, size: Size) -> Axes:
    max_count, total = max(count for _, count in chart.bins), sum(count for _, count in chart.bins)
    axes = _grid(size, count_ticks(max_count), right=1.5 * size.font, bottom=2.1 * size.font)
    low, high, exact = chart.bins[0][0], chart.bins[-1][0] + chart.width, decimals(chart.width)
    axes.set_xlim(low, high)
    marks = value_ticks(low, high, VMAF, min(_width(axes) // 50, 10))
    marks = [mark for mark in marks if low <= mark <= high]
    axes.set_xticks(marks, [formatting.number(mark, decimals(marks[1] - marks[0])) for mark in marks])
    for start, count in chart.bins:
        (bar,) = axes.bar(start + chart.width / 2, count, 0.88 * chart.width, color=_colour(0))
        frames = f"{formatting.plural(count, 'frame')}, {count / total:.1%}"
        bar.set_gid(f"{TITLE}{start:.{exact}f} to {start + chart.width:.{exact}f}: {frames}")
    return axes


def _rate_chart(chart: RateChart, size: Size, top: float | None = None, margin: float = 0) -> Axes:
    """VMAF against bitrate on a logarithmic axis: bitrates compare by their ratio."""
    scores, rates = [one.vmaf for one in chart.points], [one.kbits for one in chart.points]
    axes = _grid(
        size,
        value_ticks(min(scores), max(scores), VMAF),
        left=margin,
        right=margin + size.font,
        bottom=margin + 3.7 * size.font,
        top=top,
    )
    axes.set_xscale("log")
    axes.set_xlim(min(rates) / 1.25, max(rates) * 1.25)
    axes.minorticks_off()
    ticks = rate_ticks(*axes.get_xlim(), distance=55 / _width(axes))
    axes.set_xticks(ticks, [f"{tick:,.10g}" for tick in ticks])
    axes.grid(axis="x")
    axes.set_xlabel("kbit/s", loc="right")
    for index, codec in enumerate(chart.codecs):
        encodes = sorted((one for one in chart.points if one.codec == codec), key=lambda one: one.kbits)
        if len(encodes) > 1:
            axes.plot([one.kbits for one in encodes], [one.vmaf for one in encodes], lw=2.5, **_stroke(index))
        for one in encodes:
            title = f"{one.name}: VMAF {one.vmaf:.2f} at {one.kbits:,.0f} kbit/s"
            _dot(axes, one.kbits, one.vmaf, _colour(index), 6, title)
    _label_scores(axes, chart, size)
    return axes


def _label_scores(axes: Axes, chart: RateChart, size: Size) -> None:
    """The score beside each dot, on the side where it covers least of other dots and scores."""
    spots = [axes.transData.transform((one.kbits, one.vmaf)) for one in chart.points]
    occupied: list[Box] = [(x - 7, y - 7, x + 7, y + 7) for x, y in spots]
    for one, (x, y) in zip(chart.points, spots, strict=True):
        if chart.labelled not in {"", one.codec}:
            continue
        text = f"{one.vmaf:.1f}"
        width, height = len(text) * DIGIT_WIDTH * size.font, size.font
        boxes = {
            ("left", "top"): (x + 8, y - 5 - height, x + 8 + width, y - 5),
            ("right", "bottom"): (x - 8 - width, y + 5, x - 8, y + 5 + height),
            ("left", "bottom"): (x + 8, y + 5, x + 8 + width, y + 5 + height),
            ("right", "top"): (x - 8 - width, y - 5 - height, x - 8, y - 5),
        }
        (across, up), box = min(boxes.items(), key=lambda found: _overlap(found[1], occupied, axes))
        occupied.append(box)
        axes.annotate(text, (one.kbits, one.vmaf), (8 if across == "left" else -8, -5 if up == "top" else 5),
                      textcoords="offset points", ha=across, va=up)  # fmt: skip


def _overlap(box: Box, occupied: Sequence[Box], axes: Axes) -> float:
    """The area of the box that covers others or lies outside of the axes."""
    left, low, right, high = box
    inside = _intersection(box, (axes.bbox.x0, axes.bbox.y0, axes.bbox.x1, axes.bbox.y1))
    return sum(_intersection(box, other) for other in occupied) + (right - left) * (high - low) - inside


def _intersection(one: Box, other: Box) -> float:
    width, height = min(one[2], other[2]) - max(one[0], other[0]), min(one[3], other[3]) - max(one[1], other[1])
    return max(width, 0.0) * max(height, 0.0)


def _dot(axes: Axes, x: float, y: float, colour: str, radius: float, title: str = "") -> None:
    """A circle with a radius in pixels. A marker would become a reference to an id, and ids would repeat on a page."""
    across, up = axes.transData.transform((x, y)) / DPI
    inches = axes.figure.dpi_scale_trans
    dot = Circle((across, up), radius / DPI, fc=colour, ec=colours()["panel"], lw=1.5, transform=inches, zorder=3)
    dot.set_clip_on(False)  # it may stand over the edge
    if title:
        dot.set_gid(TITLE + showable(title))
    axes.add_artist(dot)


def _stroke(index: int) -> dict[str, Any]:
    return {"color": _colour(index), "linestyle": (0, dashes(index)) if dashes(index) else "-"}


def _width(axes: Axes) -> int:
    return round(axes.bbox.width)


def _colour(index: int) -> str:
    return colours()[f"c{index % COLOURS}"]
