"""Rate and quality as lines, dots and labels: pure, and the same for the page and for the PNG."""

import math
from collections.abc import Sequence

import msgspec

from vmafx.reports.measures import measure
from vmafx.reports.scales import Axis, fit

WIDTH, HEIGHT = 960, 560
LEFT, RIGHT, TOP, BOTTOM = 72, 40, 92, 64  # around the drawing
TITLE = "Rate and quality"
Point = tuple[float, float]


class Score(msgspec.Struct, frozen=True):
    """One encode: what it costs, and how good it looks."""

    name: str
    codec: str
    kbits: float
    vmaf: float


class Line(msgspec.Struct, frozen=True):
    """`ink` names a colour: text, muted, hair, or c0 and on, of which each codec has one."""

    points: tuple[Point, ...]
    ink: str
    width: float = 1.0


class Dot(msgspec.Struct, frozen=True):
    at: Point
    ink: str
    radius: float = 6.0
    told: str = ""  # on the page, when it is pointed at


class Label(msgspec.Struct, frozen=True):
    """`anchor` is the end of the text that is at `at`, whose height is the middle of a capital."""

    at: Point
    text: str
    ink: str = "muted"
    size: float = 14.0
    anchor: str = "start"
    bold: bool = False


Shape = Line | Dot | Label


def scene(scores: Sequence[Score]) -> list[Shape]:
    """A line for each codec, from its lowest rate to its highest; of a single encode a dot."""
    x, y = _rates([one.kbits for one in scores]), _scale(scores)
    shapes: list[Shape] = [
        Label((LEFT, 34), TITLE, "text", 22, bold=True),
        Label((LEFT, 62), "VMAF against kbit/s; up and to the left is better"),
        *_across(y),
        *_up(x),
        Label((WIDTH - RIGHT, HEIGHT - 16), "kbit/s", anchor="end"),
    ]
    for place, codec in enumerate(codecs(scores)):
        mine = sorted((one for one in scores if one.codec == codec), key=lambda one: one.kbits)
        spots = [_spot(one, x, y) for one in mine]
        if len(spots) > 1:
            shapes.append(Line(tuple(spots), f"c{place}", 2.5))
        for one, spot in zip(mine, spots, strict=True):
            shapes.append(Dot(spot, f"c{place}", told=f"{one.name}: VMAF {one.vmaf:.2f} at {one.kbits:,.0f} kbit/s"))
            shapes.append(_beside(spot, f"{one.vmaf:.1f}"))
    return [*shapes, *_legend(codecs(scores))]


def codecs(scores: Sequence[Score]) -> list[str]:
    """Each once, in the order in which they come."""
    return list(dict.fromkeys(one.codec for one in scores))


def _spot(one: Score, x: Axis, y: Axis) -> Point:
    across = LEFT + x.at(math.log(one.kbits)) * (WIDTH - LEFT - RIGHT)
    return across, _height(y, one.vmaf)


def _height(y: Axis, vmaf: float) -> float:
    return TOP + (1 - y.at(vmaf)) * (HEIGHT - TOP - BOTTOM)


def _beside(spot: Point, text: str) -> Label:
    """Right of its dot; left of it where that would be outside."""
    outside = spot[0] > WIDTH - RIGHT - 48
    at = (spot[0] + (-11 if outside else 11), spot[1] + 13)
    return Label(at, text, "text", 13, "end" if outside else "start")


def _scale(scores: Sequence[Score]) -> Axis:
    return fit(min(one.vmaf for one in scores), max(one.vmaf for one in scores), measure("vmaf"))


def _rates(kbits: Sequence[float]) -> Axis:
    """By the logarithm: rates are compared by how many times one is another. Ticks are 1, 2 and 5 of each ten."""
    low, high = min(kbits) / 1.25, max(kbits) * 1.25
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (step * 10.0**power for power in powers for step in (1, 2, 5))
    return Axis(math.log(low), math.log(high), tuple(math.log(step) for step in steps if low <= step <= high))


def _across(y: Axis) -> list[Shape]:
    shapes: list[Shape] = []
    for value in y.ticks:
        height = _height(y, value)
        shapes.append(Line(((LEFT, height), (WIDTH - RIGHT, height)), "hair"))
        shapes.append(Label((LEFT - 12, height), f"{value:.{y.decimals}f}", anchor="end"))
    return shapes


def _up(x: Axis) -> list[Shape]:
    shapes: list[Shape] = []
    for tick in x.ticks:
        across = LEFT + x.at(tick) * (WIDTH - LEFT - RIGHT)
        shapes.append(Line(((across, TOP), (across, HEIGHT - BOTTOM)), "hair"))
        shapes.append(Label((across, HEIGHT - BOTTOM + 22), f"{math.exp(tick):.0f}", anchor="middle"))
    return shapes


def _legend(names: Sequence[str]) -> list[Shape]:
    shapes: list[Shape] = []
    for place, name in enumerate(names):
        left = WIDTH - RIGHT - 96 * (len(names) - place)
        shapes.append(Line(((left, 34), (left + 24, 34)), f"c{place}", 2.5))
        shapes.append(Dot((left + 12, 34), f"c{place}", 5))
        shapes.append(Label((left + 34, 34), name, "text"))
    return shapes
