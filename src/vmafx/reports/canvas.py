"""matplotlib set up for all charts (the only module that imports it), and its SVG turned into page markup."""

import io
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import resources
from itertools import pairwise
from tempfile import TemporaryDirectory
from typing import cast
from xml.etree import ElementTree as ET

from vmafx.reports.charts import Size
from vmafx.reports.markup import Html, showable, tag
from vmafx.scoring.errors import NodeFault


@contextmanager
def _undisturbed() -> Iterator[None]:
    """When it is imported, matplotlib looks for settings and fonts in the home folder and keeps a list of fonts there.

    That folder may be missing, read-only or full, so it gets an empty one. With only its own fonts, the list is made
    in a fraction of a second.
    """
    try:
        folder = TemporaryDirectory(prefix="vmafx-plots-")
    except OSError as error:
        raise NodeFault(f"charts need a folder for temporary files ({error.strerror}); name one by TMPDIR") from error
    with folder as empty:
        instead = {
            "MATPLOTLIBRC": empty, "MPLBACKEND": "agg", "MPLCONFIGDIR": empty, "MPL_IGNORE_SYSTEM_FONTS": "1",
        }  # fmt: skip
        before = {name: os.environ.get(name) for name in instead}
        os.environ.update(instead)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


with _undisturbed():
    import matplotlib
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.font_manager import findfont, get_font
    from matplotlib.lines import Line2D
    from matplotlib.patches import Circle, Polygon
    from matplotlib.patheffects import withStroke
    from matplotlib.text import Text
    from matplotlib.ticker import MaxNLocator

__all__ = [
    "PIXELS",
    "Axes",
    "Circle",
    "Line2D",
    "MaxNLocator",
    "Polygon",
    "as_png",
    "as_svg",
    "drawable",
    "look",
    "new_axes",
]

FONT = "DejaVu Sans"
PIXELS = 72  # in an inch: a point is a pixel
LONGEST = 60  # letters in a picture's text


@contextmanager
def look(size: Size) -> Iterator[None]:
    """How charts look; whatever else the process draws with matplotlib keeps its own look."""
    ink = colours()
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(
            {
                "svg.fonttype": "none",  # text stays text
                "svg.hashsalt": "vmafx",  # the same chart is written as the same bytes
                "text.parse_math": False,  # a dollar in a name is a dollar
                "font.family": FONT,
                "font.size": size.font,
                "figure.dpi": PIXELS,
                "axes.axisbelow": True,
                "axes.facecolor": "none",
                "axes.grid": True,
                "axes.grid.axis": "y",
                "axes.labelcolor": ink["muted"],
                "axes.spines.bottom": False,
                "axes.spines.left": False,
                "axes.spines.right": False,
                "axes.spines.top": False,
                "figure.facecolor": "none",
                "grid.color": ink["hair"],
                "grid.linewidth": 1,
                "legend.frameon": False,
                "legend.labelcolor": ink["text"],
                "lines.linewidth": 1.6,
                "lines.scale_dashes": False,
                "text.color": ink["text"],
                "xtick.bottom": False,
                "xtick.labelcolor": ink["muted"],
                "xtick.major.pad": 8,
                "xtick.major.size": 0,
                "xtick.minor.bottom": False,
                "ytick.labelcolor": ink["muted"],
                "ytick.left": False,
                "ytick.major.pad": 8,
                "ytick.major.size": 0,
            }
        )
        yield


def new_axes(size: Size, left: float, right: float, top: float, bottom: float) -> Axes:
    """The axes of a new figure, with that much room around them."""
    figure = Figure(figsize=(size.width / PIXELS, size.height / PIXELS))
    wide, high = size.width - left - right, size.height - top - bottom
    return figure.add_axes((left / size.width, bottom / size.height, wide / size.width, high / size.height))


def as_svg(axes: Axes, size: Size, label: str) -> Html:
    """For a page. data-box says where the plot area lies: left, top, width and height, in percent of the drawing."""
    box = axes.get_position()
    place = (box.x0, 1 - box.y1, box.width, box.height)
    written = io.StringIO()
    cast("Figure", axes.figure).savefig(written, format="svg", metadata={"Date": None})
    return inline(
        written.getvalue(),
        size.font,
        class_=size.name,
        role="img",
        aria_label=label,
        data_box=" ".join(f"{part * 100:.2f}" for part in place),
    )


def as_png(axes: Axes, scale: int) -> bytes:
    """On paper of the light theme; what is behind a text gives way to it, as page.css has it for pages."""
    figure, paper = cast("Figure", axes.figure), colours()["panel"]
    for text in figure.findobj(Text):
        text.set_path_effects([withStroke(linewidth=3, foreground=paper)])
    written = io.BytesIO()
    figure.savefig(written, format="png", dpi=PIXELS * scale, facecolor=paper, metadata={"Software": None})
    return written.getvalue()


def drawable(text: str) -> str:
    """In one line, not too long, and without what the font has no letter for."""
    known = get_font(findfont(FONT)).get_char_index
    line = " ".join(showable(text).split())
    short = line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
    return "".join(letter if known(ord(letter)) else "\ufffd" for letter in short)


INKS = ("text", "muted", "hair", "panel", *(f"c{place}" for place in range(8)))
TITLE = "title: "  # an artist's gid that begins so is the text to show when it is pointed at
# What page.css says for all of a chart, and what a part of it therefore need not say.
GIVEN = {"font-family", "stroke-dashoffset", "stroke-linecap", "stroke-linejoin"}
USUAL = {"path": "fill:none", "text": "fill:var(--muted)"}


@cache
def colours() -> Mapping[str, str]:
    """The light theme's colour of each ink; no two are the same."""
    style = resources.files("vmafx.reports").joinpath("page.css").read_text(encoding="utf-8")
    light = dict(re.findall(r"--([\w-]+): light-dark\((#\w{6}), ", style))
    return {ink: light[ink] for ink in INKS}


def inline(written: str, font: int, **attributes: str | float | None) -> Html:
    """An `svg` element with what can be seen of the drawing; `font` is the size of most of its text."""
    root = ET.fromstring(written)  # noqa: S314 - matplotlib wrote it just now
    return tag("svg", *_children(root, font), viewBox=root.attrib["viewBox"], font_size=font, **attributes)


def _children(element: ET.Element, font: int) -> Iterator[Html]:
    for child in element:
        match child.tag.rpartition("}")[2]:
            case "g":
                title = child.get("id", "").partition(TITLE)[2]
                inside = _children(child, font)
                yield from (tag("g", tag("title", title), *inside),) if title else inside
            case "path":
                style = _style(child, "path", font)
                if style:  # what is neither filled nor a stroke is not to be seen
                    yield tag("path", d=_path(child.attrib["d"]), style=style)
            case "text":
                at = {"x": _short(child.attrib["x"]), "y": _short(child.attrib["y"])}
                yield tag("text", child.text, **at, style=_style(child, "text", font) or None)
            case "metadata" | "defs":  # who made it, how lines end, and clip paths, which nothing here needs
                pass
            case other:
                raise ValueError(f"no chart of ours has an SVG element {other}")


def _style(element: ET.Element, name: str, font: int) -> str:
    said = dict(re.findall(r"([\w-]+): ([^;]+)", element.attrib["style"]))
    variables = {colour: f"var(--{ink})" for ink, colour in colours().items()}
    parts = [f"{key}:{variables.get(value, value)}" for key, value in said.items() if key not in GIVEN]
    return ";".join(part for part in parts if part not in {USUAL[name], f"font-size:{font}px", "text-anchor:start"})


def _path(written: str) -> str:
    """In tenths of a pixel; lines as steps from one point to the next, which takes half as many characters."""
    if "C" in written:
        return " ".join(_short(part) if part[-1].isdigit() else part for part in written.split())
    return "".join(_lines(part) for part in re.findall(r"M[^M]+", written))


def _lines(written: str) -> str:
    numbers = [round(float(number) * 10) for number in re.findall(r"-?[\d.]+", written)]
    points = list(zip(numbers[::2], numbers[1::2], strict=True))
    steps = [(x - before_x, y - before_y) for (before_x, before_y), (x, y) in pairwise(points)]
    drawn = " ".join(f"{x / 10:g} {y / 10:g}" for x, y in steps if x or y).replace(" -", "-")
    return f"M{points[0][0] / 10:g} {points[0][1] / 10:g}" + (f"l{drawn}" if drawn else "") + "z" * ("z" in written)


def _short(number: str) -> str:
    return f"{float(number):.1f}".removesuffix(".0")
