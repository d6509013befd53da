"""Reports: content, escaping, size and the writing of files."""

import base64
import csv
import errno
import hashlib
import json
import math
import os
import re
import stat
import threading
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.reports import ALL_FEATURES, HOSTILE, Page, charts, make_report, plot_area, points
from vmafx.reports import check_path, csv_report, html, json_report, markup, page, write_report
from vmafx.reports.budget import MAX_DETAIL, MAX_POINTS, page_budget
from vmafx.reports.curves import downsample, histogram_bins
from vmafx.reports.files import BLOCK
from vmafx.reports.formatting import clock, names, number
from vmafx.scoring.errors import BadInput, NodeFault
from vmafx.scoring.result import FramePair, Report, ScoreResult

TEXT = st.one_of(st.text(), st.sampled_from([HOSTILE, "javascript:alert(1)", "https://example.test/a.mp4?b#c", ""]))


@given(TEXT, TEXT)
def test_no_text_becomes_markup(text: str, value: str) -> None:
    page = Page(markup.tag("p", text, markup.tag("b", text, title=value), class_=value))
    assert page.shape == [("p", ("class",)), ("b", ("title",))]


HARMLESS = make_report(distorted="x", reference="x", model="x", notes=("x",))
SHAPES = [Page(html([HARMLESS] * count)).shape for count in (1, 2)]


@settings(max_examples=12)  # each draws 18 charts
@given(TEXT, TEXT, TEXT, TEXT)
@example(HOSTILE, HOSTILE, HOSTILE, HOSTILE)
@example("$x$", "$\\frac{", "{}", "%s")
def test_no_text_of_a_report_changes_the_structure_of_the_page(
    distorted: str, reference: str, model: str, note: str
) -> None:
    hostile = make_report(distorted=distorted, reference=reference, model=model, notes=(note,))
    assert [Page(html([hostile] * count)).shape for count in (1, 2)] == SHAPES


def test_a_hostile_text_is_shown_as_text() -> None:
    page = Page(html([make_report(distorted=HOSTILE, notes=(HOSTILE,))]))
    shown = re.sub("[\x00\u202e\ud800]", "\ufffd", HOSTILE)
    assert page.text.count(shown) >= 2
    assert len(page.all("script")) == 1
    html([make_report(distorted=HOSTILE)]).encode()


@pytest.mark.parametrize("count", [1, 3])
def test_the_page_is_self_contained(count: int) -> None:
    report = make_report(distorted="https://example.test/a.mp4", extras={"psnr_y": [40.0] * 5, "adm2": [0.9] * 5})
    text = html([report] * count, {"key": [FramePair(2, 62.25, b"\xff\xd8one", b"\xff\xd8two")]})
    page = Page(text)
    for tag, attributes in page.elements:
        for name in {"src", "href", "xlink:href", "srcset", "action", "poster", "data"} & set(attributes):
            assert attributes[name].startswith(("#", "data:")), (tag, attributes)
        assert not any(name.startswith("on") for name in attributes)
    assert not re.search(r"url\(|@import|\bfetch\(|XMLHttpRequest|\bimport\b", text)


def test_the_content_security_policy_allows_only_the_style_sheet_and_the_script_of_the_page() -> None:
    text = html([make_report()])
    policy = next(meta["content"] for meta in Page(text).all("meta") if "http-equiv" in meta)
    digests = {}
    for name in ("style", "script"):
        (content,) = re.findall(f"<{name}>(.*?)</{name}>", text, re.DOTALL)
        digests[name] = f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
    assert policy.split("; ") == [
        "default-src 'none'",
        f"style-src-elem {digests['style']}",
        "style-src-attr 'unsafe-inline'",
        "img-src data:",
        f"script-src {digests['script']}",
        "base-uri 'none'",
        "form-action 'none'",
    ]


def test_the_page_shows_score_model_speed_notes_and_features() -> None:
    text = " ".join(
        Page(
            html(
                [
                    make_report(
                        notes=("Two frames were left out.",), extras={"psnr_y": [40.0] * 5, "vif_scale0": [0.5] * 5}
                    )
                ]
            )
        ).text
    )
    for expected in (
        "87.97", "vmaf_v0.6.1", "120.5 fps", "Two frames were left out.", "abababababab", "frame 2 at 0:00.080",
        "PSNR Y", "vif_scale0", "mov,mp4", "h264", "master.mov", "File size 1.25 MB", "Bitrate 2,500 kbit/s",
        "Backend cuda", "Engine libvmaf 3.0.0, ffmpeg 7.1", "Decoder PyAV 18.1.0, libavcodec 62.28.102",
    ):  # fmt: skip
        assert expected in text, expected


def test_pictures_are_shown_with_their_clip() -> None:
    picture = FramePair(2, 62.25, b"\xff\xd8one", b"\xff\xd8two")
    page = Page(html([make_report(key="a"), make_report(key="b")], {"b": [picture]}))
    images = page.all("img")
    assert [base64.b64decode(image["src"].partition(",")[2]) for image in images] == [b"\xff\xd8one", b"\xff\xd8two"]
    assert [image["alt"] for image in images] == [
        "Reference, frame 2 at 0:00.080",
        "Distorted, frame 2 at 0:00.080",
    ]
    assert [one["data-frame"] for one in page.all("figure") if "data-frame" in one] == ["2"]
    assert [one["data-dots"] for one in page.all("div") if "data-dots" in one] == ["2 62.25"]


def test_without_a_frame_rate_there_are_no_times() -> None:
    page = Page(html([make_report(rate=None)], {"key": [FramePair(2, 62.25, b"", b"")]}))
    assert page.all("img")[0]["alt"] == "Reference, frame 2"
    assert not any("data-rate" in plot for plot in page.all("div"))


def test_several_clips_have_an_overview_with_links() -> None:
    reports = [make_report([score] * 4, distorted=f"/ladder/{score}/out.mp4") for score in (98.0, 90.0, 71.0)]
    page = Page(html(reports))
    ids = {attributes.get("id") for _, attributes in page.elements}
    links = [link["href"] for link in page.all("a")]
    assert links == ["#clip-1", "#clip-2", "#clip-3"]
    assert {link[1:] for link in links} <= ids
    first = [line["data-name"] for line in page.all("i")][:3]
    assert first == [report.result.distorted.uri for report in reports]  # file names are not unique
    assert "#clip-1" not in html(reports[:1])


def test_size_and_bitrate_stand_beside_each_score() -> None:
    reports = [make_report(size=2_000_000, bitrate=4e6), make_report(size=0, bitrate=None, distorted="b.mp4")]
    text = " ".join(Page(html(reports)).text)
    assert "Distorted clip Score Bitrate File size" in text
    assert "a.mp4 87.97 4,000 kbit/s 2 MB 87.97" in text
    assert "b.mp4 87.97 \N{EN DASH} \N{EN DASH} 87.97" in text
    assert "1080 · yuv420p · 25 fps · 2 MB · 4,000 kbit/s" in text
    assert "File size unknown unknown Bitrate unknown unknown" in text


LADDER = [
    make_report([70.0] * 4, distorted="low.mp4", bitrate=500e3),
    make_report([90.0] * 4, distorted="a.mp4", bitrate=2e6),
    make_report([93.0] * 4, distorted="b.webm", codec="vp9", bitrate=1.5e6),
    make_report([99.0] * 4, distorted="c.yuv", codec="rawvideo", bitrate=None),
]


def test_several_clips_of_one_reference_have_a_rate_quality_curve() -> None:
    text = html(LADDER)
    drawn = [chart for chart in charts(text) if chart.attrib["aria-label"].startswith("VMAF against bitrate")]
    assert [chart.attrib["class"] for chart in drawn] == ["wide", "medium", "narrow"]
    for chart in drawn:
        assert {title.text for title in chart.iter("title")} == {
            "low.mp4: VMAF 70.00 at 500 kbit/s",
            "a.mp4: VMAF 90.00 at 2,000 kbit/s",
            "b.webm: VMAF 93.00 at 1,500 kbit/s",
        }
        (line,) = [path for path in chart.iter("path") if "stroke-width:2.5" in path.attrib["style"]]
        assert "stroke:var(--c0)" in line.attrib["style"]  # of the two with h264
    assert text.count("up and to the left is better") == 1


OTHER_REFERENCE = msgspec.structs.replace(
    LADDER[1].result, reference=msgspec.structs.replace(LADDER[1].result.reference, digest="cd" * 32)
)


@pytest.mark.parametrize(
    "reports",
    [
        LADDER[:1],
        [LADDER[0], LADDER[3]],
        [LADDER[0], msgspec.structs.replace(LADDER[1], result=OTHER_REFERENCE)],
        [LADDER[0], make_report(model="other", distorted="o.mp4")],
        LADDER * 16,
    ],
    ids=["one clip", "one bitrate", "two references", "two models", "too many"],
)
def test_clips_that_do_not_compare_have_no_rate_quality_curve(reports: list[Report]) -> None:
    assert "VMAF against bitrate" not in html(reports)


@pytest.mark.parametrize(
    "report",
    [
        make_report([88.5]),
        make_report([100.0]),
        make_report([0.0]),
        make_report([95.0] * 50, extras={"ssim": [1.0] * 50}),
        make_report([0.0, 100.0]),
        make_report([104.2, -3.5, 50.0]),
        make_report(numbers=[0, 5, 10, 15, 20]),
        make_report(extras={"ciede": [math.inf] * 5}),
        make_report(extras={"ciede": [math.inf, 40.0, math.nan, 41.0, math.inf], "strange": [-1e-9, 1e9, 0, 0, 0]}),
    ],
)
def test_odd_values_are_drawn_within_the_chart(report: Report) -> None:
    text = html([report, report])
    for chart in charts(text):
        left, top, right, bottom = plot_area(chart)
        for path in chart.iter("path"):
            if "C" not in path.attrib["d"]:  # a dot may stand over the edge
                for x, y in points(path.attrib["d"]):
                    assert left - 0.2 <= x <= right + 0.2
                    assert top - 0.2 <= y <= bottom + 0.2
        assert not re.search(r"\b(nan|inf)\b", " ".join(path.attrib["d"] for path in chart.iter("path")))
    for line in Page(text).all("i"):
        assert not re.search(r"\b(nan|inf)\b", line["data-values"])


def long_clip(frames: int) -> Report:
    """A report with all features at full precision, and one dip."""
    scores = [93.0 + 6 * math.sin(frame * 0.7) * math.sin(frame / 4000) for frame in range(frames)]
    scores[frames * 618 // 1000] = 12.5
    return make_report(scores, extras=dict.fromkeys(ALL_FEATURES, scores))


def test_a_long_clip_makes_a_small_page_that_shows_the_dip() -> None:
    """200,000 frames of all 22 features take 0.35 MB."""
    text = html([long_clip(200_000)])
    assert len(text.encode()) < 500_000
    page = Page(text)
    lines = page.all("i")
    assert len(lines) == 1 + len(ALL_FEATURES)
    for line in lines:
        values = dict(zip(line["data-frames"].split(), line["data-values"].split(), strict=True))
        assert float(values["123600"]) == 12.5
    for chart in charts(text):
        if "per frame" in chart.attrib["aria-label"]:  # the dip is drawn far below the rest
            left, top, right, bottom = plot_area(chart)
            curves = [point for path in chart.iter("path") for point in points(path.attrib["d"])]
            across, down = next(point for point in curves if abs(point[1] - (bottom - (bottom - top) / 8)) < 1)
            assert abs((across - left) / (right - left) - 0.618) < 0.01, down


def test_a_zoom_shows_more_values_than_are_drawn_as_far_as_the_page_has_room() -> None:
    (line, *_) = Page(html([long_clip(5_000)])).all("i")
    assert line["data-frames"].split() == [str(frame) for frame in range(5_000)]
    one, many = page_budget([long_clip(100)]), page_budget([long_clip(100)] * 10)
    assert (one.points, one.detail) == (MAX_POINTS, MAX_DETAIL)
    assert many.points <= many.detail < many.points + 20


@pytest.mark.timeout(600)
def test_ten_clips_stay_below_1_mb() -> None:
    """20,000 frames and all 22 features, with a chart for each: 0.91 MB."""
    text = html([long_clip(20_000)] * 10)
    assert len(text.encode()) < 1_000_000
    assert len(Page(text).all("i")) == 10 + 10 * (1 + len(ALL_FEATURES))


def test_with_many_clips_charts_of_other_features_are_omitted() -> None:
    """30 clips of 2,000 frames and all 22 features: 0.85 MB."""
    text = html([long_clip(2_000)] * 30)
    assert len(text.encode()) < 1_000_000
    assert len(Page(text).all("i")) == 30 + 30
    assert "a CSV report has all values" in text
    assert "PSNR Y" in text  # in the tables
    few, several = page_budget([long_clip(100)]), page_budget([long_clip(100)] * 13)
    assert (few.elementary, few.extras, several.elementary, several.extras) == (True, True, False, True)


@pytest.mark.parametrize(("clips", "gauges"), [(31, True), (60, True), (120, True), (900, False)])
def test_with_very_many_clips_only_the_worst_have_sections(clips: int, gauges: bool) -> None:
    """22 features each; 31 clips take 0.7 MB."""
    clip = long_clip(300)
    scored = [
        msgspec.structs.replace(clip, result=msgspec.structs.replace(clip.result, score=place % 97))
        for place in range(clips)
    ]
    text = html(scored)
    assert len(text.encode()) < 1_000_000
    budget = page_budget(scored)
    page = Page(text)
    sections = [one["id"] for one in page.all("section") if one["id"].startswith("clip-")]
    assert len(sections) == budget.sections < clips
    worst = sorted(range(clips), key=lambda place: scored[place].result.score)[: budget.sections]
    assert sections == [f"clip-{place + 1}" for place in sorted(worst)]
    assert {one["href"] for one in page.all("a")} == {f"#{one}" for one in sections}
    assert len(page.all("tr")) > clips
    assert ("Range, 0 to 100" in text) == gauges
    assert f"Curves and sections: the {budget.sections} clips with the lowest scores." in text


@pytest.mark.parametrize("clips", [20, 60])
def test_long_names_count_against_the_page_size(clips: int) -> None:
    """URIs of 2,000 characters, some of which must be escaped."""
    clip = long_clip(300)
    facts = msgspec.structs.replace(clip.result.distorted, uri="s3://b/" + "a&b/" * 500)
    named = msgspec.structs.replace(clip, result=msgspec.structs.replace(clip.result, distorted=facts))
    assert len(html([named] * clips).encode()) < 1_000_000


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=400), st.integers(2, 60))
def test_a_downsampled_curve_keeps_minimum_and_maximum(values: list[float], max_points: int) -> None:
    numbers = [3 * place for place in range(len(values))]
    curve = downsample(numbers, values, max_points)
    assert len(curve.points) <= max(max_points, 2)
    assert set(curve.points) <= set(zip(numbers, values, strict=True))
    assert [frame for frame, _ in curve.points] == sorted({frame for frame, _ in curve.points})
    kept = [value for _, value in curve.points]
    assert (min(kept), max(kept)) == (min(values), max(values))


@given(st.lists(st.floats(0, 100), min_size=1))
def test_every_frame_is_in_one_bin(values: list[float]) -> None:
    width, tally = histogram_bins(values)
    assert sum(count for _, count in tally) == len(values)
    assert 8 <= len(tally) <= 26
    assert tally[0][0] <= min(values)
    assert tally[-1][0] + width >= max(values)
    assert tally[0][0] >= 0
    assert tally[-1][0] + width <= 100


FLOATS = st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=3, max_size=3)


@given(FLOATS, FLOATS)
def test_csv_has_every_value(vmaf: list[float], psnr: list[float]) -> None:
    table = b"".join(csv_report([make_report(vmaf, numbers=[0, 4, 8], extras={"psnr_y": psnr})]))
    rows = list(csv.DictReader(StringIO(table.decode())))
    assert list(rows[0]) == ["frame", "vmaf", "psnr_y"]
    assert [int(row["frame"]) for row in rows] == [0, 4, 8]
    assert [float(row["vmaf"]) for row in rows] == vmaf
    assert [float(row["psnr_y"]) for row in rows] == psnr


def test_csv_of_several_clips_names_the_clip_and_leaves_missing_features_empty() -> None:
    reports = [
        make_report([90.0], distorted='a,"b".mp4', extras={"ssim": [0.5]}),
        make_report([80.0], distorted="=cmd()", extras={"cambi": [0.25]}),
    ]
    assert list(csv.reader(StringIO(b"".join(csv_report(reports)).decode()))) == [
        ["distorted", "frame", "vmaf", "ssim", "cambi"],
        ['a,"b".mp4', "0", "90.0", "0.5", ""],
        ["'=cmd()", "0", "80.0", "", "0.25"],
    ]


@given(FLOATS, st.text(st.characters(exclude_categories=["Cs"])))
def test_json_has_the_result_and_every_value(vmaf: list[float], uri: str) -> None:
    report = make_report(vmaf, distorted=uri, notes=("a note",), extras={"ssim": [0.1, 0.2, 0.3]})
    written = b"".join(json_report([report]))
    assert msgspec.json.decode(written, type=ScoreResult) == report.result
    read: dict[str, Any] = json.loads(written)
    assert read["perFrame"] == {"frame": [0, 1, 2], "vmaf": vmaf, "ssim": [0.1, 0.2, 0.3]}
    assert set(read) - {"perFrame"} == set(ScoreResult.__struct_fields__)
    assert json.loads(b"".join(json_report([report, report]))) == [read, read]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_json_written_in_parts_is_that_of_the_whole_object(count: int) -> None:
    report = make_report(distorted='"\\ü', extras={"ciede": [math.inf, math.nan, 1e-9, 1e300, -0.0]})
    columns = {name: column.tolist() for name, column in report.values.items()}
    whole = msgspec.to_builtins(report.result) | {"perFrame": {"frame": report.numbers.tolist(), **columns}}
    encoded = msgspec.json.encode(whole if count == 1 else [whole] * count) + b"\n"
    assert b"".join(json_report([report] * count)) == encoded


def test_csv_has_the_frames_of_every_block() -> None:
    scores = [number / 128 for number in range(2 * BLOCK + 7)]
    rows = b"".join(csv_report([make_report(scores)])).decode().splitlines()
    assert rows == ["frame,vmaf", *(f"{number},{score}" for number, score in enumerate(scores))]


@pytest.mark.parametrize(
    ("extension", "start"),
    [
        (".html", b"<!DOCTYPE html>"),
        (".JSON", b"{"),
        (".csv", b"frame,vmaf"),
        (".svg", b"<?xml"),
        (".PNG", b"\x89PNG"),
        (".v1.svg", b"<?xml"),
    ],
)
def test_the_extension_selects_the_format(tmp_path: Path, extension: str, start: bytes) -> None:
    path = tmp_path / f"report{extension}"
    for _ in range(2):  # the second replaces the first
        write_report(path, [make_report()], {})
        assert path.read_bytes().startswith(start)
        assert os.listdir(tmp_path) == [path.name]  # noqa: PTH208 - including hidden files


def test_the_ending_selects_the_chart(tmp_path: Path) -> None:
    curve, rates = tmp_path / "a.svg", tmp_path / "a.rate-quality.svg"
    for path in (curve, rates):
        write_report(path, LADDER)
    assert b"VMAF of 4 clips" in curve.read_bytes()
    assert b"up and to the left is better" in rates.read_bytes()
    feature = tmp_path / "a.PSNR_Y.svg"
    titles = {
        "a.PSNR_Y.svg": "PSNR Y", "a.adm2.svg": "adm2", "a.vmaf_base.svg": "VMAF of the base model",
        "a.v2.svg": "VMAF 87.97", "a.admin.svg": "VMAF 87.97",
    }  # fmt: skip
    extras = {"psnr_y": [40.0] * 5, "adm2": [0.5] * 5, "vmaf_base": [80.0] * 5}
    for name, title in titles.items():
        write_report(tmp_path / name, [make_report(extras=extras)])
        assert f">{title}: a.mp4<" in (tmp_path / name).read_text()
    with pytest.raises(BadInput, match="there is no chart of psnr_y"):
        write_report(feature, LADDER)
    rates.unlink()
    with pytest.raises(BadInput, match="a rate-quality chart needs two or more"):
        write_report(rates, LADDER[:1])
    assert not rates.exists()


def test_a_report_has_the_permissions_of_a_new_file(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    for _ in range(2):
        write_report(tmp_path / "report.csv", [make_report()])
        assert stat.filemode((tmp_path / "report.csv").stat().st_mode) == stat.filemode(
            (tmp_path / "plain").stat().st_mode
        )


def test_an_unwritable_path_is_rejected_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "file").touch()
    for path, reason in (
        (tmp_path / "report.pdf", r"must end in \.html, \.json or \.csv, or for a chart in \.svg or \.png"),
        (tmp_path / "report", "must end in"),
        (tmp_path / "missing" / "report.html", "missing does not exist"),
        (tmp_path / "file" / "report.html", "file does not exist"),
        (tmp_path / "folder.html", "is a folder"),
        (Path("/proc/report.html"), "/proc"),
        (tmp_path / f"{'a' * 300}.html", "name too long"),
    ):
        with pytest.raises(BadInput, match=f"(?i)options: .*{reason}"):
            write_report(path, [make_report()], {})
    assert sorted(os.listdir(tmp_path)) == ["file", "folder.html"]  # noqa: PTH208
    with pytest.raises(BadInput):
        check_path(tmp_path / "report.pdf")
    check_path(tmp_path / "report.html")


@pytest.fixture(params=["unnamed", "named"])
def file_system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system with O_TMPFILE (unnamed files), and one without."""
    if request.param == "unnamed":
        return
    real_open = os.open

    def open_named(path: Any, flags: int, *arguments: Any, **more: Any) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "no O_TMPFILE")
        return real_open(path, flags, *arguments, **more)

    monkeypatch.setattr(os, "open", open_named)


def test_a_report_is_complete_if_only_its_last_step_needs_another_way_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without /proc an unnamed file can be written, but not linked: the report is rendered again."""
    real_link = os.link

    def link(source: str, *arguments: Any, **more: Any) -> None:
        real_link(source.replace("/proc", "/missing"), *arguments, **more)

    monkeypatch.setattr(os, "link", link)
    for name, content in (("a.csv", csv_report), ("a.json", json_report)):
        write_report(tmp_path / name, [make_report()])
        assert (tmp_path / name).read_bytes() == b"".join(content([make_report()]))


@pytest.mark.usefixtures("file_system")
def test_a_reader_never_sees_a_partial_report(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    whole = {b"".join(json_report([make_report([float(score)] * 300)])) for score in (80, 90)}
    write_report(path, [make_report([80.0] * 300)])
    seen: set[bytes] = set()
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.add(path.read_bytes())

    reader = threading.Thread(target=read)
    reader.start()
    for turn in range(100):
        write_report(path, [make_report([(80.0, 90.0)[turn % 2]] * 300)])
    done.set()
    reader.join()
    assert seen <= whole
    assert os.listdir(tmp_path) == ["report.json"]  # noqa: PTH208


@pytest.mark.usefixtures("file_system")
@pytest.mark.parametrize(("code", "kind"), [(errno.ENOSPC, NodeFault), (errno.EACCES, BadInput)])
def test_a_failed_write_keeps_the_old_report_and_leaves_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[Exception]
) -> None:
    (tmp_path / "report.csv").write_text("old")

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(kind, match="cannot be written"):
        write_report(tmp_path / "report.csv", [make_report()])
    assert os.listdir(tmp_path) == ["report.csv"]  # noqa: PTH208
    assert (tmp_path / "report.csv").read_text() == "old"


def test_a_new_report_has_no_name_before_it_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process killed while writing leaves nothing behind."""
    before: list[list[str]] = []
    real_link = os.link

    def link(source: str, *arguments: Any, **more: Any) -> None:
        before.append(os.listdir(tmp_path))  # noqa: PTH208
        assert Path(source).read_bytes() == b"".join(csv_report([make_report()]))
        real_link(source, *arguments, **more)

    monkeypatch.setattr(os, "link", link)
    write_report(tmp_path / "report.csv", [make_report()])
    assert before == [[]]


def test_formatting_of_numbers_times_and_names() -> None:
    assert [number(value) for value in (93.456, -0.001, -1.5, 12345.0)] == [
        "93.46",
        "0.00",
        "\N{MINUS SIGN}1.50",
        "12,345.00",
    ]
    assert [number(value) for value in (math.inf, -math.inf, math.nan)] == ["∞", "\N{MINUS SIGN}∞", "\N{EN DASH}"]
    assert [clock(seconds) for seconds in (0, 59.9996, 3723.45)] == ["0:00.000", "1:00.000", "1:02:03.450"]
    assert names(["/a/x.mp4", "/b/x.mp4", "s3://c/y.mp4?v=1", "z", "z"]) == [
        "/a/x.mp4",
        "/b/x.mp4",
        "y.mp4",
        "z (4)",
        "z (5)",
    ]


def test_colours_have_enough_contrast() -> None:
    """At least 4.5 for text and 3 for lines (WCAG), in both themes."""
    style = Path(page.__file__).with_name("page.css").read_text()
    pairs = dict(re.findall(r"--([\w-]+): light-dark\((.*?)\)", style))
    for theme in (0, 1):
        colours = {name: _luminance(pair.split(", ")[theme]) for name, pair in pairs.items()}
        for name in ("text", "muted", "accent"):
            assert min(_contrast(colours[name], colours[background]) for background in ("page", "panel")) >= 4.5, (
                name,
                theme,
            )
        assert _contrast(colours["note-text"], colours["note-page"]) >= 4.5
        assert min(_contrast(colours[f"c{place}"], colours["panel"]) for place in range(8)) >= 3


def _luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: float, other: float) -> float:
    return (max(one, other) + 0.05) / (min(one, other) + 0.05)
