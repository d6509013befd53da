"""Searches for a score: the result is proven on the whole source, and an independent score agrees."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import VMAFX
from tests.support.tune import FaultyFfmpeg, Tune
from tests.support.video import ffmpeg, lossless, scene
from tests.support.webserver import WebServer, has
from vmafx.scoring.request import Source
from vmafx.scoring.score import Scorer
from vmafx.tune.compare import TuneProgress, TuneSettings, Workshop, open_source
from vmafx.tune.encoders import Variant
from vmafx.tune.encoding import EncoderTools
from vmafx.tune.search import Goal
from vmafx.tune.target import TargetSearch
from vmafx.tune.work_folder import WorkFolder

TARGET, TOLERANCE = 85.0, 1.5


@pytest.fixture(scope="module")
def long_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """12 seconds at 10 fps, whose second half is harder to encode than its first."""
    folder = tmp_path_factory.mktemp("long")
    easy, hard = (
        lossless(scene(frames=60, size=(128, 96), seed=seed), folder / f"{seed}.mkv", rate="10") for seed in (1, 2)
    )
    noise = "[1:v]noise=alls=12:allf=t+u:all_seed=5[hard];[0:v][hard]concat=n=2:v=1"
    ffmpeg("-i", easy, "-i", hard, "-filter_complex", noise, "-c:v", "ffv1", folder / "long.mkv")
    return folder / "long.mkv"


def found_by(result: Any, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the search says, and the encode that it has found."""
    (variant,) = (one for one in result["variants"] if one["name"] == name)
    (encode,) = (one for one in variant["encodes"] if one["quality"] == variant["target"]["quality"])
    return variant["target"], encode


def independent_scores(tune: Tune, source: Path, *files: str) -> list[float]:
    """What `vmafx score` says."""
    done = tune.run("score", source, *files, "--json", "--no-cache", program=VMAFX)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return [one["score"] for one in (found if len(files) > 1 else [found])]


def test_a_short_source_is_searched_as_a_whole(tune: Tune, source: Path) -> None:
    names = ("libx264:ultrafast", "libsvtav1:13")
    arguments = ("--encoders", ",".join(names), "--target-vmaf", str(TARGET), "--tolerance", str(TOLERANCE))
    result = tune.json(source, *arguments)
    for name in names:
        target, encode = found_by(result, name)
        assert target["reached"]
        assert "sampleEncodes" not in target
        assert target["wholeEncodes"] <= 6
        assert encode["score"] >= TARGET
        assert encode["score"] <= TARGET + TOLERANCE or target["note"] == "the next setting is below the target"
    found = [found_by(result, name)[1] for name in names]
    scores = independent_scores(tune, source, *(encode["file"] for encode in found))
    assert scores == [encode["score"] for encode in found]
    assert "bitrateDelta" not in found_by(result, names[0])[0]
    first, second = (encode["bitrate"] for encode in found)
    assert found_by(result, names[1])[0]["bitrateDelta"] == pytest.approx((second / first - 1) * 100, abs=0.01)

    again = tune.json(source, *arguments)
    assert [one["resumed"] for variant in again["variants"] for one in variant["encodes"]]
    assert [variant["target"] for variant in again["variants"]] == [variant["target"] for variant in result["variants"]]


def test_a_long_source_is_searched_on_samples_and_proven_as_a_whole(tune: Tune, long_source: Path) -> None:
    result = tune.json(
        long_source, "--encoders", "libx264:ultrafast", "--target-vmaf", "85", "--tolerance", "1.5", "--output", "out"
    )
    target, encode = found_by(result, "libx264:ultrafast")
    assert target["reached"]
    assert target["sampleEncodes"] >= 1
    assert 1 <= target["wholeEncodes"] <= 4
    assert encode["frames"] == 120
    assert TARGET <= encode["score"] <= TARGET + TOLERANCE
    assert independent_scores(tune, long_source, encode["file"]) == [encode["score"]]
    assert (tune.folder / f"out/libx264-ultrafast-{encode['quality']:g}.mp4").stat().st_size == encode["bytes"]
    assert [name for name in tune.kept() if name.endswith(".mkv")], "the samples are kept, for the next search"
    kept = tune.kept()
    assert tune.json(long_source, "--encoders", "libx264:ultrafast", "--target-vmaf", "85", "--tolerance", "1.5")
    assert tune.kept() == kept


async def test_searches_run_at_the_same_time_and_show_how_far_each_encode_is(tune: Tune, source: Path) -> None:
    seen = list[TuneProgress]()
    names = ["libx264:ultrafast", "libx264:superfast"]
    async with open_source(Scorer(), Source(str(source))) as opened, (folder := WorkFolder(tune.work)).in_use():
        workshop = Workshop(opened, Scorer(), await EncoderTools.find(), folder, TuneSettings(parallel=2))
        await TargetSearch(workshop, Goal(TARGET, TOLERANCE), seen.append).run([Variant.parse(one) for one in names])
    begun = [one.encode.rpartition(" ")[0] for one in seen[:2]]
    assert begun == names, "both have begun before one has ended"
    shares = [one.share for one in seen]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1], seen[-1].finished) == (0.0, 1.0, 2)
    first = {one.share for one in seen if one.encode == seen[0].encode}
    assert len(first) > 4, "frames that are encoded and scored count"


def test_settings_share_the_cores_between_the_encodes_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vmafx.tune.compare.usable_cores", lambda: 16)
    assert [(one.encodes, one.threads) for one in map(TuneSettings().for_encodes, (1, 2, 8))] == [
        (1, 16),
        (2, 8),
        (4, 4),
    ]
    assert TuneSettings(parallel=1).for_encodes(8).threads == 16


def test_a_target_that_nothing_reaches_has_the_nearest_score_and_exit_code_1(tune: Tune, source: Path) -> None:
    arguments = ("--encoders", "libx265:ultrafast", "--target-vmaf", "100", "--junit", "junit.xml")
    done = tune.compare(source, *arguments, "--quiet")
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[0].startswith(
        "below target: libx265:ultrafast 0: no setting of libx265:ultrafast reaches 100; the nearest is 99."
    )
    assert lines[1:] == ["wrote junit.xml"]
    assert "the nearest is 99." in done.stdout
    assert 'failures="1" errors="0"' in (tune.folder / "junit.xml").read_text()


def test_a_target_below_the_worst_setting_has_the_worst_setting(tune: Tune, source: Path) -> None:
    result = tune.json(source, "--encoders", "libaom-av1:8", "--target-vmaf", "5")
    target, encode = found_by(result, "libaom-av1:8")
    assert (target["reached"], target["quality"], target["note"]) == (True, 63, "no setting is worse")
    assert encode["score"] > 5


def test_an_encoder_that_fails_does_not_stop_the_search_of_another(
    tune: Tune, faulty: FaultyFfmpeg, source: Path
) -> None:
    faulty.fault("exit 1")
    arguments = ("--encoders", "libx265:ultrafast,libx264:ultrafast", "--target-vmaf", "85")
    result = tune.json(source, *arguments, code=3, environment=faulty.environment)
    failed, good = result["variants"]
    assert failed["encodes"][0]["error"] == "libx265 failed with exit code 1: no error message"
    assert "target" not in failed
    assert good["target"]["reached"]


async def test_a_remote_source_is_downloaded_once(tune: Tune, tmp_path: Path) -> None:
    clip = lossless(scene(frames=6), tmp_path / "remote.mkv")
    async with WebServer() as server:
        url = server.serve("/remote.mkv", has(clip.read_bytes()))
        arguments = ("--encoders", "libx264:ultrafast", "--target-vmaf", "85", "--json")
        async with tune.comparing(url, *arguments, environment={"VMAFX_MEDIA_ALLOW_PRIVATE": "true"}) as process:
            out, err = await process.communicate()
        assert process.returncode == 0, err
    assert len(json.loads(out)["variants"][0]["encodes"]) > 1
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--target-vmaf", "101"), "--target-vmaf must be 0 to 100, not 101.0"),
        (("--target-vmaf", "nan"), "--target-vmaf must be 0 to 100, not nan"),
        (("--target-vmaf", "90", "--tolerance", "0"), "--tolerance must be above 0 and at most 20, not 0.0"),
        (("--tolerance", "1"), "--tolerance is for a search: set --target-vmaf, too"),
        (("--target-vmaf", "90", "--quality", "20"), "--quality is for comparisons, and a search for a target tries"),
    ],
)
def test_a_search_that_makes_no_sense_is_refused(
    arguments: tuple[str, ...], message: str, tune: Tune, source: Path
) -> None:
    done = tune.compare(source, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: options: {message}")
    assert done.stderr.count("\n") == 1


def test_a_quality_is_refused_for_a_target_in_the_file(tune: Tune, source: Path) -> None:
    (tune.folder / "tune.yaml").write_text("targetVmaf: 90\n")
    done = tune.compare(source, "--config", "tune.yaml", "--quality", "20")
    assert (done.returncode, done.stderr.startswith("error: options: --quality is for comparisons")) == (2, True)
