"""`vmafx worker` as a Pod runs it: told by one variable, heard by one file and its exit code."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.video import FFMPEG, ffmpeg, long_clip, lossless, scene
from tests.support.waiting import until
from vmafx.api.scoring import ScoringOptions
from vmafx.jobs.attempt import AttemptResult, AttemptSpec, decode_result

VMAFX = str(Path(sys.executable).with_name("vmafx"))


@pytest.fixture(scope="module")
def worker_clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clips")
    reference = lossless(scene(frames=12), folder / "reference.mkv")
    ffmpeg("-i", reference, "-c:v", "libx264", "-crf", "34", folder / "distorted.mp4")
    ffmpeg("-i", reference, "-c:v", "libx264", "-frames:v", "5", folder / "short.mp4")
    long_clip(folder / "long.mkv", frames=150)
    return folder


class Worker:
    """One run, with nothing in its environment but what a Pod's would have."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.answer_file = folder / "answer"

    def start(self, work: AttemptSpec | str, **variables: str) -> "subprocess.Popen[str]":
        told = work if isinstance(work, str) else msgspec.json.encode(work).decode()
        environment = {"VMAFX_WORK": told, "VMAFX_ANSWER_FILE": str(self.answer_file), "PATH": os.environ["PATH"]}
        return subprocess.Popen(
            [VMAFX, "worker"], env=environment | variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def run(self, work: AttemptSpec | str, **variables: str) -> tuple[int, AttemptResult, str]:
        with self.start(work, **variables) as process:
            _, log = process.communicate(timeout=120)
        attempt = work.id if isinstance(work, AttemptSpec) else ""
        answer = decode_result(self.answer_file.read_text(), attempt)
        assert answer is not None, self.answer_file.read_text()
        return process.returncode, answer, log


@pytest.fixture
def worker(tmp_path: Path) -> Worker:
    return Worker(tmp_path)


def work(worker_clips: Path, distorted: str = "distorted.mp4", **more: Any) -> AttemptSpec:
    return AttemptSpec(
        (worker_clips / "reference.mkv").as_uri(), (worker_clips / distorted).as_uri(), id="uid-0", **more
    )


def test_a_score_is_that_of_the_command(worker: Worker, worker_clips: Path, tmp_path: Path) -> None:
    options = ScoringOptions(subsample=2, pooling="p10", features=("psnr", "ssim"), threads=1)
    output = tmp_path / "report.csv"
    code, answer, log = worker.run(work(worker_clips, options=options, output=output.as_uri()))
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
    assert (answer.score, answer.frames) == (expected["score"], expected["frames"]) == (answer.score, 6)
    for name in ("vmaf", "psnr_y", "ssim"):
        summary = msgspec.to_builtins(answer.metrics[name])
        assert summary == {part: expected["features"][name][part] for part in ("mean", "harmonicMean", "min", "max")}
    assert answer.reportURI == output.as_uri()
    assert len(output.read_text().splitlines()) == 1 + 6
    told = [json.loads(line) for line in log.splitlines()]
    assert [one["msg"] for one in told if "done" not in one] == ["scoring", "scored"]  # a slow one tells its progress


def test_an_html_report_shows_the_worst_frames(worker: Worker, worker_clips: Path, tmp_path: Path) -> None:
    output = tmp_path / "report.HTML"
    code, answer, _ = worker.run(work(worker_clips, output=output.as_uri()))
    assert (code, answer.reportURI) == (0, output.as_uri())
    assert output.read_text().count("data:image/jpeg;base64,") == 2 * 6  # both sides of as many as `vmafx score` shows


def test_without_pictures_it_is_still_a_score(worker: Worker, worker_clips: Path, tmp_path: Path) -> None:
    output, broken = tmp_path / "report.html", tmp_path / "ffmpeg"
    broken.write_text(f'#!/bin/sh\ncase "$*" in *-c:v\\ mjpeg*) exit 1;; esac\nexec "{FFMPEG}" "$@"\n')
    broken.chmod(0o755)
    code, answer, log = worker.run(work(worker_clips, output=output.as_uri()), VMAFX_FFMPEG_BIN=str(broken))
    assert (code, answer.frames, answer.reportURI) == (0, 12, output.as_uri())
    assert "data:image/jpeg" not in output.read_text()
    (warning,) = [told for line in log.splitlines() if (told := json.loads(line))["level"] == "warn"]
    assert warning["msg"] == "report has no pictures"
    assert "no pictures of" in warning["error"]


@pytest.mark.parametrize(
    ("distorted", "more", "told"),
    [
        ("none.mp4", {}, "distorted: there is no file"),
        ("short.mp4", {}, "distorted: it has 5 frames, and the reference has 12"),
        ("distorted.mp4", {"model": "vmaf_v9"}, "model: there is no model 'vmaf_v9'"),
        ("distorted.mp4", {"output": "file:///none/report.json"}, "output file:///none/report.json cannot be written"),
        ("distorted.mp4", {"output": "ftp://host/x"}, "options: ftp:// is not known"),
    ],
)
def test_bad_input(worker: Worker, worker_clips: Path, distorted: str, more: dict[str, Any], told: str) -> None:
    code, answer, _ = worker.run(work(worker_clips, distorted, **more))
    assert (code, answer.fault, answer.score) == (2, "BadInput", None)
    assert answer.message is not None
    assert told in answer.message


def test_a_bad_node(worker: Worker, worker_clips: Path) -> None:
    code, answer, _ = worker.run(work(worker_clips), VMAFX_FFMPEG_BIN="/nowhere")
    assert (code, answer.fault) == (4, "NodeFault")
    code, answer, _ = worker.run(work(worker_clips), VMAFX_MEDIA_MAX_BYTES="much")
    assert (code, answer.fault) == (4, "NodeFault")
    code, answer, _ = worker.run("{}")
    assert (code, answer.fault) == (4, "NodeFault")
    assert "VMAFX_WORK cannot be understood" in (answer.message or "")


def test_the_threads_are_the_jobs_and_else_the_nodes(worker: Worker, worker_clips: Path, tmp_path: Path) -> None:
    seen, engine = tmp_path / "arguments", tmp_path / "ffmpeg"
    engine.write_text(f'#!/bin/sh\necho "$*" >>{seen}\nexec "{FFMPEG}" "$@"\n')
    engine.chmod(0o755)
    for options, threads in ((None, "3"), (ScoringOptions(threads=1), "1")):
        code, _, _ = worker.run(work(worker_clips, options=options), VMAFX_FFMPEG_BIN=str(engine), VMAFX_THREADS="3")
        assert code == 0
        scored = [line for line in seen.read_text().splitlines() if "n_threads" in line]
        assert f"n_threads={threads}:" in scored[-1]
    code, answer, _ = worker.run(work(worker_clips), VMAFX_THREADS="many")
    assert (code, answer.fault) == (4, "NodeFault")


def test_a_model_by_name_is_looked_up_in_the_nodes_folder(worker: Worker, worker_clips: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text("{}")
    code, answer, _ = worker.run(work(worker_clips, model="mine"), VMAFX_MODEL_DIR=str(tmp_path))
    assert (code, answer.fault) == (2, "BadInput")
    assert f"{tmp_path}/mine.json is no VMAF model" in (answer.message or "")
    code, answer, _ = worker.run(work(worker_clips), VMAFX_MODEL_DIR="models")
    assert (code, answer.fault) == (4, "NodeFault")
    assert "VMAFX_MODEL_DIR: 'models' is no absolute path" in (answer.message or "")


def test_what_the_node_forbids_the_job_does_not_get(worker: Worker, worker_clips: Path) -> None:
    code, answer, _ = worker.run(work(worker_clips), VMAFX_MEDIA_ROOTS="/srv/clips")
    assert (code, answer.fault) == (2, "BadInput")
    assert "outside the folders" in (answer.message or "")


def test_stopped_it_leaves_no_answer_and_no_process(worker: Worker, worker_clips: Path) -> None:
    long = (worker_clips / "long.mkv").as_uri()
    with worker.start(AttemptSpec(long, long, options=ScoringOptions(threads=1), id="uid-0")) as process:
        until(lambda: bool(_engines(process.pid)), "it scores")
        engines = _engines(process.pid)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode == 143
    assert not worker.answer_file.exists()
    until(lambda: not any(_scores(engine) for engine in engines), "no process is left")  # whoever its parent is now


def _engines(parent: int) -> list[Path]:
    """A process's children that score, as folders of /proc."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(status.read_text().rpartition(")")[2].split()[1]) == parent and _scores(status.parent):
                found.append(status.parent)
    return found


def _scores(process: Path) -> bool:
    with suppress(OSError):
        return "libvmaf" in (process / "cmdline").read_text(errors="replace")
    return False


def test_credentials_are_neither_logged_nor_told(worker: Worker, worker_clips: Path) -> None:
    secret = "https://user:pa55word@127.0.0.1:1/a.mp4?signature=t0ken"
    code, answer, log = worker.run(AttemptSpec(secret, secret, model=secret, id="uid-0"))
    assert (code, answer.fault) == (2, "BadInput")  # 127.0.0.1 is not public
    assert '"model":"https://127.0.0.1:1/a.mp4"' in log.replace(" ", "")
    for word in ("pa55word", "t0ken"):
        assert word not in log
        assert word not in (answer.message or "")
