"""Charts: correct, readable, deterministic, and safe to embed in a page."""

import math
import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.project import ROOT
from tests.support.reports import ALL_FEATURES, ENCODES, HOSTILE, Page, charts, make_report, pixels, plot_area, points
from vmafx.reports import chart_file, html
from vmafx.reports.canvas import COLOUR_NAMES, colours
from vmafx.reports.chart_files import MAX_LINES
from vmafx.reports.charts import LARGE, SMALL, ChartLine, FrameChart, RateChart, RatePoint, Size, draw
from vmafx.reports.curves import downsample
from vmafx.reports.features import FeatureInfo
from vmafx.reports.plots import PICTURE, PICTURE_SCALE, count_ticks, frame_ticks, rate_ticks, value_ticks
from vmafx.reports.rate_quality import rate_quality_html, rate_quality_png
from vmafx.scoring.errors import BadInput
from vmafx.scoring.result import Report

STYLE = Path(sys.modules["vmafx.reports"].__path__[0], "page.css").read_text()
FRAMES = FrameChart(
    label="VMAF per frame", first=0, last=3, lines=[ChartLine("a", downsample(range(4), [90.0, 80.0, 100.0, 85.0], 9))]
)


def inks(chart: ET.Element) -> set[str]:
    return {ink for part in chart.iter() for ink in re.findall(r"(?:fill|stroke):([^;]+)", part.get("style", ""))}


def dots(chart: ET.Element) -> dict[str, tuple[str, float, float]]:
    """Colour and centre of each dot, by its tooltip."""
    found = {}
    for group in chart.iter("g"):
        title, path = group
        middle = [(min(values) + max(values)) / 2 for values in zip(*points(path.attrib["d"]), strict=True)]
        colour = re.search(r"fill:([^;]+)", path.attrib["style"])
        assert title.text
        assert colour
        found[title.text] = (colour[1], middle[0], middle[1])
    return found


@pytest.mark.parametrize("size", [*LARGE, SMALL], ids=lambda size: size.name)
def test_a_curve_is_where_its_values_are(size: Size) -> None:
    (chart,) = charts(draw(FrameChart(label="x", first=0, last=3, lines=FRAMES.lines, sizes=(size,))))
    left, top, right, bottom = plot_area(chart)
    (curve,) = [path for path in chart.iter("path") if "var(--c0)" in path.attrib["style"]]
    wide, high = right - left, bottom - top
    for (x, y), (frame, value) in zip(points(curve.attrib["d"]), FRAMES.lines[0].curve.points, strict=True):
        assert x == pytest.approx(left + wide * frame / 3, abs=0.3)
        assert y == pytest.approx(bottom - high * (value - 80) / 20, abs=0.3)
    labels = {text.text for text in chart.iter("text")}
    assert {"80", "90", "100", "0"} <= labels


def test_the_values_for_the_tooltip_are_those_of_the_curve() -> None:
    page = Page(draw(FRAMES))
    (plot,) = page.all("div")
    assert [float(plot[f"data-{name}"]) for name in ("from", "to", "low", "high")] == [0, 3, 80, 100]
    (line,) = page.all("i")
    assert (line["class"], line["data-name"], line["data-frames"]) == ("c0", "a", "0 1 2 3")
    assert line["data-values"] == "90.00 80.00 100.00 85.00"
    assert "hidden" in line


def test_a_line_may_have_more_values_than_are_drawn() -> None:
    scores = [90.0, 80.0, 100.0, 85.0]
    line = ChartLine("a", downsample(range(4), scores, 2), 9, downsample(range(4), scores, 4))
    page = Page(draw(FrameChart(label="x", first=0, last=3, lines=[line], dots=[(1, 80.0), (3, 85.0)])))
    (values,) = page.all("i")
    assert (values["class"], values["data-frames"], values["data-dashes"]) == ("c1", "0 1 2 3", "7 4")
    (plot,) = page.all("div")
    assert plot["data-dots"] == "1 80.00 3 85.00"


def test_large_frame_numbers_are_exact() -> None:
    (plot, *_) = [one for one in Page(html([make_report([90.0, 91.0], numbers=[0, 1_234_567])])).all("div")
                  if "data-to" in one]  # fmt: skip
    assert (plot["data-from"], plot["data-to"]) == ("0", "1234567")


def test_levels_and_dots_are_drawn_and_labelled() -> None:
    chart = FrameChart(
        label="x", first=0, last=3, lines=FRAMES.lines, rate=25.0, dots=[(1, 80.0)], levels={"p5": 88.0, "mean": 88.5}
    )
    for drawn in charts(draw(chart)):
        named = {text.text or "": float(text.attrib["y"]) for text in drawn.iter("text")}
        short = drawn.attrib["class"] == "narrow"
        upper, lower = (named["mean"], named["p5"]) if short else (named["mean 88.50"], named["p5 88.00"])
        assert lower - upper > 11  # although the lines nearly meet
        assert len([path for path in drawn.iter("path") if "dasharray" in path.attrib["style"]]) == 2
        assert "var(--c7)" in inks(drawn)
        assert "0:00.04" in named


def test_a_single_frame_is_drawn_as_a_dot() -> None:
    for drawn in charts(html([make_report([88.5])])):
        if drawn.attrib["aria-label"].startswith("VMAF per frame"):
            (dot,) = [path for path in drawn.iter("path") if "fill:var(--c7)" in path.attrib["style"]]
            left, _, right, _ = plot_area(drawn)
            across = [x for x, _ in points(dot.attrib["d"])]
            assert (min(across) + max(across)) / 2 == pytest.approx((left + right) / 2, abs=0.3)


def test_bars_are_as_high_as_their_counts() -> None:
    scores = [70.0] * 10 + [81.5] * 5 + [92.5]
    (drawn,) = [one for one in charts(html([make_report(scores)])) if "Histogram" in one.attrib["aria-label"]]
    assert drawn.attrib["aria-label"] == "Histogram of the VMAF of 16 frames, from 70.00 to 92.50"
    _, top, _, bottom = plot_area(drawn)
    for group in drawn.iter("g"):
        title, path = group
        counted = re.fullmatch(r"(\d+) to (\d+): (\d+) frames?, ([\d.]+)%", title.text or "")
        assert counted
        frames = sum(int(counted[1]) <= score < int(counted[2]) for score in scores)
        assert int(counted[3]) == frames
        assert float(counted[4]) == pytest.approx(100 * frames / 16, abs=0.1)
        height = bottom - min(y for _, y in points(path.attrib["d"]))
        assert height == pytest.approx((bottom - top) * frames / 10, abs=0.3)


@pytest.mark.parametrize("place", range(20))
def test_lines_differ_in_colour_or_stroke(place: int) -> None:
    line = ChartLine("a", FRAMES.lines[0].curve, place)
    drawn, *_ = charts(draw(FrameChart(label="x", first=0, last=3, lines=[line])))
    (curve,) = [path for path in drawn.iter("path") if "var(--c" in path.attrib["style"]]
    assert f"stroke:var(--c{place % 8})" in curve.attrib["style"]
    assert ("dasharray" in curve.attrib["style"]) == (place >= 8)


def test_a_page_of_many_charts_has_unique_ids_and_no_references() -> None:
    text = html([make_report(extras=dict.fromkeys(ALL_FEATURES[:4], [0.5] * 5))] * 3)
    page = Page(text)
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert sorted(ids) == ["clip-1", "clip-2", "clip-3", "overview", "theme"]
    drawn = charts(text)
    assert len(drawn) == 3 + 3 + 3 * (3 + 1 + 4)
    assert {part.tag for chart in drawn for part in chart.iter()} == {"svg", "g", "path", "text", "title"}
    for chart in drawn:
        assert chart.attrib["role"] == "img"
        assert chart.attrib["aria-label"]
    assert text.count("<style") == 1
    markup = re.sub(r"<(style|script)>.*?</\1>", "", text, flags=re.DOTALL)
    for word in ("<style", "clip-path", "font-family", "matplotlib", "<?xml", "xmlns", "metadata"):
        assert word not in markup, word


def test_charts_use_only_colours_of_the_themes() -> None:
    texts = [html([make_report(extras={"ssim": [0.9] * 5})] * 2), rate_quality_html(ENCODES, "r")]
    used = set().union(*(inks(chart) for text in texts for chart in charts(text)))
    assert {"var(--hair)", "var(--muted)", "var(--panel)", "var(--c0)", "var(--c1)", "var(--c3)"} <= used
    assert used <= {"none", *(f"var(--{ink})" for ink in COLOUR_NAMES)}
    assert set(re.findall(r"var\(--([\w-]+)\)", "".join(texts))) <= set(re.findall(r"--([\w-]+):", STYLE))
    assert len(set(colours().values())) == len(COLOUR_NAMES)


def test_text_is_never_smaller_than_10_pixels() -> None:
    """Each size at the smallest width at which page.css shows it; on a screen of 360 pixels a chart is 306 wide."""
    assert "@container (580px < width <= 900px) { .plot > .medium" in STYLE
    assert "@container (width > 900px) { .plot > .wide" in STYLE
    assert "minmax(min(100%, 290px), 1fr)" in STYLE
    smallest = {"narrow": 306, "medium": 580, "wide": 900, "small": 290 - 36}
    for size in (*LARGE, SMALL, *RateChart(label="", points=ENCODES).sizes):
        assert (size.font - (size.name != "small")) * smallest[size.name] / size.width >= 10, size


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.floats(0, 10), st.sampled_from([None, 1.0, 100.0]))
def test_value_ticks_enclose_the_values_and_no_impossible_ones(
    values: list[float], span: float, best: float | None
) -> None:
    low, high = min(values), max(values)
    ticks = value_ticks(low, high, FeatureInfo("any", min_span=span, max_value=best))
    assert ticks == sorted(set(ticks))
    assert 2 <= len(ticks) <= 12
    edge = (ticks[-1] - ticks[0]) * 1e-6
    assert ticks[0] - edge <= low <= high <= ticks[-1] + edge
    if low >= 0:
        assert ticks[0] >= 0
    if best == 100 and low >= 0 and high <= 100:
        assert ticks[-1] <= 100 + 1e-9


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(3, 10))
def test_frame_and_count_ticks_are_whole_numbers(first: int, length: int, about: int) -> None:
    ticks = frame_ticks(first, first + length, about)
    assert all(first <= tick <= first + length for tick in ticks)
    assert 1 <= len(ticks) <= about + 1
    assert count_ticks(length + 1)[-1] >= length + 1
    assert all(tick.is_integer() for tick in count_ticks(length + 1))


@given(st.floats(1, 1e6), st.floats(1, 1e6), st.sampled_from([0.05, 0.15, 0.2]))
def test_rate_ticks_keep_their_distance(one: float, other: float, distance: float) -> None:
    low, high = min(one, other) / 1.25, max(one, other) * 1.25
    ticks = rate_ticks(low, high, distance)
    assert all(low <= tick <= high for tick in ticks)
    assert ticks
    places = [math.log(tick / low) / math.log(high / low) for tick in ticks]
    if high / low < 1e4:
        assert all(after - before >= distance * 0.99 for before, after in pairwise(places))


def test_a_line_for_each_codec_with_more_than_one_encode() -> None:
    for chart in charts(rate_quality_html(ENCODES, "r")):
        (curve,) = [path for path in chart.iter("path") if "stroke-width:2.5" in path.attrib["style"]]
        assert "stroke:var(--c0)" in curve.attrib["style"]
        (low, middle, high) = points(curve.attrib["d"])
        assert low[0] < middle[0] < high[0]
        assert low[1] > middle[1] > high[1]
        found = dots(chart)
        assert found["hevc: VMAF 82.90 at 160 kbit/s"][0] == "var(--c1)"
        assert found["<b>av1: VMAF 86.80 at 214 kbit/s"][0] == "var(--c3)"
        assert found["h264-low: VMAF 41.50 at 84 kbit/s"][1:] == pytest.approx(low, abs=0.3)
        assert {f"{one.vmaf:.1f}" for one in ENCODES} <= {text.text for text in chart.iter("text")}


@settings(max_examples=15)
@given(
    st.lists(st.tuples(st.floats(1, 1e6), st.floats(0, 100), st.sampled_from("abcdefghij")), min_size=1, max_size=12)
)
def test_all_dots_are_within_the_chart(found: list[tuple[float, float, str]]) -> None:
    encodes = [RatePoint(f"n{place}", codec, rate, vmaf) for place, (rate, vmaf, codec) in enumerate(found)]
    for chart in charts(rate_quality_html(encodes, "r")):
        left, top, right, bottom = plot_area(chart)
        middles = dots(chart)
        assert len(middles) == len(encodes)
        for _, x, y in middles.values():
            assert left <= x <= right
            assert top - 0.2 <= y <= bottom + 0.2


def test_labels_of_close_scores_do_not_overlap() -> None:
    encodes = [RatePoint(f"n{place}", "H.264", 200 + 12 * place, 85 + place / 4) for place in range(3)]
    encodes += [RatePoint("low", "H.264", 50, 72), RatePoint("high", "H.264", 20_000, 99)]
    for chart in charts(rate_quality_html(encodes, "r")):
        at = [(float(text.attrib["x"]), float(text.attrib["y"]), text.get("style", "")) for text in chart.iter("text")
              if text.text and re.fullmatch(r"\d+\.\d", text.text)]  # fmt: skip
        boxes = [(x - 33 * ("end" in style), y - 10, x + 33 * ("end" not in style), y) for x, y, style in at]
        assert len(boxes) == 5
        for place, (left, top, right, bottom) in enumerate(boxes):
            for other in boxes[:place]:
                assert right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top


def test_the_png_shows_each_codec_in_its_colour_and_cuts_nothing_off() -> None:
    image = pixels(rate_quality_png(ENCODES))
    assert image.shape == (PICTURE.height * PICTURE_SCALE, PICTURE.width * PICTURE_SCALE, 3)
    assert tuple(image[1, 1]) == (255, 255, 255)
    rows = {name: [(image == _rgb(colour)).all(axis=2).nonzero()] for name, colour in colours().items()}
    for ink, count in (("c0", 3), ("c1", 1), ("c2", 1), ("c3", 1)):
        ((down, across),) = rows[ink]
        assert len(down) > count * 200, ink  # more than a line or the legend has
        assert 0 < down.min() < down.max() < image.shape[0] - 1
        assert 0 < across.min() < across.max() < image.shape[1] - 1
    edge = PICTURE_SCALE * 4  # nothing is cut off
    for side in (image[:edge], image[-edge:], image[:, :edge], image[:, -edge:]):
        assert side.min() == 255
    assert len({tuple(one) for one in image.reshape(-1, 3)[::7].tolist()}) > 50  # anti-aliased


MANY = [
    make_report([80.0 + place, 70.0 + place, 82.0], distorted=f"s3://bucket/encode-{place}.mp4", bitrate=1e6 + place)
    for place in range(30)
]


@pytest.mark.parametrize("reports", [MANY[:1], MANY[:3], MANY], ids=["one", "three", "thirty"])
def test_a_chart_file_shows_each_clip_and_cuts_nothing_off(reports: list[Report]) -> None:
    image = pixels(chart_file(reports, "vmaf", "png"))
    assert image.shape[1] == PICTURE.width * PICTURE_SCALE
    edge = PICTURE_SCALE * 4
    for side in (image[:edge], image[-edge:], image[:, :edge], image[:, -edge:]):
        assert side.min() == 255
    for place in range(min(len(reports), 8)):
        assert (image == _rgb(colours()[f"c{place}"])).all(axis=2).sum() > 200
    texts = svg_texts(chart_file(reports, "vmaf", "svg"))
    names = {f"encode-{place}.mp4" for place in range(min(len(reports), MAX_LINES))}
    assert not texts & names if len(reports) == 1 else names <= texts
    title = "VMAF 77.33: encode-0.mp4" if len(reports) == 1 else f"VMAF of {len(reports)} clips"
    assert title in texts


def test_a_chart_file_of_rates_has_the_points_of_the_page() -> None:
    texts = svg_texts(chart_file(MANY[:2], "rate-quality", "svg"))
    assert {"Rate and quality", "h264", "77.3", "78.0", "kbit/s"} <= texts
    assert chart_file(MANY[:2], "rate-quality", "png").startswith(b"\x89PNG")
    with pytest.raises(BadInput, match="needs two or more distorted clips of one reference, with known bitrates"):
        chart_file(MANY[:1], "rate-quality", "svg")


PSNR = {"psnr_y": [40.0, 41.5, math.inf, 39.0, 40.25], "cambi": [math.inf] * 5}


def test_a_chart_file_of_a_feature() -> None:
    one, other = make_report(extras=PSNR), make_report(distorted="/clips/b.mp4")
    texts = svg_texts(chart_file([one], "psnr_y", "svg"))
    assert {"PSNR Y: a.mp4", "PSNR Y in dB per frame; reference: master.mov", "mean 40.19"} <= texts
    assert chart_file([one, other], "psnr_y", "svg") == chart_file([one], "psnr_y", "svg")  # only one was measured
    several = svg_texts(chart_file([one, make_report(distorted="/clips/b.mp4", extras=PSNR)], "psnr_y", "svg"))
    assert {"PSNR Y of 2 clips", "a.mp4", "b.mp4"} <= several
    assert chart_file([one], "psnr_y", "png").startswith(b"\x89PNG")
    for kind, report in (("cambi", one), ("ssim", one), ("psnr_y", other)):
        with pytest.raises(BadInput, match=f"there is no chart of {kind}, which has no values; the clips have vmaf"):
            chart_file([report], kind, "svg")


@pytest.mark.parametrize("kind", ["vmaf", "rate-quality", "psnr_y"])
def test_chart_files_are_deterministic_and_safe(kind: str) -> None:
    reports = [
        make_report(distorted=HOSTILE, reference=HOSTILE, extras=PSNR),
        make_report(distorted="$x$", extras=PSNR),
    ]
    assert chart_file(reports, kind, "svg") == chart_file(reports, kind, "svg")
    assert {part.tag.rpartition("}")[2] for part in svg(chart_file(reports, kind, "svg")).iter()} <= {
        "svg", "metadata", "RDF", "Work", "type", "format", "creator", "Agent", "title", "defs", "style", "g", "path",
        "rect", "clipPath", "text", "use",
    }  # fmt: skip


def svg(content: bytes) -> ET.Element:
    return ET.fromstring(content)  # noqa: S314 - written by this test


def svg_texts(content: bytes) -> set[str]:
    return {part.text or "" for part in svg(content).iter() if part.tag.endswith("text")}


def _rgb(colour: str) -> tuple[int, int, int]:
    red, green, blue = bytes.fromhex(colour[1:])
    return red, green, blue


@pytest.mark.parametrize("name", [HOSTILE, "$x$", r"$\frac{", "日本語", "a\nb", "", "x" * 500, "_hidden"])
def test_any_name_can_be_drawn_without_a_warning(name: str) -> None:
    """A dollar starts no formula; a glyph that the font lacks causes no warning, which would fail the test."""
    harmless = [RatePoint("x", "x", 100, 90), RatePoint("x", "y", 200, 95)]
    hostile = [RatePoint(name, name, 100, 90), RatePoint(name, "y" + name, 200, 95)]
    assert Page(rate_quality_html(hostile, name)).shape == Page(rate_quality_html(harmless, "x")).shape
    assert rate_quality_png(hostile).startswith(b"\x89PNG")


def test_the_rate_page_is_self_contained_and_accessible() -> None:
    written = rate_quality_html(ENCODES, "reference.mkv")
    page = Page(written)
    names = [name for name, _ in page.elements]
    assert names.count("script") == 1  # page.js, allowed by its digest
    assert "b" not in names  # a clip's name is never markup
    assert [attributes["href"] for _, attributes in page.elements if "href" in attributes] == ["data:,"]
    assert not any("src" in attributes for _, attributes in page.elements)
    assert not re.search(r"url\(|@import", written)
    for chart in charts(written):
        assert "from 41.5 (h264-low, 84 kbit/s) to 94.5 (h264-high, 780 kbit/s)" in chart.attrib["aria-label"]
    assert ("html", {"lang": "en"}) in page.elements
    assert names.count("tr") == 1 + len(ENCODES)
    assert {"<b>av1", "86.80", "214", "H.264", "AV1"} <= set(page.text)
    assert len(written) < 80_000


CODE = """
import hashlib, os, sys
before = dict(os.environ)
from tests.support.reports import ENCODES, make_report
from vmafx.reports import html
from vmafx.reports.rate_quality import rate_quality_png
written = html([make_report()]).encode() + rate_quality_png(ENCODES)
assert dict(os.environ) == before
print(hashlib.sha256(written).hexdigest())
"""


def test_drawings_do_not_depend_on_the_users_settings(tmp_path: Path) -> None:
    """The home folder is missing, not writable, or has the user's own settings; nothing is printed or left behind."""
    settings_folder = tmp_path / "home" / ".config" / "matplotlib"
    settings_folder.mkdir(parents=True)
    (settings_folder / "matplotlibrc").write_text("lines.linewidth: 9\nfont.size: 40\nnonsense\n")
    (tmp_path / "scratch").mkdir()
    drawn = set()
    for variables in (
        {"HOME": "/nonexistent"},
        {"HOME": "/proc"},
        {"HOME": str(tmp_path / "home")},
        {"HOME": str(tmp_path / "home"), "MPLCONFIGDIR": str(settings_folder), "MATPLOTLIBRC": str(settings_folder)},
        {"MPLBACKEND": "no such backend"},
    ):
        inherited = {name: value for name, value in os.environ.items() if name not in {"HOME", "XDG_CACHE_HOME"}}
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", CODE], capture_output=True, text=True, cwd=ROOT, check=False,
            env={**inherited, "TMPDIR": str(tmp_path / "scratch"), **variables},
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, ""), variables
        drawn.add(done.stdout)
    assert len(drawn) == 1
    assert list((tmp_path / "scratch").iterdir()) == []
    assert sorted(path.name for path in tmp_path.rglob("*")) == sorted(
        ["home", ".config", "matplotlib", "matplotlibrc", "scratch"]
    )


def test_a_missing_temporary_folder_is_reported() -> None:
    code = "import tempfile; tempfile.tempdir = '/proc/no'; import vmafx.reports.canvas"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].startswith("vmafx.scoring.errors.NodeFault: charts need a folder for temporary")


def test_the_style_of_other_figures_is_not_changed() -> None:
    import matplotlib  # noqa: PLC0415 - after canvas.py has imported it without the user's settings

    with matplotlib.rc_context({"lines.linewidth": 9, "font.size": 40}):
        first = html([make_report()])
        assert matplotlib.rcParams["lines.linewidth"] == 9
        assert matplotlib.rcParams["text.parse_math"]
    assert html([make_report()]) == first
