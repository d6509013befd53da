"""The samples of a worker: made only if asked, and never a reason for an attempt to fail."""

import csv
import json
import signal
from base64 import b64decode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.support.training_samples import teacher_score
from tests.support.video import ffmpeg, lossless, scene
from tests.support.waiting import until
from tests.support.worker_command import Worker, attempt
from vmafx.jobs.attempt import AttemptSpec, decode_result
from vmafx.operator.job.pod import COMMAND
from vmafx.scoring.result import MODEL_FEATURES
from vmafx.training.samples import MAX_SAMPLES, decode_batch


def samples_log(log: str) -> list[str]:
    return [line["msg"] for line in map(json.loads, log.splitlines()) if "samples" in line["msg"]]


def test_samples_are_written_to_a_file_only_if_asked(worker: Worker, worker_clips: Path, tmp_path: Path) -> None:
    file, output = tmp_path / "samples", tmp_path / "report.csv"
    assert worker.run(attempt(worker_clips))[0] == 0
    assert not file.exists()
    wanted = attempt(worker_clips, output=output.as_uri())
    code, result, log = worker.run(wanted, VMAFX_SAMPLES_FILE=str(file), VMAFX_OUTPUT_DIR=str(tmp_path))
    assert (code, samples_log(log)) == (0, [])
    batch = decode_batch(file.read_bytes())
    assert (batch.model, batch.count) == ("vmaf_v0.6.1", 12)
    assert teacher_score(batch) == pytest.approx(result.score, abs=1e-3)
    report = list(csv.DictReader(output.read_text().splitlines()))
    assert batch.frame_numbers().tolist() == [int(frame["frame"]) for frame in report]
    values = [float(frame[name]) for frame in report for name in (*MODEL_FEATURES, "vmaf")]
    assert batch.rows().tolist() == pytest.approx(values, abs=1e-5)


def test_a_long_clip_yields_300_samples_which_is_logged(worker: Worker, tmp_path: Path) -> None:
    ten = lossless(scene(frames=10, size=(128, 72)), tmp_path / "ten.mkv")
    ffmpeg("-stream_loop", "60", "-i", ten, "-c", "copy", long := tmp_path / "long.mkv")
    code, result, log = worker.run(
        AttemptSpec(long.as_uri(), long.as_uri(), id="uid-0"), VMAFX_SAMPLES_FILE=str(tmp_path / "samples")
    )
    assert (code, result.frames) == (0, 610)
    batch = decode_batch((tmp_path / "samples").read_bytes())
    assert batch.frame_numbers().tolist() == list(range(0, 610, 3))
    (entry,) = [line for line in map(json.loads, log.splitlines()) if "part of the frames" in line["msg"]]
    assert (entry["frames"], entry["samples"]) == (610, batch.count)
    assert batch.count <= MAX_SAMPLES


def test_a_failed_attempt_has_no_samples(worker: Worker, worker_clips: Path, tmp_path: Path) -> None:
    file = tmp_path / "samples"
    code, _, log = worker.run(attempt(worker_clips, "none.mp4"), VMAFX_SAMPLES_FILE=str(file))
    assert (code, file.exists(), samples_log(log)) == (2, False, [])


def test_samples_that_cannot_be_written_do_not_fail_the_attempt(worker: Worker, worker_clips: Path) -> None:
    code, result, log = worker.run(attempt(worker_clips), VMAFX_SAMPLES_FILE="/none/samples")
    assert (code, result.fault, samples_log(log)) == (0, None, ["could not write samples"])


class PushServer:
    """Answers the pushes of a worker, in a thread: each with the next of `replies`, the last one again and again."""

    def __init__(self, *replies: tuple[int, bytes]) -> None:
        self.bodies: list[dict[str, Any]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["Content-Length"]))
                server.bodies.append({"path": self.path, **json.loads(content)})
                status, body = replies[min(len(server.bodies), len(replies)) - 1]
                if status:
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)
                else:  # no reply until the worker gives up
                    self.rfile.read(1)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1/samples"

    def __enter__(self) -> "PushServer":
        self._thread = Thread(target=self._server.serve_forever)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


RETRY = (200, b'{"result": "RETRY", "message": "no trainer"}')


@pytest.mark.parametrize(
    ("replies", "pushes", "message"),
    [
        ([(200, b'{"result": "STORED", "message": ""}')], 1, "samples delivered"),
        ([RETRY, (200, b'{"result": "STORED", "message": ""}')], 2, "samples delivered"),
        ([RETRY], 2, "samples not delivered"),
        ([(503, b"<html>")], 2, "samples not delivered"),
        ([(401, b'{"code": "UNAUTHENTICATED", "message": "no"}')], 1, "samples refused"),
        ([(200, b'{"result": "UNWANTED", "message": ""}')], 1, "samples refused"),
        ([(200, b"\xff")], 1, "samples refused"),
    ],
)
def test_a_pod_pushes_its_samples_and_tries_once_more(
    worker: Worker, worker_clips: Path, replies: list[tuple[int, bytes]], pushes: int, message: str
) -> None:
    with PushServer(*replies) as server:
        variables = {"VMAFX_SAMPLES_URL": server.url, "VMAFX_SAMPLES_TOKEN": "t0ken"}
        code, result, log = worker.run(attempt(worker_clips), **variables)
    assert (code, result.fault, samples_log(log)) == (0, None, [message])
    assert [(body["path"], body["samplesToken"]) for body in server.bodies] == [("/v1/samples", "t0ken")] * pushes
    pushed = decode_batch(b64decode(server.bodies[0]["samples"]))
    assert teacher_score(pushed) == pytest.approx(result.score, abs=1e-3)
    assert "t0ken" not in log


def test_a_controller_that_does_not_answer_hardly_holds_up_a_pod(worker: Worker, worker_clips: Path) -> None:
    with PushServer((0, b"")) as server:
        code, result, log = worker.run(attempt(worker_clips), VMAFX_SAMPLES_URL=server.url, VMAFX_SAMPLES_TOKEN="t")
        assert len(server.bodies) == 1
    assert (code, result.fault, samples_log(log)) == (0, None, ["samples not delivered"])
    assert "no reply within 5 s" in log


def test_sigterm_ends_a_push_and_keeps_the_result(worker: Worker, worker_clips: Path) -> None:
    with PushServer((0, b"")) as server:
        with worker.start(attempt(worker_clips), VMAFX_SAMPLES_URL=server.url, VMAFX_SAMPLES_TOKEN="t") as process:
            until(lambda: bool(server.bodies), "the worker pushes its samples")
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=30)
        assert (process.returncode, samples_log(log)) == (0, ["samples not delivered: stopped by a signal"])
    assert decode_result(worker.result_file.read_text(), "uid-0") is not None


HANGING_RESOLVER = """
import socket, threading
from pathlib import Path
real = socket.getaddrinfo

def hang(host, port, *args, flags=0, **options):
    if host != "hanging.invalid" or flags & socket.AI_NUMERICHOST:
        return real(host, port, *args, flags=flags, **options)
    Path(__file__).with_name("started").touch()
    threading.Event().wait()

socket.getaddrinfo = hang
"""


@pytest.mark.parametrize("stopped", [False, True])
def test_a_name_lookup_that_hangs_does_not_keep_a_pod(
    worker: Worker, worker_clips: Path, tmp_path: Path, stopped: bool
) -> None:
    """The lookup never ends; the process does, with the exit code of its result."""
    (tmp_path / "sitecustomize.py").write_text(HANGING_RESOLVER)
    variables = {"VMAFX_SAMPLES_URL": "http://hanging.invalid/v1/samples", "VMAFX_SAMPLES_TOKEN": "t"}
    not_isolated = [part for part in COMMAND if part != "-I"]
    with worker.start(attempt(worker_clips), command=not_isolated, PYTHONPATH=str(tmp_path), **variables) as process:
        until((tmp_path / "started").exists, "the worker looks up the controller")
        if stopped:
            process.send_signal(signal.SIGTERM)
        try:
            _, log = process.communicate(timeout=60)
        finally:
            process.kill()
    message = "samples not delivered: stopped by a signal" if stopped else "samples not delivered"
    assert (process.returncode, samples_log(log)) == (0, [message])
    assert decode_result(worker.result_file.read_text(), "uid-0") is not None


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/v1/samples", "nonsense", "ftp://a/b", "http://nosuch.invalid/"])
def test_no_url_makes_an_attempt_fail(worker: Worker, worker_clips: Path, url: str) -> None:
    code, result, log = worker.run(attempt(worker_clips), VMAFX_SAMPLES_URL=url, VMAFX_SAMPLES_TOKEN="t")
    assert (code, result.fault, samples_log(log)) == (0, None, ["samples not delivered"])
