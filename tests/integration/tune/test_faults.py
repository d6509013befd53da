"""Encoders that are missing, crash or hang, and a disk that is full: the others finish, and what was done is kept."""

import json
from pathlib import Path

import pytest

from tests.support.tiny_disk import TinyDisk
from tests.support.tune import VMAF_TUNE, FaultyFfmpeg, Tune, encodes
from tests.support.video import FFMPEG, lossless, scene
from vmafx.scoring.request import Source
from vmafx.scoring.score import Scorer
from vmafx.tune.compare import EncodePlan, TuneProgress, TuneSettings, Workshop, compare, open_source
from vmafx.tune.encoders import Variant
from vmafx.tune.encoding import EncoderTools
from vmafx.tune.results import EncodeResult
from vmafx.tune.work_folder import WorkFolder

FFMPEG_WITHOUT_AOM = f"""
case "$*" in
*-encoders*) {FFMPEG} "$@" | grep -v libaom-av1 ;;
*) exec {FFMPEG} "$@" ;;
esac
"""
BOTH = ("--encoders", "libx265:ultrafast,libx264:ultrafast", "--quality", "30")


def test_an_encoder_that_neither_library_has_is_refused_before_anything_is_encoded(
    tune: Tune, tmp_path: Path, source: Path
) -> None:
    program = tmp_path / "ffmpeg"
    program.write_text(f"#!/bin/sh\n{FFMPEG_WITHOUT_AOM}")
    program.chmod(0o755)
    done = tune.compare(source, "--encoders", "libx264,libaom-av1", environment={"VMAFX_FFMPEG_BIN": str(program)})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: options: neither ffmpeg nor PyAV on this machine has the encoder libaom-av1; leave it out, or set"
        " VMAFX_FFMPEG_BIN to an ffmpeg that has it\n"
    )
    assert tune.kept() == {}


def test_what_ffmpeg_lacks_is_encoded_by_pyav(tune: Tune, tmp_path: Path, source: Path) -> None:
    program = tmp_path / "ffmpeg"
    program.write_text(f"#!/bin/sh\n{FFMPEG_WITHOUT_AOM.replace('libaom-av1', 'libx264')}")
    program.chmod(0o755)
    one = ("--encoders", "libx264:ultrafast", "--quality", "10")
    (by_ffmpeg,) = encodes(tune.json(source, *one)).values()
    (by_pyav,) = encodes(tune.json(source, *one, environment={"VMAFX_FFMPEG_BIN": str(program)})).values()
    assert by_pyav["file"] != by_ffmpeg["file"], "another program makes another file"
    assert by_pyav["frames"] == by_ffmpeg["frames"] == 12
    assert by_pyav["score"] == pytest.approx(by_ffmpeg["score"], abs=0.5)


def test_an_encoder_without_its_hardware_says_so_and_the_others_go_on(tune: Tune, source: Path) -> None:
    """With the hardware it has a score, which no test machine could show so far."""
    names = ("h264_nvenc", "hevc_nvenc", "h264_qsv", "hevc_qsv")
    done = tune.compare(source, "--encoders", ",".join((*names, "libx264:ultrafast")), "--quality", "30", "--json")
    found = encodes(json.loads(done.stdout))
    for name in names:
        encode = found[f"{name} 30"]
        assert "score" in encode or "; it needs a GPU of " in encode["error"]
        assert "pixel format" not in encode.get("error", "")
    assert found["libx264:ultrafast 30"]["score"] > 80
    assert (done.returncode == 0) == all("score" in one for one in found.values())


CRASHES = {
    "echo 'x265: out of <b>ideas</b>' >&2; exit 7": "failed with exit code 7: x265: out of <b>ideas</b>",
    "kill -SEGV $$": "failed with signal SIGSEGV: no error message",
    "kill -KILL $$": "failed with signal SIGKILL (out of memory?): probably killed because this machine or its cgroup",
    "exit 0": "encoded 0 of 12 frames",
}


@pytest.mark.parametrize("script", CRASHES)
def test_an_encoder_that_crashes_does_not_stop_the_others(
    script: str, tune: Tune, faulty: FaultyFfmpeg, source: Path
) -> None:
    faulty.fault(script)
    result = tune.json(
        source, *BOTH, "--junit", "junit.xml", "--report", "a.html", code=3, environment=faulty.environment
    )
    failed, good = encodes(result).values()
    assert failed["error"].startswith(f"libx265 {CRASHES[script]}")
    assert "score" not in failed
    assert good["score"] > 80
    assert tune.partial() == []
    assert 'errors="1"' in (tune.folder / "junit.xml").read_text()
    assert "<b>ideas" not in (tune.folder / "a.html").read_text()


def test_the_message_of_a_failure_is_printed_beside_the_table(tune: Tune, faulty: FaultyFfmpeg, source: Path) -> None:
    faulty.fault("echo 'x265 [error]: bad' >&2; exit 1")
    done = tune.compare(source, *BOTH, "--quiet", environment=faulty.environment)
    assert done.returncode == 3
    assert done.stderr == "error: libx265:ultrafast 30: libx265 failed with exit code 1: x265 [error]: bad\n"
    (failed,) = (line for line in done.stdout.splitlines() if "failed" in line)
    assert failed.split()[1:4] == ["libx265:ultrafast", "│", "30"]
    assert "libx264:ultrafast" in done.stdout


async def make(workshop: Workshop, *names: str) -> list[EncodeResult]:
    plans = [EncodePlan(Variant.parse(name), 30) for name in names]
    seen: list[TuneProgress] = []
    result = await compare(workshop, plans, seen.append)
    assert [one.stage for one in seen[-1:]] in (["scoring"], ["encoding"])
    return [encode for variant in result.variants for encode in variant.encodes]


async def test_an_encoder_that_hangs_is_ended(
    tune: Tune, faulty: FaultyFfmpeg, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scorer, tools = Scorer(), await EncoderTools.find(faulty.environment)
    folder = WorkFolder(tune.work)
    folder.open()
    async with open_source(scorer, Source(str(source))) as opened:
        workshop = Workshop(opened, scorer, tools, folder, TuneSettings())
        await make(workshop, "libx264:ultrafast")
        faulty.fault("exec sleep infinity")
        monkeypatch.setattr("vmafx.tune.encoding.STALL_SECONDS", 0.5)
        good, failed = await make(workshop, "libx264:ultrafast", "libx265:ultrafast")
    assert (good.resumed, good.error) == (True, "")
    assert failed.error.startswith("libx265 stalled: no frame within ")
    assert tune.partial() == []


def test_a_full_disk_is_named_and_what_was_done_is_kept(tune: Tune, tmp_path: Path) -> None:
    source = lossless(scene(frames=60), tmp_path / "source.mkv")
    with TinyDisk(tmp_path / "disk", size=100_000) as disk:
        program = disk.program(tmp_path / "vmaf-tune", VMAF_TUNE)
        arguments = ("compare", source, "--encoders", "libx264:ultrafast", "--json", "--work", tmp_path / "disk")
        done = tune.run(*arguments, "--quality", "40,0", program=program)
        assert done.returncode == 3, done.stderr
        assert (
            f"error: libx264:ultrafast 0: the disk of {tmp_path / 'disk'} is full; make room, or choose another folder"
            " with --work\n"
        ) in done.stderr
        assert '"score": ' in done.stdout, "the other encode has one"
        assert sorted(path.suffix for path in disk.path.iterdir()) == [".json", ".mp4"]
        again = tune.run(*arguments, "--quality", "40", program=program)
        assert (again.returncode, '"resumed": true' in again.stdout) == (0, True)


def test_a_full_disk_leaves_no_part_of_a_copy(tune: Tune, tmp_path: Path, source: Path) -> None:
    with TinyDisk(tmp_path / "disk", size=8192) as disk:
        program = disk.program(tmp_path / "vmaf-tune", VMAF_TUNE)
        arguments = ("--encoders", "libx264:ultrafast", "--quality", "10", "--quiet", "--work", tune.work)
        done = tune.run("compare", source, *arguments, "--output", tmp_path / "disk", program=program)
        assert done.returncode == 3
        assert done.stderr == f"error: cannot copy the encodes to {tmp_path / 'disk'}: No space left on device\n"
        assert list(disk.path.iterdir()) == []


def test_a_work_folder_that_cannot_be_written_is_named(tune: Tune, source: Path) -> None:
    tune.work.write_bytes(b"")
    done = tune.compare(source, *BOTH)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == f"error: the folder {tune.work} for encodes cannot be used: File exists\n"


def test_a_work_folder_that_vanishes_is_named(tune: Tune, faulty: FaultyFfmpeg, source: Path) -> None:
    faulty.fault(f"rm -r {tune.work}")
    result = tune.json(source, *BOTH, code=3, environment=faulty.environment)
    assert [f"{tune.work}" in encode["error"] for encode in encodes(result).values()] == [True, True]


def test_an_output_that_cannot_be_written_has_no_exit_code_of_a_result(tune: Tune, source: Path) -> None:
    one = ("--encoders", "libx264:ultrafast", "--quality", "30", "--quiet")
    with Path("/dev/full").open("wb") as full:
        done = tune.compare(source, *one, stdout=full)
    assert done.returncode == 3
    assert done.stderr == "error: cannot print the result: No space left on device\n"
