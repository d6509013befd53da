"""Where the axes of a chart have ticks: matplotlib's locators, with what we know of the values."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from vmafx.reports import formatting
from vmafx.reports.canvas import (
    PIXELS,
    TITLE,
    Axes,
    Circle,
    Line2D,
    MaxNLocator,
    Polygon,
    as_png,
    as_svg,
    colours,
    drawable,
    look,
    new_axes,
)
from vmafx.reports.charts import (
    COLOURS,
    Chart,
    ChartLine,
    FrameChart,
    HistogramChart,
    RateChart,
    RatePoint,
    Size,
    dashes,
)
from vmafx.reports.curves import decimals
from vmafx.reports.features import VMAF, FeatureInfo
from vmafx.reports.markup import Html, showable

STEPS = [1, 2, 5, 10]  # between ticks
RATE_STEPS = ((1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8), (1, 1.5, 2, 3, 4, 6, 8), (1, 2, 5), (1, 3), (1,))  # of each ten


def value_ticks(low: float, high: float, measure: FeatureInfo, about: int = 5) -> list[float]:
    """Ticks around values from `low` to `high`: as narrow as shows them well, and never beyond what can be."""
    floor = 0.0 if low >= 0 else -math.inf
    ceiling = measure.most if measure.most is not None and high <= measure.most else math.inf
    span = max(measure.span, abs(high) * 1e-3, 1e-6)
    if high - low < span:
        middle = (low + high) / 2
        high = min(middle + span / 2, ceiling)
        low = max(high - span, floor)
    return [float(tick) for tick in MaxNLocator(about, steps=STEPS).tick_values(low, high)]


def frame_ticks(first: int, last: int, about: int) -> list[int]:
    """Whole frames within the clip."""
    ticks = MaxNLocator(about, steps=STEPS, integer=True, min_n_ticks=1).tick_values(first, last)
    return [round(tick) for tick in ticks if first <= tick <= last] or [first]


def rate_ticks(low: float, high: float, apart: float) -> list[float]:
    """Round rates, as many as leave `apart`, in parts of the axis' length, between any two."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in RATE_STEPS:
        found = (step * 10.0**power for power in powers for step in steps)
        ticks = [tick for tick in found if low <= tick <= high]
        if all(math.log(after / before) >= apart * math.log(high / low) for before, after in pairwise(ticks)):
            break
    return ticks


def count_ticks(most: int) -> list[float]:
    return [float(tick) for tick in MaxNLocator(4, steps=STEPS, integer=True).tick_values(0, most)]


LETTER = 0.64  # the width of a digit, in parts of the font's size
PNG, PNG_SCALE = Size("png", 960, 560, 14), 2
Box = tuple[float, float, float, float]  # left, low, right, high


class Drawing(msgspec.Struct, frozen=True):
    svg: Html
    x: tuple[float, float]  # the values at the ends of the plot area
    y: tuple[float, float]


def draw(chart: Chart, size: Size) -> Drawing:
    with look(size):
        match chart:
            case FrameChart():
                axes = _frame_chart(chart, size)
            case HistogramChart():
                axes = _histogram(chart, size)
            case RateChart():
                axes = _rate_chart(chart, size)
        return Drawing(as_svg(axes, size, chart.label), axes.get_xlim(), axes.get_ylim())


def png(chart: RateChart, title: str, about: str) -> bytes:
    """The chart on its own: with a title and a legend, which a page has as markup."""
    with look(PNG):
        axes = _rate_chart(chart, PNG, above=104, around=20)
        left = axes.get_position().x0
        axes.figure.text(left, 1 - 42 / PNG.height, drawable(title), fontsize=19, weight="bold")
        axes.figure.text(left, 1 - 70 / PNG.height, drawable(about), color=colours()["muted"])
        lines = [Line2D([], [], marker="o", lw=2.5, **_stroke(place)) for place in range(len(chart.codecs))]
        names = [drawable(codec) for codec in chart.codecs]
        axes.legend(lines, names, loc="lower right", bbox_to_anchor=(1, 1.03), ncols=6, borderaxespad=0)
        return as_png(axes, PNG_SCALE)


def _frame_chart(chart: FrameChart, size: Size) -> Axes:
    small = size.name == "small"
    values = [value for line in chart.lines for _, value in line.curve.points]
    ticks = value_ticks(min(values), max(values), chart.measure, 3 if small else 5)
    levels = _level_names(chart, short=size.name == "narrow")
    axes = _grid(
        size,
        ticks,
        right=max([len(name) * LETTER * size.font for name in levels] + [1.4 * size.font]) + 8,
        bottom=(3.4 if chart.rate and not small else 2.1) * size.font,
    )
    first, last = (chart.first, chart.last) if chart.first < chart.last else (chart.first - 0.5, chart.last + 0.5)
    axes.set_xlim(first, last)
    _frames(axes, chart, size, small=small)
    for line in chart.lines:
        _line(axes, line, band=0.3 if len(chart.lines) < 3 else 0.1)
    _levels(axes, levels, size)
    alone = [line.curve.points[0] for line in chart.lines if len(line.curve.points) == 1]  # has no length to be seen by
    for frame, value in (*chart.dots, *alone):
        _dot(axes, frame, value, colours()["c7"], 4)
    return axes


def _grid(
    size: Size, ticks: Sequence[float], *, right: float, bottom: float, left: float = 0, top: float | None = None
) -> Axes:
    """Lines across, with their values to the left, and room for these."""
    exact = decimals(ticks[1] - ticks[0])
    labels = [formatting.number(tick, exact) for tick in ticks]
    left += max(map(len, labels)) * LETTER * size.font + 10
    axes = new_axes(size, left, right, size.font if top is None else top, bottom)
    axes.set_ylim(ticks[0], ticks[-1])
    axes.set_yticks(ticks, labels)
    return axes


def _frames(axes: Axes, chart: FrameChart, size: Size, *, small: bool) -> None:
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
    """The curve; of a long clip the mean of each bucket, over a band from its lowest value to its highest."""
    curve, ink = line.curve, _ink(line.place)
    drawn = curve.points
    if curve.buckets:
        frames, low, mean, high = zip(*curve.buckets, strict=True)
        around = [*zip(frames, high, strict=True), *zip(frames[::-1], low[::-1], strict=True)]
        axes.add_artist(Polygon(around, fc=(ink, band), ec=(ink, 2 * band), lw=0.8))
        drawn = list(zip(frames, mean, strict=True))
    axes.plot(*zip(*drawn, strict=True), **_stroke(line.place))


def _level_names(chart: FrameChart, *, short: bool) -> dict[str, float]:
    """From the highest to the lowest; with their values where there is room."""
    ranked = sorted(chart.levels.items(), key=lambda level: -level[1])
    return {
        name if short else f"{name} {formatting.number(value, chart.measure.decimals)}": value for name, value in ranked
    }


def _levels(axes: Axes, levels: Mapping[str, float], size: Size) -> None:
    """Lines across at a value, named beside them; two names that would meet give way to each other."""
    heights = [axes.transData.transform((0, value))[1] for value in levels.values()]
    tight = len(heights) > 1 and heights[0] - heights[-1] < 1.3 * size.font
    for (name, value), side in zip(levels.items(), ("bottom", "top"), strict=False):
        axes.axhline(value, color=colours()["muted"], lw=1, linestyle=(0, (5, 4)))
        axes.annotate(name, (1, value), (8, 0), xycoords=("axes fraction", "data"), textcoords="offset points",
                      va=side if tight else "center")  # fmt: skip


def _histogram(chart: HistogramChart, size: Size) -> Axes:
    most, total = max(count for _, count in chart.bins), sum(count for _, count in chart.bins)
    axes = _grid(size, count_ticks(most), right=1.5 * size.font, bottom=2.1 * size.font)
    low, high, exact = chart.bins[0][0], chart.bins[-1][0] + chart.width, decimals(chart.width)
    axes.set_xlim(low, high)
    marks = value_ticks(low, high, VMAF, min(_width(axes) // 50, 10))
    marks = [mark for mark in marks if low <= mark <= high]
    axes.set_xticks(marks, [formatting.number(mark, decimals(marks[1] - marks[0])) for mark in marks])
    for start, count in chart.bins:
        (bar,) = axes.bar(start + chart.width / 2, count, 0.88 * chart.width, color=_ink(0))
        frames = f"{formatting.plural(count, 'frame')}, {count / total:.1%}"
        bar.set_gid(f"{TITLE}{start:.{exact}f} to {start + chart.width:.{exact}f}: {frames}")
    return axes


def _rate_chart(chart: RateChart, size: Size, above: float | None = None, around: float = 0) -> Axes:
    """By the logarithm of the rate: rates are compared by how many times one is another."""
    scores, rates = [one.vmaf for one in chart.points], [one.kbits for one in chart.points]
    axes = _grid(
        size,
        value_ticks(min(scores), max(scores), VMAF),
        left=around,
        right=around + size.font,
        bottom=around + 3.7 * size.font,
        top=above,
    )
    axes.set_xscale("log")
    axes.set_xlim(min(rates) / 1.25, max(rates) * 1.25)
    axes.minorticks_off()
    ticks = rate_ticks(*axes.get_xlim(), apart=55 / _width(axes))
    axes.set_xticks(ticks, [f"{tick:,.10g}" for tick in ticks])
    axes.grid(axis="x")
    axes.set_xlabel("kbit/s", loc="right")
    for place, codec in enumerate(chart.codecs):
        mine = sorted((one for one in chart.points if one.codec == codec), key=lambda one: one.kbits)
        if len(mine) > 1:
            axes.plot([one.kbits for one in mine], [one.vmaf for one in mine], lw=2.5, **_stroke(place))
        for one in mine:
            title = f"{one.name}: VMAF {one.vmaf:.2f} at {one.kbits:,.0f} kbit/s"
            _dot(axes, one.kbits, one.vmaf, _ink(place), 6, title)
    _name_values(axes, chart.points, size)
    return axes


def _name_values(axes: Axes, points: Sequence[RatePoint], size: Size) -> None:
    """Each score beside its dot, where it covers least of other dots and scores."""
    spots = [axes.transData.transform((one.kbits, one.vmaf)) for one in points]
    taken: list[Box] = [(x - 7, y - 7, x + 7, y + 7) for x, y in spots]
    for one, (x, y) in zip(points, spots, strict=True):
        text = f"{one.vmaf:.1f}"
        wide, high = len(text) * LETTER * size.font, size.font
        boxes = {
            ("left", "top"): (x + 8, y - 5 - high, x + 8 + wide, y - 5),
            ("right", "bottom"): (x - 8 - wide, y + 5, x - 8, y + 5 + high),
            ("left", "bottom"): (x + 8, y + 5, x + 8 + wide, y + 5 + high),
            ("right", "top"): (x - 8 - wide, y - 5 - high, x - 8, y - 5),
        }
        (across, up), box = min(boxes.items(), key=lambda found: _covered(found[1], taken, axes))
        taken.append(box)
        axes.annotate(text, (one.kbits, one.vmaf), (8 if across == "left" else -8, -5 if up == "top" else 5),
                      textcoords="offset points", ha=across, va=up)  # fmt: skip


def _covered(box: Box, taken: Sequence[Box], axes: Axes) -> float:
    """How much of `taken` is behind the box, and how much of the box is outside of the axes."""
    left, low, right, high = box
    inside = _common(box, (axes.bbox.x0, axes.bbox.y0, axes.bbox.x1, axes.bbox.y1))
    return sum(_common(box, other) for other in taken) + (right - left) * (high - low) - inside


def _common(one: Box, other: Box) -> float:
    wide, high = min(one[2], other[2]) - max(one[0], other[0]), min(one[3], other[3]) - max(one[1], other[1])
    return max(wide, 0.0) * max(high, 0.0)


def _dot(axes: Axes, x: float, y: float, colour: str, radius: float, title: str = "") -> None:
    """A circle of that many pixels; a marker would be written as a reference to an id, which pages do without."""
    across, up = axes.transData.transform((x, y)) / PIXELS
    inches = axes.figure.dpi_scale_trans
    dot = Circle((across, up), radius / PIXELS, fc=colour, ec=colours()["panel"], lw=1.5, transform=inches, zorder=3)
    if title:
        dot.set_gid(TITLE + showable(title))
    axes.add_artist(dot)


def _stroke(place: int) -> dict[str, Any]:
    return {"color": _ink(place), "linestyle": (0, dashes(place)) if dashes(place) else "-"}


def _width(axes: Axes) -> int:
    return round(axes.bbox.width)


def _ink(place: int) -> str:
    return colours()[f"c{place % COLOURS}"]
