"""`vmafx agent` with the real worker, against a controller with injected failures."""

import asyncio
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.support.agent_process import VMAFX, agent, children, read
from tests.support.memory_controller import MemoryController
from tests.support.video import ffmpeg
from tests.support.waiting import eventually
from vmafx.agent.agent import threads_per_job
from vmafx.api.hardware import Backend
from vmafx.api.scoring import ScoringOptions
from vmafx.cores import usable_cores
from vmafx.hardware.devices import Device, HostHardware
from vmafx.hardware.speed import frames_per_second
from vmafx.scoring.errors import NodeFault

SLOW = ScoringOptions(threads=1)
BACKENDS_OF_ATTEMPTS: dict[str, Backend | None] = {"any": None, "cpu": "cpu", "cuda": "cuda"}


def expected(clips: Path) -> float:
    command = [VMAFX, "score", str(clips / "reference.mkv"), str(clips / "distorted.mp4"), "--json", "--no-cache"]
    score: float = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["score"]
    return score


def spooled(state: Path) -> list[str]:
    return [path.name for path in (state / "spool").iterdir()]


async def test_an_agent_reports_the_score_of_vmafx_score(
    controller: MemoryController, clips: Path, speed: Path, tmp_path: Path
) -> None:
    controller.place_short(clips)
    controller.place_short(clips, "uid-1")
    flags = ("--capacity", "1", "--namespace", "video", "--label", "rack=a", "--label", "zone=b")
    async with agent(controller.address, tmp_path, speed, *flags) as running:
        await eventually(lambda: len(controller.results) == 2, "both jobs are scored")
        await eventually(lambda: not spooled(tmp_path), "the spool is empty")
        (request,) = controller.calls("RegisterNode")
        assert (request.name, request.namespace, dict(request.labels)) == (
            "machine",
            "video",
            {"rack": "a", "zone": "b"},
        )
        assert (request.capability.gpu_vendor, request.capability.backends, request.capability.concurrency) == (
            "cpu",
            ["cpu"],
            1,
        )
        assert "core" in request.device
        assert request.fps == json.loads(speed.read_text())["fps"]
        report = next(one for one in controller.calls("ReportResult") if one.final)  # a slow job reports progress first
        assert (report.final, report.job_id, report.name, report.error) == (True, "uid-0", "job-uid-0", "")
        assert report.score == controller.results["uid-0"].score == expected(clips)
        assert report.features["vmaf"] == controller.results["uid-0"].metrics["vmaf"].mean
        assert list((tmp_path / "work").iterdir()) == []
        running.process.terminate()
        assert await running.ended() == 0


@pytest.mark.parametrize("allowed", [False, True])
async def test_a_report_is_written_only_into_the_folders_that_the_agent_has_for_them(
    controller: MemoryController, clips: Path, speed: Path, tmp_path: Path, allowed: bool
) -> None:
    reports = tmp_path / "reports"
    reports.mkdir()
    output = (reports / "report.csv").as_uri()
    controller.place("uid-0", clips / "reference.mkv", clips / "distorted.mp4", output=output)
    variables = {"VMAFX_OUTPUT_DIR": str(reports)} if allowed else {}
    async with agent(controller.address, tmp_path / "state", speed, variables=variables):
        await eventually(lambda: "uid-0" in controller.results, "the job ends")
    result = controller.results["uid-0"]
    assert (result.reportURI, result.fault) == ((output, None) if allowed else (None, "BadInput"))
    assert allowed or "set VMAFX_OUTPUT_DIR on the node" in (result.message or "")
    assert [path.name for path in reports.iterdir()] == ["report.csv"] * allowed


async def test_a_bad_clip_is_reported_as_bad_input(
    controller: MemoryController, clips: Path, speed: Path, tmp_path: Path
) -> None:
    controller.place("uid-0", clips / "reference.mkv", clips / "none.mkv")
    controller.place("uid-1", clips / "reference.mkv", clips / "distorted.mp4")
    controller.placed["uid-1"].work = "{nonsense"
    async with agent(controller.address, tmp_path, speed, "--capacity", "2"):
        await eventually(lambda: len(controller.results) == 2, "both are reported")
    assert (controller.results["uid-0"].fault, controller.results["uid-1"].fault) == ("BadInput", "NodeFault")
    assert "VMAFX_WORK is invalid" in (controller.results["uid-1"].message or "")
    errors = {one.job_id: one.error for one in controller.calls("ReportResult")}
    assert errors["uid-0"].startswith("BadInput: distorted: there is no file")


async def test_a_worker_that_dies_is_a_failure_of_the_node(
    controller: MemoryController, clips: Path, speed: Path, tmp_path: Path
) -> None:
    controller.place_long(clips)
    async with agent(controller.address, tmp_path, speed) as running:
        await eventually(running.workers, "a worker runs")
        (worker,) = children(running.process.pid)
        os.kill(worker, signal.SIGKILL)
        await eventually(lambda: controller.results, "the failure is reported")
    assert controller.results["uid-0"].fault == "NodeFault"
    assert "signal SIGKILL" in (controller.results["uid-0"].message or "")


async def test_a_worker_that_gets_sigterm_is_not_a_failure(
    controller: MemoryController, clips: Path, speed: Path, tmp_path: Path
) -> None:
    controller.place_long(clips)
    async with agent(controller.address, tmp_path, speed) as running:
        await eventually(lambda: len(ffmpegs(running.process.pid)) == 1, "ffmpeg scores")
        (worker,) = children(running.process.pid)
        os.kill(worker, signal.SIGTERM)
        await running.wait_for_log("worker was stopped")
        await eventually(lambda: controller.results, "the job is scored again")
        assert controller.results["uid-0"].fault is None
        assert [one["attempt"] for one in running.log if one["msg"] == "taken"] == ["uid-0", "uid-0"]


@pytest.mark.parametrize(
    ("variables", "threads"), [({}, threads_per_job(usable_cores(), 2)), ({"VMAFX_THREADS": "3"}, 3)]
)
async def test_a_worker_has_its_share_of_the_cores_unless_the_agent_has_vmafx_threads(
    controller: MemoryController, clips: Path, speed: Path, tmp_path: Path, variables: dict[str, str], threads: int
) -> None:
    controller.place_long(clips)
    async with agent(controller.address, tmp_path, speed, "--capacity", "2", variables=variables) as running:
        # The kernel shows a worker without its environment, or without its name, while it executes its program.
        await eventually(
            lambda: any(f"VMAFX_THREADS={threads}" in one.split("\0") for one in running.workers()),
            "a worker has its threads",
        )


async def test_a_finished_score_survives_the_death_of_the_agent(
    controller: MemoryController, clips: Path, speed: Path, tmp_path: Path
) -> None:
    controller.refusals["ReportResult"] = grpc.StatusCode.UNAVAILABLE
    controller.place_short(clips)
    async with agent(controller.address, tmp_path, speed) as first:
        await first.wait_for_log("cannot report a result")
        await first.killed()
    (kept,) = spooled(tmp_path)
    assert controller.results == {}
    before = len(controller.received)
    controller.refusals.clear()
    async with agent(controller.address, tmp_path, speed) as second:
        await eventually(lambda: "uid-0" in controller.results, "the next agent reports it")
        await eventually(lambda: not spooled(tmp_path), f"{kept} is deleted")
        assert not second.has_logged("taken")  # it was not scored again
    assert controller.results["uid-0"].score == expected(clips)
    pulls = [one.request for one in controller.received[before:] if one.method == "PullWork"]
    assert all("uid-0" in {job.id for job in one.running_job_ids.jobs} for one in pulls[:1])


async def test_the_workers_of_a_killed_agent_end_and_it_is_assigned_the_job_again(
    controller: MemoryController, clips: Path, speed: Path, tmp_path: Path
) -> None:
    controller.place_long(clips)
    async with agent(controller.address, tmp_path, speed) as first:
        await eventually(lambda: len(ffmpegs(first.process.pid)) == 1, "ffmpeg scores")
        (worker,), (scorer,) = children(first.process.pid), ffmpegs(first.process.pid)
        await first.killed()
        await eventually(
            lambda: not read(worker, "cmdline") and not read(scorer, "cmdline"), "worker and ffmpeg have ended"
        )
        assert list((tmp_path / "work").iterdir()) != []
    controller.placed.clear()
    controller.place_short(clips)
    async with agent(controller.address, tmp_path, speed):
        await eventually(lambda: "uid-0" in controller.results, "the next agent scores it")
        assert list((tmp_path / "work").iterdir()) == []


def ffmpegs(pid: int) -> list[int]:
    return [one for child in children(pid) for one in children(child) if "libvmaf" in read(one, "cmdline")]


async def test_a_result_is_reported_once_the_controller_is_back(
    controller: MemoryController, clips: Path, speed: Path, tmp_path: Path
) -> None:
    controller.place_long(clips)
    async with agent(controller.address, tmp_path, speed) as running:
        await eventually(running.workers, "a worker runs")
        await controller.stop()
        await running.wait_for_log("scored")
        await running.wait_for_log("cannot report a result")
        assert len(spooled(tmp_path)) == 1
        await controller.start()
        await eventually(lambda: "uid-0" in controller.results, "the result is reported")
        controller.place_short(clips, "uid-1")
        await eventually(lambda: "uid-1" in controller.results, "the next job is scored")
    assert len(controller.calls("RegisterNode")) == 1


async def test_a_result_whose_response_is_lost_is_reported_again(
    controller: MemoryController, clips: Path, speed: Path, tmp_path: Path
) -> None:
    controller.lost.add("ReportResult")
    controller.place_short(clips)
    async with agent(controller.address, tmp_path, speed) as running:
        await running.wait_for_log("cannot report a result")
        assert "uid-0" in controller.results
        controller.lost.clear()
        await running.wait_for_log("result rejected")
        await eventually(lambda: not spooled(tmp_path), "the spool is empty")
        controller.place_short(clips)  # as a controller with a stale cache does
        controller.place_short(clips, "uid-1")
        controller.placed["uid-0"] = controller.placed.pop("uid-0")
        await eventually(lambda: "uid-1" in controller.results, "the other job is scored")
        pulls = len(controller.calls("PullWork"))
        await eventually(lambda: len(controller.calls("PullWork")) > pulls + 1, "the first was assigned again")
        assert [one["attempt"] for one in running.log if one["msg"] == "taken"] == ["uid-0", "uid-1"]


async def test_an_ended_attempt_is_stopped_and_frees_its_slot(
    controller: MemoryController, clips: Path, speed: Path, tmp_path: Path
) -> None:
    controller.place_long(clips)
    async with agent(controller.address, tmp_path, speed, "--capacity", "1") as running:
        found: list[int] = []

        def scores() -> bool:
            found[:] = ffmpegs(running.process.pid)  # once: a process has no command line while it executes another
            return len(found) == 1

        await eventually(scores, "ffmpeg scores")
        (scorer,) = found
        controller.place_short(clips, "uid-1")
        controller.end("uid-0")
        await eventually(lambda: "uid-1" in controller.results, "the slot is free")
        assert not read(scorer, "cmdline")
        assert list((tmp_path / "work").iterdir()) == []
        assert "uid-0" not in controller.results


async def test_a_rejected_session_is_replaced_and_jobs_continue(
    controller: MemoryController, clips: Path, speed: Path, tmp_path: Path
) -> None:
    controller.place_long(clips)
    async with agent(controller.address, tmp_path, speed) as running:
        await eventually(running.workers, "a worker runs")
        controller.sessions.clear()
        controller.change()
        await eventually(lambda: len(controller.calls("RegisterNode")) == 2, "it registers again")
        await eventually(lambda: controller.held() == {"uid-0"}, "it still holds its job")
        await eventually(lambda: "uid-0" in controller.results, "the job is scored")
        assert len([one for one in running.log if one["msg"] == "taken"]) == 1


async def test_an_idle_agent_reports_that_it_drains(controller: MemoryController, speed: Path, tmp_path: Path) -> None:
    """Otherwise jobs would be placed on its node until heartbeats are missed."""
    async with agent(controller.address, tmp_path, speed) as running:
        await eventually(lambda: controller.calls("Heartbeat"), "it is registered")
        assert not controller.calls("Heartbeat")[-1].draining
        running.process.terminate()
        assert await running.ended() == 0
    assert controller.calls("Heartbeat")[-1].draining


async def test_a_draining_agent_finishes_its_jobs_and_takes_no_more(
    controller: MemoryController, clips: Path, speed: Path, tmp_path: Path
) -> None:
    controller.place_long(clips)
    async with agent(controller.address, tmp_path, speed, "--capacity", "2", "--drain-seconds", "600") as running:
        await eventually(running.workers, "a worker runs")
        running.process.terminate()
        await running.wait_for_log("draining")
        controller.place_short(clips, "uid-1")
        assert await running.ended() == 0
    assert set(controller.results) == {"uid-0"}


@pytest.mark.parametrize("seconds", ["0", "60"])
async def test_a_second_sigterm_or_no_drain_time_stops_running_jobs(
    controller: MemoryController, clips: Path, speed: Path, tmp_path: Path, seconds: str
) -> None:
    controller.place_long(clips)
    async with agent(controller.address, tmp_path, speed, "--drain-seconds", seconds) as running:
        await eventually(running.workers, "a worker runs")
        running.process.terminate()
        await running.wait_for_log("draining")
        if seconds == "60":
            running.process.terminate()
        assert await running.ended() == 0
        assert running.has_logged("job stopped before it finished")
    assert controller.results == {}
    assert spooled(tmp_path) == []
    assert list((tmp_path / "work").iterdir()) == []


async def test_a_result_that_cannot_be_reported_during_the_drain_is_kept(
    controller: MemoryController, clips: Path, speed: Path, tmp_path: Path
) -> None:
    controller.refusals["ReportResult"] = grpc.StatusCode.INTERNAL
    controller.place_short(clips)
    async with agent(controller.address, tmp_path, speed, "--drain-seconds", "1") as running:
        await running.wait_for_log("cannot report a result")
        running.process.terminate()
        assert await running.ended() == 0
        assert running.has_logged("result not reported; it is kept")
    assert len(spooled(tmp_path)) == 1


@pytest.mark.parametrize("old", [False, True])
async def test_an_agent_with_a_gpu_scores_jobs_without_a_backend_and_fails_those_for_the_gpu(
    controller: MemoryController, clips: Path, speed: Path, tmp_path: Path, old: bool
) -> None:
    controller.old = old
    clip_pair = (clips / "reference.mkv", clips / "distorted.mp4")
    for attempt, backend in BACKENDS_OF_ATTEMPTS.items():
        controller.place(attempt, *clip_pair, backend=backend)
    gpu_speed, measured = tmp_path / "speed.json", json.loads(speed.read_text())
    gpu_speed.write_text(json.dumps(measured | {"device": "nvidia (not detected)"}))
    async with agent(controller.address, tmp_path / "state", gpu_speed, "--backend", "cuda", "--capacity", "1"):
        await eventually(lambda: len(controller.results) == 3, "all are reported")
    (request,) = controller.calls("RegisterNode")
    assert (request.capability.gpu_vendor, request.capability.backends) == ("nvidia", ["cuda", "cpu"])
    assert {one: result.fault for one, result in controller.results.items()} == {
        "any": None, "cpu": None, "cuda": "NodeFault",
    }  # fmt: skip
    assert "no engine for the backend cuda" in (controller.results["cuda"].message or "")
    assert controller.results["any"].score == controller.results["cpu"].score == expected(clips)


async def test_the_speed_of_a_machine_with_a_gpu_is_that_of_its_best_engine(tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "VMAFX_BACKEND": "cuda"}
    assert await frames_per_second(tmp_path, Device("nvidia", 1, "NVIDIA L4"), environment) > 0


async def test_an_old_controller_sends_only_clips(
    controller: MemoryController, clips: Path, speed: Path, tmp_path: Path
) -> None:
    controller.old = True
    for number in range(3):
        controller.place_short(clips, f"old-{number}")
    async with agent(controller.address, tmp_path, speed, "--capacity", "1"):
        await eventually(lambda: len(controller.results) == 3, "all are scored")
    assert controller.most_at_once == 1  # the agent never pulls while no slot is free
    assert controller.results["old-0"].score == expected(clips)


async def test_a_machine_that_cannot_score_does_not_register(controller: MemoryController, tmp_path: Path) -> None:
    none = tmp_path / "none.json"
    none.write_text("{}")
    async with agent(
        controller.address, tmp_path / "state", none, variables={"VMAFX_FFMPEG_BIN": "/nowhere"}
    ) as running:
        assert await running.ended() == 1
    assert "this machine cannot score" in running.log[-1]["error"]
    assert controller.received == []
    broken = {"VMAFX_FFMPEG_BIN": "/bin/true", "PATH": os.environ["PATH"]}
    with pytest.raises(NodeFault):
        await frames_per_second(tmp_path, await HostHardware().device("cpu"), broken)


async def test_progress_is_reported_while_a_job_runs(
    controller: MemoryController, clips: Path, speed: Path, tmp_path: Path
) -> None:
    longer = tmp_path / "longer.mkv"
    await asyncio.to_thread(lengthen, clips / "long.mkv", longer)
    controller.place("uid-0", longer, longer, SLOW)
    async with agent(controller.address, tmp_path / "state", speed):
        await eventually(lambda: frame_reports(controller), "progress is reported")
        report = frame_reports(controller)[0]
        assert (report.final, report.job_id, report.name) == (False, "uid-0", "job-uid-0")
        assert report.progress.total_frames == 2000
        assert 0 < report.progress.frames < 2000
        assert report.progress.fps > 0
        controller.placed.clear()  # the next report is rejected
        await eventually(lambda: controller.held() == set(), "the job is stopped")


def frame_reports(controller: MemoryController) -> list[Any]:
    """Reports with scored frames: a worker that has just started has none."""
    return [one for one in controller.calls("ReportResult") if one.final or one.progress.frames]


def lengthen(clip: Path, longer: Path) -> None:
    ffmpeg("-stream_loop", "9", "-i", clip, "-c", "copy", longer)
