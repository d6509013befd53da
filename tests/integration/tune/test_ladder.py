"""`vmaf-tune ladder` on a small clip: rungs, limits, the playlist, and what is refused."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import av
import pytest

from tests.support.video import ffmpeg, lossless, scene

TUNE = str(Path(sys.executable).with_name("vmaf-tune"))
ENCODER = ["--encoder", "libx264:ultrafast"]
SMALL = [*ENCODER, "--heights", "144,72", "--quality", "20,38"]
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with source.mkv, 50 frames of 256x144, and the encodes of all tests here."""
    folder = tmp_path_factory.mktemp("ladder")
    lossless(scene(frames=50), folder / "source.mkv")
    return folder


@pytest.fixture
def run_ladder(folder: Path, tmp_path: Path) -> Run:
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "COLUMNS": "120"}

    def run(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
        command = [TUNE, "ladder", *map(str, arguments), "--work", str(folder / "work")]
        return subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
        )

    return run


@pytest.fixture
def ladder(run_ladder: Run) -> dict[str, Any]:
    done = run_ladder("source.mkv", *SMALL, "--json")
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_rungs_fall_in_rate_and_score_and_are_on_the_hull(ladder: dict[str, Any]) -> None:
    rungs = ladder["rungs"]
    assert len(rungs) > 1
    rates, scores = ([one["encode"][name] for one in rungs] for name in ("bitrate", "score"))
    assert rates == sorted(rates, reverse=True)
    assert scores == sorted(scores, reverse=True)
    for rung in rungs:
        better = [
            one
            for one in ladder["encodes"]
            if one["encode"]["bitrate"] <= rung["encode"]["bitrate"]
            and one["encode"]["score"] > rung["encode"]["score"] + 0.5
        ]
        assert not better
    assert {(one["width"], one["height"]) for one in ladder["encodes"]} == {(256, 144), (128, 72)}


def test_encodes_have_their_size_and_a_key_frame_at_the_same_frames(ladder: dict[str, Any]) -> None:
    assert ladder["keyFrames"] == 50  # two seconds at 25 fps
    for one in ladder["encodes"]:
        with av.open(one["encode"]["file"]) as container:
            stream = container.streams.video[0]
            assert (stream.width, stream.height) == (one["width"], one["height"])


@pytest.mark.parametrize("encoder", ["libx264:ultrafast", "libx265:ultrafast", "libsvtav1:13", "libaom-av1:8"])
def test_key_frames_are_fixed_with_every_encoder(run_ladder: Run, folder: Path, encoder: str) -> None:
    done = run_ladder(
        "source.mkv", "--encoder", encoder, "--heights", "72", "--quality", "40", "--lowest", "0",
        "--key-frames", "0.4", "--json", "--report", "list.m3u8",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (rung,) = json.loads(done.stdout)["encodes"]
    with av.open(rung["encode"]["file"]) as container:
        keys = [index for index, packet in enumerate(_packets(container)) if packet.is_keyframe]
    assert keys == [0, 10, 20, 30, 40]
    codecs = {"libx264": "avc1.", "libx265": "hvc1.1.", "libsvtav1": "av01.0.", "libaom-av1": "av01.0."}
    playlist = (folder / "list.m3u8").read_text().splitlines()
    attributes = dict(part.split("=", 1) for part in playlist[3].partition(":")[2].replace('"', "").split(","))
    assert attributes["CODECS"].startswith(codecs[encoder.partition(":")[0]])
    assert attributes["RESOLUTION"] == "128x72"
    assert attributes["FRAME-RATE"] == "25.000"
    assert int(attributes["BANDWIDTH"]) >= int(attributes["AVERAGE-BANDWIDTH"]) > 0


def _packets(container: "av.container.InputContainer") -> list[Any]:
    return [packet for packet in container.demux(video=0) if packet.size]


def test_nothing_is_encoded_again(run_ladder: Run, ladder: dict[str, Any]) -> None:
    again = json.loads(run_ladder("source.mkv", *SMALL, "--json").stdout)
    assert all(one["encode"]["resumed"] for one in again["encodes"])
    assert [one["encode"]["score"] for one in again["rungs"]] == [one["encode"]["score"] for one in ladder["rungs"]]


def test_limits_on_the_rate_are_kept(run_ladder: Run, ladder: dict[str, Any]) -> None:
    rates = sorted(one["encode"]["bitrate"] for one in ladder["encodes"])
    low, high = rates[1] - 1, rates[-1] - 1
    done = run_ladder("source.mkv", *SMALL, "--min-rate", f"{low:.0f}", "--max-rate", f"{high:.0f}", "--json")
    found = [one["encode"]["bitrate"] for one in json.loads(done.stdout)["rungs"]]
    assert found
    assert all(low <= rate <= high for rate in found)
    impossible = run_ladder("source.mkv", *SMALL, "--max-rate", "1", "--junit", "junit.xml")
    assert impossible.returncode == 1
    assert "there is no rung: no encode is within the limits" in impossible.stderr


def test_a_maximum_rate_is_used_nearly_in_full(run_ladder: Run, ladder: dict[str, Any]) -> None:
    """Of the first encodes, the best one within it has little more than half of it."""
    rates = sorted(one["encode"]["bitrate"] for one in ladder["encodes"] if one["height"] == 144)
    limit = (rates[0] * rates[-1]) ** 0.5
    arguments = "--heights", "144", "--max-rate", f"{limit:.0f}", "--top", "100", "--json"
    done = run_ladder("source.mkv", *SMALL, *arguments)
    assert done.returncode == 0, done.stderr
    best = json.loads(done.stdout)["rungs"][0]
    assert 0.85 * limit < best["encode"]["bitrate"] <= limit


def test_outputs_are_written(run_ladder: Run, folder: Path) -> None:
    done = run_ladder(
        "source.mkv", *SMALL, "--report", "ladder.html", "--report", "ladder.csv", "--output", "rungs",
        "--junit", "junit.xml", "--fail-under", "100",
    )  # fmt: skip
    assert done.returncode == 1
    assert "is below 100" in done.stderr
    page = (folder / "ladder.html").read_text()
    assert "Encoding ladder" in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/", "")
    rows = (folder / "ladder.csv").read_text().splitlines()
    ranks = [row.partition(",")[0] for row in rows[1:]]
    assert "1" in ranks
    assert len(list((folder / "rungs").iterdir())) == len([rank for rank in ranks if rank])
    suite = ElementTree.parse(folder / "junit.xml").getroot()[0]  # noqa: S314 - our own
    assert suite.get("failures") == "1"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--heights", "288"], "288 is no height for this ladder; it must be even, 64 or more, and at most the 144"),
        (["--heights", "71"], "71 is no height"),
        (["--heights", "72.5"], "--heights '72.5' must have whole numbers; use e.g. 1080,720,360"),
        (["--min-rate", "2M", "--max-rate", "1500k"], "the minimum bitrate of rungs is above the maximum"),
        (["--top", "80", "--lowest", "90"], "the lowest score 90 is above that of the best rung, 80"),
        (["--encoder", "libx264:warp"], "libx264 has no preset 'warp'"),
        (["--max-rate", "fast"], "--max-rate 'fast' is not a bitrate"),
        (["--spacing", "0"], "--spacing must be 0.5 to 50 points"),
        (["--report", "ladder.txt"], "must end in .html, .json, .csv or .m3u8"),
        (["--quality", "99"], "99 is no quality of libx264"),
    ],
)
def test_wrong_options_are_refused(run_ladder: Run, arguments: list[str], message: str) -> None:
    done = run_ladder("source.mkv", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_anamorphic_clips_keep_their_shape(run_ladder: Run, folder: Path) -> None:
    ffmpeg("-i", folder / "source.mkv", "-vf", "setsar=64/45", "-frames:v", "5", "-c:v", "ffv1", folder / "wide.mkv")
    done = run_ladder("wide.mkv", *ENCODER, "--heights", "72", "--quality", "20", "--json")
    assert done.returncode == 0, done.stderr
    (one,) = json.loads(done.stdout)["encodes"]
    assert one["encode"]["score"] > 0
