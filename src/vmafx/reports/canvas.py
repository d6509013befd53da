"""The only module that imports matplotlib: the style of all charts, and conversion of figures to SVG markup and PNG."""

import io
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import resources
from itertools import pairwise
from tempfile import TemporaryDirectory
from typing import Literal, cast
from xml.etree import ElementTree as ET

from vmafx.reports.charts import Size
from vmafx.reports.markup import Html, showable, tag
from vmafx.scoring.errors import NodeFault


@contextmanager
def _isolated_import() -> Iterator[None]:
    """Import matplotlib without the user's settings and fonts.

    On import, matplotlib reads settings and fonts from the home folder and caches a list of fonts there. That folder
    may be missing, read-only or full, so it gets an empty temporary one. The list of its own fonts is quick to build.
    """
    try:
        folder = TemporaryDirectory(prefix="vmafx-plots-")
    except OSError as error:
        raise NodeFault(f"charts need a folder for temporary files ({error.strerror}); set TMPDIR") from error
    with folder as empty:
        overrides = {
            "MATPLOTLIBRC": empty, "MPLBACKEND": "agg", "MPLCONFIGDIR": empty, "MPL_IGNORE_SYSTEM_FONTS": "1",
        }  # fmt: skip
        before = {name: os.environ.get(name) for name in overrides}
        os.environ.update(overrides)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


with _isolated_import():
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
    "DPI",
    "Axes",
    "Circle",
    "Figure",
    "Line2D",
    "MaxNLocator",
    "Polygon",
    "as_picture",
    "as_svg",
    "chart_style",
    "drawable",
    "new_axes",
]

FONT = "DejaVu Sans"
COLOUR_NAMES = ("text", "muted", "hair", "panel", *(f"c{number}" for number in range(8)))  # CSS variables of page.css
TITLE = "title: "  # prefix of an artist's gid that becomes its tooltip
# Styles that page.css sets for all charts, and which are therefore omitted from each element.
INHERITED = {"font-family", "stroke-dashoffset", "stroke-linecap", "stroke-linejoin"}
DEFAULTS = {"path": "fill:none", "text": "fill:var(--muted)"}
DPI = 72  # one point is one pixel
MAX_TEXT = 60  # characters


@contextmanager
def chart_style(size: Size) -> Iterator[None]:
    """Apply the style of all charts, without changing matplotlib's settings for the rest of the process."""
    colour = colours()
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(
            {
                "svg.fonttype": "none",  # keep text as text
                "svg.hashsalt": "vmafx",  # deterministic output
                "text.parse_math": False,  # clip names may contain dollar signs
                "font.family": FONT,
                "font.size": size.font,
                "figure.dpi": DPI,
                "axes.axisbelow": True,
                "axes.facecolor": "none",
                "axes.grid": True,
                "axes.grid.axis": "y",
                "axes.labelcolor": colour["muted"],
                "axes.spines.bottom": False,
                "axes.spines.left": False,
                "axes.spines.right": False,
                "axes.spines.top": False,
                "figure.facecolor": "none",
                "grid.color": colour["hair"],
                "grid.linewidth": 1,
                "legend.frameon": False,
                "legend.labelcolor": colour["text"],
                "lines.linewidth": 1.6,
                "lines.scale_dashes": False,
                "text.color": colour["text"],
                "xtick.bottom": False,
                "xtick.labelcolor": colour["muted"],
                "xtick.major.pad": 8,
                "xtick.major.size": 0,
                "xtick.minor.bottom": False,
                "ytick.labelcolor": colour["muted"],
                "ytick.left": False,
                "ytick.major.pad": 8,
                "ytick.major.size": 0,
            }
        )
        yield


def new_axes(size: Size, left: float, right: float, top: float, bottom: float, figure: Figure | None = None) -> Axes:
    """Axes with margins in pixels, in a new figure or in one of this size."""
    figure = figure or Figure(figsize=(size.width / DPI, size.height / DPI))
    width, height = size.width - left - right, size.height - top - bottom
    return figure.add_axes((left / size.width, bottom / size.height, width / size.width, height / size.height))


def as_svg(axes: Axes, size: Size, label: str) -> Html:
    """The figure as markup. data-box is the plot area: left, top, width and height in percent of the drawing."""
    box = axes.get_position()
    plot_area = (box.x0, 1 - box.y1, box.width, box.height)
    written = io.StringIO()
    cast("Figure", axes.figure).savefig(written, format="svg", metadata={"Date": None})
    return inline(
        written.getvalue(),
        size.font,
        class_=size.name,
        role="img",
        aria_label=label,
        data_box=" ".join(f"{part * 100:.2f}" for part in plot_area),
    )


def as_picture(figure: Figure, scale: int, kind: Literal["png", "svg"] = "png") -> bytes:
    """The figure as a file, in the light theme. In a PNG, text is outlined in the background colour as in page.css."""
    background = colours()["panel"]
    for text in figure.findobj(Text) if kind == "png" else ():  # an outline would make curves of the text
        text.set_path_effects([withStroke(linewidth=3, foreground=background)])
    written = io.BytesIO()
    metadata = {"Date": None} if kind == "svg" else {"Software": None}
    figure.savefig(written, format=kind, dpi=DPI * scale, facecolor=background, metadata=metadata)
    return written.getvalue()


def drawable(text: str, max_length: int = MAX_TEXT) -> str:
    """The text on one line, shortened, with U+FFFD for characters that the font does not have."""
    known = get_font(findfont(FONT)).get_char_index
    line = " ".join(showable(text).split())
    short = line if len(line) <= max_length else f"{line[: max_length - 1]}…"
    return "".join(letter if known(ord(letter)) else "\ufffd" for letter in short)


@cache
def colours() -> Mapping[str, str]:
    """The colours of the light theme, by their names in page.css; no two are equal."""
    style = resources.files("vmafx.reports").joinpath("page.css").read_text(encoding="utf-8")
    light = dict(re.findall(r"--([\w-]+): light-dark\((#\w{6}), ", style))
    return {name: light[name] for name in COLOUR_NAMES}


def inline(source: str, font: int, **attributes: str | float | None) -> Html:
    """matplotlib's SVG as an `svg` element with the visible parts only; `font` is the default font size."""
    root = ET.fromstring(source)  # noqa: S314 - written by matplotlib in this process
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
                if style:  # without a fill and a stroke it is invisible
                    yield tag("path", d=_path(child.attrib["d"]), style=style)
            case "text":
                at = {"x": _short(child.attrib["x"]), "y": _short(child.attrib["y"])}
                yield tag("text", child.text, **at, style=_style(child, "text", font) or None)
            case "metadata" | "defs":  # author, default line style and clip paths: not needed
                pass
            case other:
                raise ValueError(f"unexpected SVG element {other}")


def _style(element: ET.Element, element_name: str, font: int) -> str:
    styles = dict(re.findall(r"([\w-]+): ([^;]+)", element.attrib["style"]))
    variables = {colour: f"var(--{name})" for name, colour in colours().items()}
    parts = [f"{key}:{variables.get(value, value)}" for key, value in styles.items() if key not in INHERITED]
    defaults = {DEFAULTS[element_name], f"font-size:{font}px", "text-anchor:start"}
    return ";".join(part for part in parts if part not in defaults)


def _path(path: str) -> str:
    """The path rounded to a tenth of a pixel; straight lines as relative steps, which halves their length."""
    if "C" in path:
        return " ".join(_short(part) if part[-1].isdigit() else part for part in path.split())
    return "".join(_lines(part) for part in re.findall(r"M[^M]+", path))


def _lines(path: str) -> str:
    numbers = [round(float(number) * 10) for number in re.findall(r"-?[\d.]+", path)]
    points = list(zip(numbers[::2], numbers[1::2], strict=True))
    steps = [(x - before_x, y - before_y) for (before_x, before_y), (x, y) in pairwise(points)]
    relative = " ".join(f"{x / 10:g} {y / 10:g}" for x, y in steps if x or y).replace(" -", "-")
    return f"M{points[0][0] / 10:g} {points[0][1] / 10:g}" + (f"l{relative}" if relative else "") + "z" * ("z" in path)


def _short(number: str) -> str:
    return f"{float(number):.1f}".removesuffix(".0")
