"""Sources and options that cannot be used are refused in one line, before time is spent on them."""

import csv
import os
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.tune import Tune, encodes
from tests.support.video import ffmpeg, lossless, raw_input, scene

ONE = ("--encoders", "libx264:ultrafast", "--quality", "30")


def refusal(tune: Tune, *arguments: str | Path) -> str:
    """The reason; nothing was encoded."""
    done = tune.compare(*arguments, "--quiet")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert tune.kept() == {}
    return done.stderr.removeprefix("error: ").rstrip("\n")


def test_a_source_that_is_no_video_is_refused(tune: Tune, source: Path, tmp_path: Path) -> None:
    audio, text, empty, raw = (tmp_path / name for name in ("a.wav", "a.txt", "a.mkv", "a.yuv"))
    ffmpeg("-f", "lavfi", "-i", "sine=duration=1", audio)
    text.write_text("ffconcat version 1.0\nfile /etc/passwd\n")
    empty.write_bytes(b"")
    scene(frames=2).write(raw)
    assert "a.wav" in refusal(tune, audio, *ONE)
    assert refusal(tune, raw, *ONE).endswith("its format is not supported; put raw video into a container file first")
    for path in (text, empty):
        assert refusal(tune, path, *ONE).startswith("reference: ")
    assert refusal(tune, "none.mkv", *ONE) == "reference: there is no file none.mkv; check the path"
    assert refusal(tune, tmp_path, *ONE).endswith("is a folder; it must be a regular file")
    assert refusal(tune, "", *ONE) == "reference: the name is empty; give a path or a URI"


def test_a_url_that_leads_to_a_private_address_is_refused(tune: Tune) -> None:
    assert refusal(tune, "http://user:secret@10.0.0.1/a.mp4?token=x", *ONE) == (
        "reference: cannot fetch http://10.0.0.1/a.mp4: it resolves or redirects to a private, loopback or link-local"
        " address; set VMAFX_MEDIA_ALLOW_PRIVATE=true to allow that"
    )


def test_a_source_smaller_than_vmaf_can_score_is_refused(tune: Tune, tmp_path: Path) -> None:
    small = lossless(scene(frames=2, size=(64, 48)), tmp_path / "small.mkv")
    assert refusal(tune, small, *ONE) == "reference: 64x48 is too small for VMAF, which needs 64x64 or more"


def test_a_truncated_source_is_refused(tune: Tune, source: Path, tmp_path: Path) -> None:
    """Some damage is found only when all frames are decoded; no encode of those is kept."""
    whole = tmp_path / "whole.mp4"
    ffmpeg("-i", source, "-c:v", "libx264", "-g", "1", "-movflags", "+faststart", whole)
    cut = tmp_path / "cut.mp4"
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size * 2 // 3])
    reason = refusal(tune, cut, *ONE)
    assert "the clip is damaged or truncated" in reason
    assert "--damaged" not in reason, "a flag of vmafx score"


def test_a_source_whose_frames_are_damaged_is_refused(tune: Tune, source: Path, tmp_path: Path) -> None:
    clip = tmp_path / "damaged.mkv"
    ffmpeg("-i", source, "-c:v", "ffv1", "-level", "3", "-slicecrc", "1", clip)
    content = bytearray(clip.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 16] = bytes(16)
    clip.write_bytes(content)
    for more in (ONE, ("--encoders", "libx264:ultrafast", "--target-vmaf", "85")):
        assert refusal(tune, clip, *more).startswith("reference: ffmpeg reported ")


def test_a_source_of_changing_size_is_refused(tune: Tune, tmp_path: Path) -> None:
    parts = [tmp_path / f"{width}.264" for width in (256, 192)]
    for part, size in zip(parts, ((256, 144), (192, 108)), strict=True):
        ffmpeg(*raw_input(scene(frames=6, size=size), tmp_path / "raw.yuv"), "-c:v", "libx264", "-bf", "0", part)
    joined = tmp_path / "joined.264"
    joined.write_bytes(b"".join(part.read_bytes() for part in parts))
    assert "re-encode it to one format" in refusal(tune, joined, *ONE)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--encoders", "x264"), "options: 'x264' is no encoder that vmaf-tune knows; choose from libx264,"),
        (("--encoders", "libx264:turbo"), "options: libx264 has no preset 'turbo'; choose from placebo,"),
        (("--encoders", "libx264,libx264:medium"), "options: the encoder libx264 is given twice"),
        (("--encoders", "libx264", "--quality", "52"), "options: 52 is no quality of libx264, which has numbers"),
        (("--encoders", "libsvtav1", "--quality", "2.5"), "options: 2.5 is no quality of libsvtav1, which has whole"),
        (("--quality", "a,b"), "options: --quality 'a,b' is not a list of numbers; use e.g. 20,26,32"),
        (("--quality", "nan"), "options: --quality 'nan' is not a list of numbers"),
        (("--model", "x"), "model: there is no model 'x'; use vmaf_v0.6.1,"),
        (("--pool", "most"), "options: --pool must be mean, harmonic_mean,"),
        (("--fail-under", "120"), "options: --fail-under must be 0 to 100, not 120.0"),
        (("--report", "a.pdf"), "options: the name of report a.pdf must end in .html, .json or .csv"),
        (("--report", "no/a.csv"), "options: the folder no does not exist; create it"),
        (("--junit", "no/a.xml"), "options: the folder no does not exist; create it"),
        (("--junit", "folder"), "options: folder is a folder; name a file in it"),
        (("--output", "file"), "options: --output file is not a folder"),
        (("--config", "none.yaml"), "options: cannot read none.yaml: No such file or directory"),
        (("--config", "bad.yaml"), "options: bad.yaml is not a valid configuration: Object contains unknown field"),
    ],
)  # fmt: skip
def test_a_wrong_option_is_refused(arguments: tuple[str, ...], message: str, tune: Tune, source: Path) -> None:
    (tune.folder / "folder").mkdir()
    (tune.folder / "file").write_bytes(b"")
    (tune.folder / "bad.yaml").write_text("crf: 20\n")
    assert refusal(tune, source, *arguments).startswith(message)


def test_flags_win_over_the_file(tune: Tune, source: Path) -> None:
    (tune.folder / "tune.yaml").write_text(
        "encoders:\n- {encoder: libx264, preset: ultrafast, qualities: [28, 38]}\n- libsvtav1:13\nqualities: [30]\n"
    )
    names = list(encodes(tune.json(source, "--config", "tune.yaml")))
    assert names == ["libx264:ultrafast 28", "libx264:ultrafast 38", "libsvtav1:13 30"]
    names = list(encodes(tune.json(source, "--config", "tune.yaml", "--quality", "40")))
    assert names == ["libx264:ultrafast 40", "libsvtav1:13 40"]
    other = ("--config", "tune.yaml", "--encoders", "libsvtav1:12")
    assert list(encodes(tune.json(source, *other))) == ["libsvtav1:12 30"]
    assert list(encodes(tune.json(source, *other, "--quality", "40"))) == ["libsvtav1:12 40"]


def test_fail_under_is_about_each_encode(tune: Tune, source: Path) -> None:
    arguments = (source, "--encoders", "libx264:ultrafast", "--quality", "10,40", "--quiet")
    assert tune.compare(*arguments, "--fail-under", "50").returncode == 0
    done = tune.compare(*arguments, "--fail-under", "95", "--junit", "junit.xml")
    assert done.returncode == 1
    assert done.stderr.splitlines()[0].startswith("below target: libx264:ultrafast 40: VMAF ")
    assert done.stderr.splitlines()[0].endswith(" is below 95")
    (suite,) = ElementTree.parse(tune.folder / "junit.xml").getroot()  # noqa: S314 - our own
    assert [(case.get("name"), [child.tag for child in case]) for case in suite] == [
        ("libx264:ultrafast 10", []), ("libx264:ultrafast 40", ["failure"]),
    ]  # fmt: skip


@pytest.mark.parametrize("name", [b"<script>alert(1)</script>&'\"\x1b[31m.mkv", b"caf\xe9 \xff\n\xe2\x80\xae.mkv"])
def test_a_hostile_file_name_stays_text_in_all_outputs(name: bytes, tune: Tune, source: Path) -> None:
    """The second is not UTF-8, has a line break, and a character that reverses what follows."""
    path = Path(os.fsdecode(os.fsencode(tune.folder) + b"/" + name.replace(b"/", b"\xe2\x88\x95")))
    path.write_bytes(source.read_bytes())
    reports = ("--report", "a.html", "--report", "a.json", "--report", "a.csv", "--junit", "a.xml")
    done = tune.compare(path, *ONE, *reports, "--quiet")
    assert done.returncode == 0
    assert done.stderr.splitlines() == ["wrote a.html", "wrote a.json", "wrote a.csv", "wrote a.xml"]
    for control in ("\x1b", "\u202e", "\udcff"):
        assert control not in done.stdout
    page = (tune.folder / "a.html").read_text()
    assert "<script>alert" not in page
    assert "\u202e" not in page
    assert len(list(csv.DictReader((tune.folder / "a.csv").read_text().splitlines()))) == 1
    (suite,) = ElementTree.parse(tune.folder / "a.xml").getroot()  # noqa: S314 - our own
    assert suite.get("name", "").isprintable()
    assert tune.compare(path, *ONE, "--json").returncode == 0
