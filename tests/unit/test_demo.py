"""The demo without its processes: what is drawn, and what is written for kubectl."""

import re
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path
from typing import Any

import av
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from vmafx.demo import jobs, picture, raster
from vmafx.demo.clips import ENCODES
from vmafx.demo.errors import DemoError
from vmafx.demo.scene import HEIGHT, WIDTH, Dot, Label, Line, Score, Shape, scene
from vmafx.demo.strokes import CAPITAL, GLYPHS, strokes, width
from vmafx.demo.table import scores, table
from vmafx.fleet.rows import JobRow

SCORES = [
    Score("h264-low", "H.264", 84.0, 41.5), Score("h264-mid", "H.264", 176.0, 78.6),
    Score("h264-high", "H.264", 780.0, 94.5), Score("hevc", "HEVC", 160.0, 82.9),
    Score("vp9", "VP9", 430.0, 90.2), Score("<b>av1", "AV1", 214.0, 86.8),
]  # fmt: skip
POSITIVE = st.floats(1, 1e6)


def pixels(shapes: list[Shape]) -> Any:
    with av.open(BytesIO(raster.png(shapes)), "r") as container:
        (frame,) = container.decode(video=0)
        return frame.to_ndarray(format="rgb24")


def test_a_line_for_each_codec_with_more_than_one_encode() -> None:
    drawn = scene(SCORES)
    curves = [shape for shape in drawn if isinstance(shape, Line) and len(shape.points) > 2]
    assert [(curve.ink, len(curve.points)) for curve in curves] == [("c0", 3)]
    (low, middle, high) = curves[0].points
    assert low[0] < middle[0] < high[0]
    assert low[1] > middle[1] > high[1]
    assert [shape.told for shape in drawn if isinstance(shape, Dot) and shape.ink == "c1" and shape.told] == [
        "hevc: VMAF 82.90 at 160 kbit/s"
    ]


@given(st.lists(st.tuples(POSITIVE, st.floats(0, 100), st.sampled_from("abcdef")), min_size=1, max_size=8))
def test_whatever_the_scores_all_is_within_the_picture(found: list[tuple[float, float, str]]) -> None:
    for shape in scene([Score(f"n{number}", codec, rate, vmaf) for number, (rate, vmaf, codec) in enumerate(found)]):
        for x, y in shape.points if isinstance(shape, Line) else [shape.at]:
            assert 0 <= x <= WIDTH
            assert 0 <= y <= HEIGHT


def test_the_png_has_each_dot_in_its_colour_and_soft_edges() -> None:
    drawn = scene(SCORES)
    seen = pixels(drawn)
    assert seen.shape == (HEIGHT * raster.SCALE, WIDTH * raster.SCALE, 3)
    for dot in (shape for shape in drawn if isinstance(shape, Dot)):
        x, y = (round(part * raster.SCALE) for part in dot.at)
        assert tuple(seen[y, x]) == raster.INKS[dot.ink]
    assert tuple(seen[1, 1]) == raster.PAPER
    slope = pixels([Line(((100.0, 100.0), (299.0, 187.3)), "text", 2.0)])
    shades = {tuple(one) for one in slope[200:400, 200:600].reshape(-1, 3).tolist()}
    assert {raster.PAPER, raster.INKS["text"]} < shades
    assert len(shades) > 20


def test_a_line_is_nowhere_twice_as_dark() -> None:
    """Where its parts meet, and where it is drawn outside the picture."""
    bent = pixels([Line(((-50.0, 50.0), (100.0, 50.0), (100.0, 51.0), (WIDTH + 90.0, HEIGHT + 90.0)), "hair", 3.0)])
    assert bent.min() >= min(raster.INKS["hair"])


def test_every_letter_of_every_label_can_be_written() -> None:
    labels = [shape for shape in scene(SCORES) if isinstance(shape, Label)]
    assert {letter for label in labels for letter in label.text} <= GLYPHS.keys()
    for letter, glyph in GLYPHS.items():
        for stroke in strokes(letter):
            assert all(0 <= x <= width(letter) + 1e-9 and 0 <= y <= 8 for x, y in stroke), letter
        assert re.fullmatch(r"\d( ~?(\d\d){2,})*", glyph), letter
    assert max(y for stroke in strokes("HAMBURG 0123456789") for _, y in stroke) == CAPITAL


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_the_page_needs_nothing_else_and_can_be_read_aloud() -> None:
    written = picture.html(SCORES, "reference.mkv")
    page = Page(written)
    names = [name for name, _ in page.elements]
    assert "script" not in names
    assert "b" not in names  # a clip's name is never markup
    assert [attributes["href"] for _, attributes in page.elements if "href" in attributes] == ["data:,"]
    assert not any("src" in attributes for _, attributes in page.elements)
    assert not re.search(r"url\(|@import", written)
    (svg,) = [attributes for name, attributes in page.elements if name == "svg"]
    assert svg["role"] == "img"
    assert "from 41.5 (h264-low, 84 kbit/s) to 94.5 (h264-high, 780 kbit/s)" in svg["aria-label"]
    assert ("html", {"lang": "en"}) in page.elements
    assert names.count("tr") == 1 + len(SCORES)
    assert {"<b>av1", "86.80", "214"} <= set(page.text)
    used = set(re.findall(r"var\((--\w+)\)", written))
    assert used <= set(re.findall(r"(--\w+):", written))


def test_jobs_as_kubectl_takes_them(tmp_path: Path) -> None:
    jobs.write(tmp_path / "jobs.yaml", tmp_path / "a b")
    found = list(yaml.safe_load_all((tmp_path / "jobs.yaml").read_text()))
    assert [one["metadata"]["name"] for one in found] == [encode.name for encode in ENCODES]
    assert found[0]["spec"]["reference"].startswith("file:///")
    assert found[0]["spec"]["reference"].endswith("/a%20b/reference.mkv")


def test_the_table_shows_what_is_known_and_a_failure_is_told() -> None:
    rows = [
        JobRow(namespace="d", name="vp9", phase="Succeeded", score=87.125, node="this-machine"),
        JobRow(namespace="d", name="av1", phase="Failed", message="no such file"),
    ]
    console = Console(width=100, color_system=None)
    with console.capture() as captured:
        console.print(table(rows, {encode.name: 1234.5 for encode in ENCODES}))
    shown = [line.split() for line in captured.get().splitlines()]
    assert shown[0] == ["JOB", "CODEC", "KBIT/S", "PHASE", "NODE", "VMAF"]
    assert shown[1] == ["h264-low", "H.264", "1,234", "-", "-", "-"]
    assert shown[5] == ["vp9", "VP9", "1,234", "Succeeded", "this-machine", "87.12"]
    assert scores(rows[:1]) == {"vp9": 87.125}
    with pytest.raises(DemoError, match="job av1 failed: no such file"):
        scores(rows)
