"""The worker as a Pod runs it: one variable in; a result file and an exit code out."""

import json
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.video import FFMPEG
from tests.support.waiting import until
from tests.support.worker_command import VMAFX, Worker, attempt
from vmafx.api.hardware import DEVICES, Backend
from vmafx.api.scoring import ScoringOptions
from vmafx.cores import share_of_cores
from vmafx.jobs.attempt import AttemptSpec


def test_the_score_equals_that_of_vmafx_score(worker: Worker, worker_clips: Path, tmp_path: Path) -> None:
    options = ScoringOptions(subsample=2, pooling="p10", features=("psnr", "ssim"), threads=1)
    output = tmp_path / "report.csv"
    code, result, log = worker.run(
        attempt(worker_clips, options=options, output=output.as_uri()), VMAFX_OUTPUT_DIR=str(tmp_path)
    )
    assert code == 0
    command = [
        VMAFX,
        "score",
        str(worker_clips / "reference.mkv"),
        str(worker_clips / "distorted.mp4"),
        "--json",
        "--no-cache",
    ]
    command += ["--subsample", "2", "--pool", "p10", "--feature", "psnr,ssim"]
    expected = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert (result.score, result.frames) == (expected["score"], expected["frames"]) == (result.score, 6)
    for name in ("vmaf", "psnr_y", "ssim"):
        summary = msgspec.to_builtins(result.metrics[name])
        assert summary == {part: expected["features"][name][part] for part in ("mean", "harmonicMean", "min", "max")}
    assert result.reportURI == output.as_uri()
    assert len(output.read_text().splitlines()) == 1 + 6
    lines = [json.loads(line) for line in log.splitlines()]
    assert [line["msg"] for line in lines if "done" not in line] == ["scoring", "scored"]  # "done": progress, if slow


def test_an_html_report_shows_the_worst_frames(worker: Worker, worker_clips: Path, tmp_path: Path) -> None:
    output = tmp_path / "report.HTML"
    code, result, _ = worker.run(attempt(worker_clips, output=output.as_uri()), VMAFX_OUTPUT_DIR=str(tmp_path))
    assert (code, result.reportURI) == (0, output.as_uri())
    assert output.read_text().count("data:image/jpeg;base64,") == 2 * 6  # six frames of both clips


def test_a_report_without_pictures_still_has_a_score(worker: Worker, worker_clips: Path, tmp_path: Path) -> None:
    """The distorted clip is emptied as soon as it is scored, before its worst frames are read again."""
    clips, output, program = tmp_path / "clips", tmp_path / "report.html", tmp_path / "ffmpeg"
    shutil.copytree(worker_clips, clips)
    empty = f'case "$*" in *libvmaf=*) : > "{clips}/distorted.mp4";; esac'
    program.write_text(f'#!/bin/sh\n"{FFMPEG}" "$@"\ncode=$?\n{empty}\nexit $code\n')
    program.chmod(0o755)
    variables = {"VMAFX_FFMPEG_BIN": str(program), "VMAFX_OUTPUT_DIR": str(tmp_path)}
    code, result, log = worker.run(attempt(clips, output=output.as_uri()), **variables)
    assert (code, result.frames, result.reportURI) == (0, 12, output.as_uri())
    assert "data:image/jpeg" not in output.read_text()
    (warning,) = [entry for line in log.splitlines() if (entry := json.loads(line))["level"] == "warn"]
    assert warning["msg"] == "report has no pictures"
    assert warning["error"].startswith("distorted: ")
    assert "ffmpeg cannot read it" in warning["error"]


@pytest.mark.parametrize(
    ("distorted", "fields", "message"),
    [
        ("none.mp4", {}, "distorted: there is no file"),
        ("short.mp4", {}, "distorted: it has 5 frames, but the reference has 12"),
        ("distorted.mp4", {"model": "vmaf_v9"}, "model: there is no model 'vmaf_v9'"),
        ("distorted.mp4", {"output": "file:///none/report.json"}, "set VMAFX_OUTPUT_DIR on the node"),
        ("distorted.mp4", {"output": "ftp://host/x"}, "options: ftp:// is not supported"),
    ],
)
def test_bad_input_exits_with_2(
    worker: Worker, worker_clips: Path, distorted: str, fields: dict[str, Any], message: str
) -> None:
    code, result, _ = worker.run(attempt(worker_clips, distorted, **fields))
    assert (code, result.fault, result.score) == (2, "BadInput", None)
    assert result.message is not None
    assert message in result.message


def test_a_job_cannot_overwrite_a_clip(worker: Worker, worker_clips: Path, tmp_path: Path) -> None:
    clip = worker_clips / "reference.mkv"
    content = clip.read_bytes()
    for variables in ({}, {"VMAFX_OUTPUT_DIR": str(tmp_path)}, {"VMAFX_OUTPUT_DIR": f"{tmp_path}:{worker_clips}"}):
        code, result, _ = worker.run(attempt(worker_clips, output=clip.as_uri()), **variables)
        assert (code, result.fault) == (2, "BadInput")
        assert "VMAFX_OUTPUT_" in (result.message or "")
        assert clip.read_bytes() == content


def test_an_output_that_is_not_allowed_is_refused_before_scoring(worker: Worker, worker_clips: Path) -> None:
    broken = {"VMAFX_OUTPUT_DIR": "/none", "VMAFX_MEDIA_MAX_BYTES": "1"}  # each clip is too large
    code, result, _ = worker.run(attempt(worker_clips, output="file:///tmp/r.json"), **broken)
    assert (code, result.fault) == (2, "BadInput")
    assert "output file:///tmp/r.json is outside the folders that VMAFX_OUTPUT_DIR allows" in (result.message or "")


def test_a_second_attempt_replaces_the_report_of_the_first(worker: Worker, worker_clips: Path, tmp_path: Path) -> None:
    output = tmp_path / "report.json"
    first = attempt(worker_clips, output=output.as_uri())
    for number, expected in (("uid-0", 0), ("uid-1", 0), ("other-0", 2)):
        again = msgspec.structs.replace(first, id=number)
        code, result, _ = worker.run(again, VMAFX_OUTPUT_DIR=str(tmp_path))
        assert code == expected, result.message
        assert json.loads(output.read_text())["frames"] == 12


def test_a_node_fault_exits_with_4(worker: Worker, worker_clips: Path) -> None:
    code, result, _ = worker.run(attempt(worker_clips), VMAFX_FFMPEG_BIN="/nowhere")
    assert (code, result.fault) == (4, "NodeFault")
    code, result, _ = worker.run(attempt(worker_clips), VMAFX_MEDIA_MAX_BYTES="much")
    assert (code, result.fault) == (4, "NodeFault")
    code, result, _ = worker.run("{}")
    assert (code, result.fault) == (4, "NodeFault")
    assert "VMAFX_WORK is invalid" in (result.message or "")


def test_the_threads_of_the_job_override_those_of_the_node(worker: Worker, worker_clips: Path, tmp_path: Path) -> None:
    seen, engine = tmp_path / "arguments", tmp_path / "ffmpeg"
    engine.write_text(f'#!/bin/sh\necho "$*" >>{seen}\nexec "{FFMPEG}" "$@"\n')
    engine.chmod(0o755)
    for options, threads in ((None, "3"), (ScoringOptions(threads=1), "1")):
        code, _, _ = worker.run(attempt(worker_clips, options=options), VMAFX_FFMPEG_BIN=str(engine), VMAFX_THREADS="3")
        assert code == 0
        scored = [line for line in seen.read_text().splitlines() if "n_threads" in line]
        assert f"n_threads={threads}:" in scored[-1]
    code, _, _ = worker.run(attempt(worker_clips), VMAFX_FFMPEG_BIN=str(engine), VMAFX_AUTO_THREADS="1")
    assert code == 0
    assert f"n_threads={share_of_cores(1)}:" in seen.read_text().splitlines()[-1]
    code, result, _ = worker.run(attempt(worker_clips), VMAFX_THREADS="many")
    assert (code, result.fault) == (4, "NodeFault")


NO_ENGINE = "this machine has no engine for the backend {} ({}): torch is not installed: pip install 'vmafx[gpu]'"


@pytest.mark.parametrize(
    ("backend", "variable", "missing"),
    [
        (None, "auto", None),
        (None, "cpu", None),
        (None, "cuda", "cuda"),
        ("cpu", "cuda", None),  # the job's own backend wins
        ("hip", "cpu", "hip"),
        ("metal", "auto", "metal"),
    ],
)
def test_the_backend_of_the_job_overrides_that_of_the_node_and_is_never_replaced(
    worker: Worker, worker_clips: Path, backend: Backend | None, variable: str, missing: str | None
) -> None:
    code, result, _ = worker.run(attempt(worker_clips, backend=backend), VMAFX_BACKEND=variable)
    if missing is None:
        assert (code, result.fault, result.frames) == (0, None, 12)
    else:
        assert (code, result.fault, result.score) == (4, "NodeFault", None)
        assert NO_ENGINE.format(missing, DEVICES[missing]) in (result.message or "")


def test_an_unknown_backend_is_a_node_fault(worker: Worker, worker_clips: Path) -> None:
    code, result, _ = worker.run(attempt(worker_clips), VMAFX_BACKEND="gpu")
    assert (code, result.fault) == (4, "NodeFault")
    assert "VMAFX_BACKEND: 'gpu' is not one of auto, cpu, cuda, hip, sycl, metal" in (result.message or "")


def test_clips_are_not_opened_for_a_backend_without_an_engine(worker: Worker, worker_clips: Path) -> None:
    code, result, _ = worker.run(attempt(worker_clips, "none.mp4", backend="cuda"))
    assert (code, result.fault) == (4, "NodeFault")


def test_a_model_name_is_looked_up_in_the_model_folder(worker: Worker, worker_clips: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text("{}")
    code, result, _ = worker.run(attempt(worker_clips, model="mine"), VMAFX_MODEL_DIR=str(tmp_path))
    assert (code, result.fault) == (2, "BadInput")
    assert f"{tmp_path}/mine.json is not a VMAF model" in (result.message or "")
    code, result, _ = worker.run(attempt(worker_clips), VMAFX_MODEL_DIR="models")
    assert (code, result.fault) == (4, "NodeFault")
    assert "VMAFX_MODEL_DIR: 'models' is not an absolute path" in (result.message or "")


def test_the_roots_of_the_node_apply_to_the_job(worker: Worker, worker_clips: Path) -> None:
    code, result, _ = worker.run(attempt(worker_clips), VMAFX_MEDIA_ROOTS="/srv/clips")
    assert (code, result.fault) == (2, "BadInput")
    assert "outside the folders" in (result.message or "")


def test_a_stopped_worker_leaves_no_result_and_no_process(worker: Worker, worker_clips: Path) -> None:
    long = (worker_clips / "long.mkv").as_uri()
    with worker.start(AttemptSpec(long, long, options=ScoringOptions(threads=1), id="uid-0")) as process:
        until(lambda: bool(_ffmpeg_children(process.pid)), "ffmpeg runs")
        children = _ffmpeg_children(process.pid)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode == 143
    assert not worker.result_file.exists()
    until(lambda: not any(_is_scoring(child) for child in children), "no process is left")  # under any parent


def _ffmpeg_children(parent: int) -> list[Path]:
    """The ffmpeg children of a process, as folders of /proc."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(status.read_text().rpartition(")")[2].split()[1]) == parent and _is_scoring(status.parent):
                found.append(status.parent)
    return found


def _is_scoring(process: Path) -> bool:
    with suppress(OSError):
        return "libvmaf" in (process / "cmdline").read_text(errors="replace")
    return False


def test_credentials_are_neither_logged_nor_in_the_result(worker: Worker, worker_clips: Path) -> None:
    secret = "https://user:pa55word@127.0.0.1:1/a.mp4?signature=t0ken"
    code, result, log = worker.run(AttemptSpec(secret, secret, model=secret, id="uid-0"))
    assert (code, result.fault) == (2, "BadInput")  # 127.0.0.1 is a private address
    assert '"model":"https://127.0.0.1:1/a.mp4"' in log.replace(" ", "")
    for word in ("pa55word", "t0ken"):
        assert word not in log
        assert word not in (result.message or "")
