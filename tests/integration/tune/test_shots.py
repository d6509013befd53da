"""`vmaf-tune ladder --shots`: cuts of real clips, a setting for each shot, and files that are what is reported."""

import csv
import json
import signal
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import pytest

from tests.support.commands import VMAFX
from tests.support.cut_clips import BARS, CLOCK, FRACTAL, GREY, RATE, cut_clip
from tests.support.leftovers import end_processes_in
from tests.support.tune import HALF_THEN_HANG, FaultyFfmpeg, Tune
from tests.support.video import ffmpeg
from tests.support.waiting import PATIENCE, eventually
from vmafx.scoring.request import Source
from vmafx.scoring.score import Scorer
from vmafx.tune.compare import open_source
from vmafx.tune.scenes import find_shots

SMALL = ["--heights", "72", "--quality", "24,36", "--rungs", "1", "--lowest", "0"]
X264 = ["--encoder", "libx264:ultrafast", *SMALL]
HALF = len("half\n")  # what HALF_THEN_HANG has written
# An encode of libx265 beyond the first ones does what follows; each is counted.
AFTER = 'echo x >> {count}; [ "$(wc -l < {count})" -le {first} ] || {{ {then}; }}'


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three shots of 15, 25 and 20 frames; do not modify it."""
    return cut_clip(tmp_path_factory.mktemp("shots") / "source.mkv", [(BARS, 15), (FRACTAL, 25), (CLOCK, 20)])


def ladder(tune: Tune, *arguments: str | Path, code: int = 0, environment: dict[str, str] | None = None) -> Any:
    done = tune.run("ladder", *arguments, "--json", "--work", tune.work, environment=environment or {})
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


async def starts(path: Path) -> list[int]:
    async with open_source(Scorer(), Source(str(path))) as opened:
        shots = await find_shots(opened, Fraction(RATE), 2, lambda _: None)
    assert [one.end for one in shots[:-1]] == [one.first for one in shots[1:]]
    return [one.first for one in shots]


CLIPS = {
    "hard cuts": ([(BARS, 40), (FRACTAL, 13), (CLOCK, 60), (GREY, 30), (BARS, 20)], "null", [0, 40, 53, 113, 143]),
    "flashes": (
        [(FRACTAL, 60), (BARS, 60)],
        "drawbox=t=fill:c=white:enable='between(n,20,22)+between(n,40,41)+between(n,90,93)'",
        [0, 60],
    ),
    "fast motion": ([(CLOCK, 90)], "scroll=h=0.07:v=0.05", [0]),
    "cut in motion": ([(BARS, 50), (FRACTAL, 50)], "scroll=h=0.01", [0, 50]),
    "a fade": ([(BARS, 75)], "fade=t=out:start_frame=25:nb_frames=20", [0]),
    "a dark clip": ([(BARS, 40), (FRACTAL, 40)], "eq=brightness=-0.35:contrast=0.4", [0, 40]),
    "every frame twice": ([(BARS, 40), (FRACTAL, 40)], "fps=50,setpts=N/25/TB,fps=25", [0, 80]),
}


@pytest.mark.parametrize("name", CLIPS)
async def test_all_cuts_of_a_clip_are_found_and_nothing_else(name: str, tmp_path: Path) -> None:
    shots, filters, expected = CLIPS[name]
    assert await starts(cut_clip(tmp_path / "clip.mkv", shots, filters)) == expected


async def test_a_tall_clip_and_one_of_ten_bits_are_cut_as_well(source: Path, tmp_path: Path) -> None:
    tall, deep = tmp_path / "tall.mkv", tmp_path / "deep.mkv"
    ffmpeg("-i", source, "-vf", "scale=16:2000", "-c:v", "ffv1", tall)
    ffmpeg("-i", source, "-pix_fmt", "yuv422p10le", "-color_range", "pc", "-c:v", "ffv1", deep)
    assert await starts(deep) == [0, 15, 40]
    with pytest.raises(Exception, match="too small for VMAF"):
        await starts(tall)
    ffmpeg("-i", source, "-vf", "scale=64:4096", "-c:v", "ffv1", tall)
    assert await starts(tall) == [0, 15, 40]


def packets(path: str) -> list[Any]:
    with av.open(path) as container:
        return [packet for packet in container.demux(video=0) if packet.size]


@pytest.mark.parametrize(
    "encoder", ["libx264:ultrafast", "libx265:ultrafast", "libvpx-vp9:8", "libaom-av1:8", "libsvtav1:13"]
)
def test_each_rung_is_one_file_with_key_frames_at_the_same_frames(encoder: str, tune: Tune, source: Path) -> None:
    result = ladder(
        tune, source, "--encoder", encoder, "--heights", "72", "--quality", "40", "--rungs", "1", "--lowest", "0",
        "--shots", "--key-frames", "0.4", "--output", "out",
    )  # fmt: skip
    assert [(one["first"], one["end"], one["seconds"]) for one in result["shots"]] == [
        (0, 15, 0.0), (15, 40, 0.6), (40, 60, 1.6),
    ]  # fmt: skip
    (rung,) = result["rungs"]
    encode = rung["encode"]
    with av.open(encode["file"]) as container:
        stream = container.streams.video[0]
        decoded = list(container.decode(video=0))
        assert [round(frame.pts * stream.time_base * RATE) for frame in decoded] == list(range(60))
        assert {(frame.width, frame.height) for frame in decoded} == {(128, 72)}
        if container.format.name.startswith("mov"):
            assert stream.codec_context.codec_tag == {"H.264": "avc1", "HEVC": "hvc1", "AV1": "av01"}[result["codec"]]
    written = packets(encode["file"])
    assert [number for number, one in enumerate(written) if one.is_keyframe] == [0, 10, 15, 25, 35, 40, 50]
    assert all(one.dts < following.dts for one, following in pairwise(written))
    assert encode["bytes"] == Path(encode["file"]).stat().st_size
    assert encode["bitrate"] == pytest.approx(encode["bytes"] * 8 * RATE / 60, abs=0.1)
    sizes = [sum(one.size for one in written[part["first"] : part["end"]]) for part in result["shots"]]
    for size, part, shot in zip(sizes, result["shots"], rung["shots"], strict=True):
        assert shot["bitrate"] == pytest.approx(size * 8 * RATE / (part["end"] - part["first"]), abs=0.1)
    assert len(list((tune.folder / "out").glob("72p-*-shots.*"))) == 1


def test_each_shot_has_the_score_of_the_rung_and_the_file_is_scored_as_a_whole(tune: Tune, source: Path) -> None:
    arguments = (source, "--encoder", "libx264:veryfast", "--quality", "24,30", "--heights", "144", "--rungs", "1")
    result = ladder(tune, *arguments, "--shots", "--shot-drop", "0")
    (rung,) = result["rungs"]
    plain = next(one["encode"] for one in result["encodes"] if one["encode"]["score"] == rung["target"])
    assert len({shot["quality"] for shot in rung["shots"]}) > 1
    for shot in rung["shots"]:
        assert shot["reached"] == (shot["score"] >= rung["target"])
        assert shot["lowest"] <= shot["score"]
    assert all(shot["reached"] for shot in rung["shots"])
    assert min(shot["score"] for shot in rung["shots"]) < rung["target"] + 2
    scored = tune.run("score", source, rung["encode"]["file"], "--json", "--no-cache", program=VMAFX)
    assert json.loads(scored.stdout)["score"] == rung["encode"]["score"]
    weights = [part["end"] - part["first"] for part in result["shots"]]
    pooled = sum(shot["score"] * weight for shot, weight in zip(rung["shots"], weights, strict=True)) / 60
    assert rung["encode"]["score"] == pytest.approx(pooled, abs=1e-4)
    assert rung["encode"]["lowest"] == min(shot["lowest"] for shot in rung["shots"])
    assert rung["encode"]["quality"] == plain["quality"]
    assert rung["encode"]["lowest"] > plain["lowest"]

    (cheaper,) = ladder(tune, *arguments, "--shots", "--shot-drop", "6")["rungs"]
    assert cheaper["encode"]["score"] >= cheaper["target"] == rung["target"]
    assert cheaper["encode"]["bitrate"] < rung["encode"]["bitrate"]
    assert all(shot["score"] >= shot["target"] >= rung["target"] - 6 for shot in cheaper["shots"])
    assert len({shot["target"] for shot in cheaper["shots"]}) > 1


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--shot-drop", "5"], "--shot-drop is for ladders by shots: add --shots"),
        (["--shots", "--shot-drop", "nan"], "--shot-drop must be 0 to 100 points, not nan"),
        (["--shots", "--shot-drop", "-1"], "--shot-drop must be 0 to 100 points, not -1.0"),
    ],
)
def test_a_wrong_drop_is_refused(tune: Tune, source: Path, arguments: list[str], why: str) -> None:
    done = tune.run("ladder", source, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr


def shot_names(tune: Tune) -> dict[str, tuple[int, int]]:
    return {name: file for name, file in tune.kept().items() if not name.endswith(".part")}


async def test_what_was_encoded_before_a_kill_is_not_encoded_again(
    tune: Tune, faulty: FaultyFfmpeg, source: Path
) -> None:
    """The second shot hangs; the first one and the encodes of the whole clip are kept."""
    x265 = ["--encoder", "libx265:ultrafast", *SMALL]
    whole = ladder(tune, source, *x265, environment=faulty.environment)
    count = tune.folder / "count"
    faulty.fault(AFTER.format(count=count, first=1, then=HALF_THEN_HANG))
    arguments: list[str | Path] = ["ladder", source, *x265, "--shots", "--work", tune.work, "--parallel", "1"]
    async with tune.running(*arguments, environment=faulty.environment) as process:
        await eventually(lambda: [tune.kept()[name][1] for name in tune.partial()] == [HALF], "the second shot hangs")
        process.kill()
        await process.wait()
    await eventually(lambda: not end_processes_in(tune.folder, within=0.0), "its children have ended with it")
    finished = shot_names(tune)
    assert len(finished) == 2 * (len(whole["encodes"]) + 1)

    count.unlink()
    faulty.fault(AFTER.format(count=count, first=1000, then="exit 9"))
    result = ladder(tune, source, *x265, "--shots", environment=faulty.environment)
    assert {name: tune.kept()[name] for name in finished} == finished
    assert tune.partial() == []
    assert all(one["encode"]["resumed"] for one in result["encodes"])
    encoded = len(count.read_text().splitlines())
    tried = sum(shot["tried"] for rung in result["rungs"] for shot in rung["shots"])
    assert encoded == tried - 1, "all but the first shot of the run that was killed"

    count.unlink()
    kept = tune.kept()
    again = ladder(tune, source, *x265, "--shots", environment=faulty.environment)
    assert not count.exists(), "nothing was encoded"
    assert tune.kept() == kept
    assert all(rung["encode"].pop("resumed") for rung in again["rungs"])
    assert again["rungs"] == result["rungs"]


def test_a_shot_that_cannot_be_encoded_is_named_and_the_others_are_kept(
    tune: Tune, faulty: FaultyFfmpeg, source: Path
) -> None:
    x265 = ["--encoder", "libx265:ultrafast", *SMALL, "--parallel", "1"]
    whole = ladder(tune, source, *x265, environment=faulty.environment)
    count = tune.folder / "count"
    faulty.fault(AFTER.format(count=count, first=1, then="exit 7"))
    result = ladder(tune, source, *x265, "--shots", code=3, environment=faulty.environment)
    failed = [one["encode"]["error"] for one in result["encodes"] if one["encode"].get("error")]
    assert failed[0].startswith("shot ")
    assert "libx265 failed with exit code 7: no error message" in failed[0]
    assert len(failed) == len(whole["rungs"])
    assert any(error.startswith("shot 2, frames 15 to 39: ") for error in failed)
    assert result["rungs"] == []
    assert len(shot_names(tune)) == 2 * (len(whole["encodes"]) + 1), "the first shot is kept"


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
async def test_an_interruption_leaves_no_process_and_no_partial_file(
    signal_number: signal.Signals, tune: Tune, faulty: FaultyFfmpeg, source: Path
) -> None:
    x265 = ["--encoder", "libx265:ultrafast", *SMALL, "--parallel", "1"]
    ladder(tune, source, *x265, environment=faulty.environment)
    faulty.fault(HALF_THEN_HANG)
    arguments: list[str | Path] = ["ladder", source, *x265, "--shots", "--work", tune.work]
    async with tune.running(*arguments, environment=faulty.environment) as process:
        await eventually(lambda: [tune.kept()[name][1] for name in tune.partial()] == [HALF], "the first shot hangs")
        process.send_signal(signal_number)
        out, err = await process.communicate()
    assert (process.returncode, out) == (130, b"")
    assert b"Traceback" not in err
    assert end_processes_in(tune.folder, within=PATIENCE) == []
    assert tune.partial() == []


def test_clips_without_cuts_have_one_shot(tune: Tune, tmp_path: Path) -> None:
    """One frame; one picture for long; and one in which every frame is a cut."""
    one = cut_clip(tmp_path / "one.mkv", [(BARS, 1)])
    still = cut_clip(tmp_path / "still.mkv", [(CLOCK, 40)])
    noise = cut_clip(
        tmp_path / "noise.mkv", [(GREY, 30)], "noise=alls=100:allf=t,geq=lum='mod(lum(X,Y)+97*N,256)':cb=128"
    )
    for clip, frames in ((one, 1), (still, 40), (noise, 30)):
        result = ladder(tune, clip, *X264, "--shots")
        assert [(shot["first"], shot["end"]) for shot in result["shots"]] == [(0, frames)]
        assert "the source has no cuts; each rung has one setting for all of it" in result["notes"]
        assert result["rungs"]
        assert all("shots" not in rung for rung in result["rungs"])


def test_a_clip_of_many_shots(tune: Tune, tmp_path: Path) -> None:
    shots = [((BARS, FRACTAL, CLOCK)[number % 3], 13) for number in range(20)]
    clip = cut_clip(tmp_path / "many.mkv", shots)
    result = ladder(tune, clip, "--encoder", "libx264:ultrafast", "--heights", "72", "--quality", "30", "--shots",
                    "--rungs", "1", "--lowest", "0")  # fmt: skip
    assert [shot["first"] for shot in result["shots"]] == list(range(0, 20 * 13, 13))
    (rung,) = result["rungs"]
    assert len(rung["shots"]) == 20
    assert rung["encode"]["frames"] == 260


def test_outputs_show_the_shots(tune: Tune, source: Path) -> None:
    done = tune.run(
        "ladder", source, *X264, "--shots", "--report", "a.html", "--report", "a.csv", "--report", "a.m3u8",
        "--work", tune.work,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "a key frame every 50 frames, and at the start of each of 3 shots" in done.stdout
    assert " to " in done.stdout
    page = (tune.folder / "a.html").read_text()
    assert 'aria-label="All shots"' in page
    rows = list(csv.DictReader((tune.folder / "a.csv").read_text().splitlines()))
    shots = [row for row in rows if row["rung"] == "1" and row["shot"]]
    assert [(row["shot"], row["firstFrame"], row["frames"]) for row in shots] == [
        ("1", "0", "15"), ("2", "15", "25"), ("3", "40", "20"),
    ]  # fmt: skip
    (whole,) = [row for row in rows if row["rung"] == "1" and not row["shot"]]
    assert whole["frames"] == "60"
    rate = round(float(whole["bitrate"]))
    assert f"AVERAGE-BANDWIDTH={rate}," in (tune.folder / "a.m3u8").read_text()


def test_a_rung_that_exceeds_the_limit_by_shots_is_left_out_and_named(tune: Tune, source: Path) -> None:
    plain = ladder(tune, source, *X264, "--quality", "30", "--rungs", "1")
    (rung,) = plain["rungs"]
    limit = f"{rung['encode']['bitrate'] + 1:.0f}"
    even = ["--shots", "--shot-drop", "0"]
    result = ladder(tune, source, *X264, "--quality", "30", "--rungs", "1", *even, "--max-rate", limit, code=1)
    assert result["rungs"] == []
    assert any("by shots, the rung of 72p for " in note and "it is left out" in note for note in result["notes"])
