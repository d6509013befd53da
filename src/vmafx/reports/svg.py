"""A drawing that matplotlib wrote as SVG, as a part of a page.

matplotlib draws in the colours of the light theme, which page.css declares. Here each becomes its CSS variable, so that
one drawing serves light and dark. Text stays text, in the page's font. Nothing has an id and nothing refers to one:
any number of drawings can stand on one page. What a drawing consists of is written anew by `tag`, which escapes.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from itertools import pairwise
from xml.etree import ElementTree as ET

from vmafx.reports.markup import Html, tag

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
