"""`vmafx agent` with the real worker, against a controller that can be made to fail in every way."""

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
from vmafx.api.scoring import ScoringOptions
from vmafx.hardware.devices import HostHardware
from vmafx.hardware.speed import frames_per_second
from vmafx.scoring.errors import NodeFault

SLOW = ScoringOptions(threads=1)


def expected(clips: Path) -> float:
    command = [VMAFX, "score", str(clips / "reference.mkv"), str(clips / "distorted.mp4"), "--json", "--no-cache"]
    score: float = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["score"]
    return score


def spooled(state: Path) -> list[str]:
    return [path.name for path in (state / "spool").iterdir()]


async def test_a_score_is_that_of_the_command(
    controller: MemoryController, clips: Path, speed: Path, tmp_path: Path
) -> None:
    controller.place_short(clips)
    controller.place_short(clips, "uid-1")
    flags = ("--capacity", "1", "--namespace", "video", "--label", "rack=a", "--label", "zone=b")
    async with agent(controller.address, tmp_path, speed, *flags) as running:
        await eventually(lambda: len(controller.results) == 2, "both are scored")
        await eventually(lambda: not spooled(tmp_path), "nothing is left to report")
        (said,) = controller.calls("RegisterNode")
        assert (said.name, said.namespace, dict(said.labels)) == ("machine", "video", {"rack": "a", "zone": "b"})
        assert (said.capability.gpu_vendor, said.capability.backends, said.capability.concurrency) == (
            "cpu",
            ["cpu"],
            1,
        )
        assert "core" in said.device
        assert said.fps == json.loads(speed.read_text())["fps"]
        report = next(one for one in controller.calls("ReportResult") if one.final)  # before it, progress of a slow one
        assert (report.final, report.job_id, report.name, report.error) == (True, "uid-0", "job-uid-0", "")
        assert report.score == controller.results["uid-0"].score == expected(clips)
        assert report.features["vmaf"] == controller.results["uid-0"].metrics["vmaf"].mean
        assert list((tmp_path / "work").iterdir()) == []
        running.process.terminate()
        assert await running.ended() == 0


async def test_a_bad_clip_is_told_as_such(
    controller: MemoryController, clips: Path, speed: Path, tmp_path: Path
) -> None:
    controller.place("uid-0", clips / "reference.mkv", clips / "none.mkv")
    controller.place("uid-1", clips / "reference.mkv", clips / "distorted.mp4")
    controller.placed["uid-1"].work = "{nonsense"
    async with agent(controller.address, tmp_path, speed, "--capacity", "2"):
        await eventually(lambda: len(controller.results) == 2, "both are answered")
    assert (controller.results["uid-0"].fault, controller.results["uid-1"].fault) == ("BadInput", "NodeFault")
    assert "VMAFX_WORK cannot be understood" in (controller.results["uid-1"].message or "")
    errors = {one.job_id: one.error for one in controller.calls("ReportResult")}
    assert errors["uid-0"].startswith("BadInput: distorted: there is no file")


async def test_a_worker_that_dies_is_a_failure_of_the_node(
    controller: MemoryController, clips: Path, speed: Path, tmp_path: Path
) -> None:
    controller.place_long(clips)
    async with agent(controller.address, tmp_path, speed) as running:
        await eventually(running.workers, "it works")
        (worker,) = children(running.process.pid)
        os.kill(worker, signal.SIGKILL)
        await eventually(lambda: controller.results, "it is told")
    assert controller.results["uid-0"].fault == "NodeFault"
    assert "signal SIGKILL" in (controller.results["uid-0"].message or "")


async def test_a_worker_that_somebody_stops_is_no_failure(
    controller: MemoryController, clips: Path, speed: Path, tmp_path: Path
) -> None:
    controller.place_long(clips)
    async with agent(controller.address, tmp_path, speed) as running:
        await eventually(lambda: len(ffmpegs(running.process.pid)) == 1, "it scores")
        (worker,) = children(running.process.pid)
        os.kill(worker, signal.SIGTERM)
        await running.wait_for_log("its worker was stopped")
        await eventually(lambda: controller.results, "it is done once more")
        assert controller.results["uid-0"].fault is None
        assert [one["job"] for one in running.log if one["msg"] == "taken"] == ["uid-0", "uid-0"]


async def test_a_finished_score_survives_the_agent(
    controller: MemoryController, clips: Path, speed: Path, tmp_path: Path
) -> None:
    controller.refusals["ReportResult"] = grpc.StatusCode.UNAVAILABLE
    controller.place_short(clips)
    async with agent(controller.address, tmp_path, speed) as first:
        await first.wait_for_log("a result cannot be reported")
        await first.killed()
    (kept,) = spooled(tmp_path)
    assert controller.results == {}
    begun = len(controller.received)
    controller.refusals.clear()
    async with agent(controller.address, tmp_path, speed) as second:
        await eventually(lambda: "uid-0" in controller.results, "the next one reports it")
        await eventually(lambda: not spooled(tmp_path), f"{kept} is gone")
        assert not second.has_logged("taken")  # it was not scored again
    assert controller.results["uid-0"].score == expected(clips)
    pulls = [one.request for one in controller.received[begun:] if one.method == "PullWork"]
    assert all("uid-0" in {job.id for job in one.running_job_ids.jobs} for one in pulls[:1])


async def test_a_killed_agent_takes_its_workers_along_and_is_given_the_job_again(
    controller: MemoryController, clips: Path, speed: Path, tmp_path: Path
) -> None:
    controller.place_long(clips)
    async with agent(controller.address, tmp_path, speed) as first:
        await eventually(lambda: len(ffmpegs(first.process.pid)) == 1, "it scores")
        (worker,), (scorer,) = children(first.process.pid), ffmpegs(first.process.pid)
        await first.killed()
        await eventually(lambda: not read(worker, "cmdline") and not read(scorer, "cmdline"), "both are gone")
        assert list((tmp_path / "work").iterdir()) != []
    controller.placed.clear()
    controller.place_short(clips)
    async with agent(controller.address, tmp_path, speed):
        await eventually(lambda: "uid-0" in controller.results, "it is done by the next one")
        assert list((tmp_path / "work").iterdir()) == []


def ffmpegs(pid: int) -> list[int]:
    return [one for child in children(pid) for one in children(child) if "libvmaf" in read(one, "cmdline")]


async def test_the_controller_is_away_while_a_job_ends(
    controller: MemoryController, clips: Path, speed: Path, tmp_path: Path
) -> None:
    controller.place_long(clips)
    async with agent(controller.address, tmp_path, speed) as running:
        await eventually(running.workers, "it works")
        await controller.stop()
        await running.wait_for_log("scored")
        await running.wait_for_log("a result cannot be reported")
        assert len(spooled(tmp_path)) == 1
        await controller.start()
        await eventually(lambda: "uid-0" in controller.results, "it is reported")
        controller.place_short(clips, "uid-1")
        await eventually(lambda: "uid-1" in controller.results, "and work goes on")
    assert len(controller.calls("RegisterNode")) == 1


async def test_an_answer_that_is_lost_is_asked_for_again(
    controller: MemoryController, clips: Path, speed: Path, tmp_path: Path
) -> None:
    controller.lost.add("ReportResult")
    controller.place_short(clips)
    async with agent(controller.address, tmp_path, speed) as running:
        await running.wait_for_log("a result cannot be reported")
        assert "uid-0" in controller.results
        controller.lost.clear()
        await running.wait_for_log("the result does not count")
        await eventually(lambda: not spooled(tmp_path), "it is forgotten")
        controller.place_short(clips)  # as a controller that has not seen its own result yet
        controller.place_short(clips, "uid-1")
        controller.placed["uid-0"] = controller.placed.pop("uid-0")
        await eventually(lambda: "uid-1" in controller.results, "the other is done")
        pulls = len(controller.calls("PullWork"))
        await eventually(lambda: len(controller.calls("PullWork")) > pulls + 1, "the first was handed out once more")
        assert [one["job"] for one in running.log if one["msg"] == "taken"] == ["uid-0", "uid-1"]


async def test_what_is_not_wanted_is_stopped(
    controller: MemoryController, clips: Path, speed: Path, tmp_path: Path
) -> None:
    controller.place_long(clips)
    async with agent(controller.address, tmp_path, speed, "--capacity", "1") as running:
        await eventually(lambda: len(ffmpegs(running.process.pid)) == 1, "it scores")
        (scorer,) = ffmpegs(running.process.pid)
        controller.place_short(clips, "uid-1")
        controller.end("uid-0")
        await eventually(lambda: "uid-1" in controller.results, "the slot is free at once")
        assert not read(scorer, "cmdline")
        assert list((tmp_path / "work").iterdir()) == []
        assert "uid-0" not in controller.results


async def test_a_session_that_is_forgotten_is_made_anew_and_work_goes_on(
    controller: MemoryController, clips: Path, speed: Path, tmp_path: Path
) -> None:
    controller.place_long(clips)
    async with agent(controller.address, tmp_path, speed) as running:
        await eventually(running.workers, "it works")
        controller.sessions.clear()
        controller.change()
        await eventually(lambda: len(controller.calls("RegisterNode")) == 2, "it registers again")
        await eventually(lambda: controller.held() == {"uid-0"}, "it still has its job")
        await eventually(lambda: "uid-0" in controller.results, "which it does")
        assert len([one for one in running.log if one["msg"] == "taken"]) == 1


async def test_without_work_it_says_that_it_goes(controller: MemoryController, speed: Path, tmp_path: Path) -> None:
    """Else its node would get jobs until its silence is noticed."""
    async with agent(controller.address, tmp_path, speed) as running:
        await eventually(lambda: controller.calls("Heartbeat"), "it is there")
        assert not controller.calls("Heartbeat")[-1].draining
        running.process.terminate()
        assert await running.ended() == 0
    assert controller.calls("Heartbeat")[-1].draining


async def test_drained_it_finishes_what_it_has(
    controller: MemoryController, clips: Path, speed: Path, tmp_path: Path
) -> None:
    controller.place_long(clips)
    async with agent(controller.address, tmp_path, speed, "--capacity", "2", "--drain-seconds", "600") as running:
        await eventually(running.workers, "it works")
        running.process.terminate()
        await running.wait_for_log("draining")
        controller.place_short(clips, "uid-1")
        assert await running.ended() == 0
    assert set(controller.results) == {"uid-0"}


@pytest.mark.parametrize("seconds", ["0", "60"])
async def test_told_twice_or_without_time_it_stops_at_once_and_the_job_is_handed_out_again(
    controller: MemoryController, clips: Path, speed: Path, tmp_path: Path, seconds: str
) -> None:
    controller.place_long(clips)
    async with agent(controller.address, tmp_path, speed, "--drain-seconds", seconds) as running:
        await eventually(running.workers, "it works")
        running.process.terminate()
        await running.wait_for_log("draining")
        if seconds == "60":
            running.process.terminate()
        assert await running.ended() == 0
        assert running.has_logged("left unfinished")
    assert controller.results == {}
    assert spooled(tmp_path) == []
    assert list((tmp_path / "work").iterdir()) == []


async def test_what_cannot_be_reported_before_it_ends_is_kept(
    controller: MemoryController, clips: Path, speed: Path, tmp_path: Path
) -> None:
    controller.refusals["ReportResult"] = grpc.StatusCode.INTERNAL
    controller.place_short(clips)
    async with agent(controller.address, tmp_path, speed, "--drain-seconds", "1") as running:
        await running.wait_for_log("a result cannot be reported")
        running.process.terminate()
        assert await running.ended() == 0
        assert running.has_logged("not reported; the next start")
    assert len(spooled(tmp_path)) == 1


async def test_an_old_controller_hands_out_clips_and_nothing_more(
    controller: MemoryController, clips: Path, speed: Path, tmp_path: Path
) -> None:
    controller.old = True
    for number in range(3):
        controller.place_short(clips, f"old-{number}")
    async with agent(controller.address, tmp_path, speed, "--capacity", "1"):
        await eventually(lambda: len(controller.results) == 3, "all are done")
    assert controller.most_at_once == 1  # it is never asked while there is no slot free
    assert controller.results["old-0"].score == expected(clips)


async def test_a_machine_that_cannot_score_takes_no_jobs(controller: MemoryController, tmp_path: Path) -> None:
    none = tmp_path / "none.json"
    none.write_text("{}")
    async with agent(
        controller.address, tmp_path / "state", none, variables={"VMAFX_FFMPEG_BIN": "/nowhere"}
    ) as running:
        assert await running.ended() == 1
    assert "this machine cannot score" in running.log[-1]["why"]
    assert controller.received == []
    broken = {"VMAFX_FFMPEG_BIN": "/bin/true", "PATH": os.environ["PATH"]}
    with pytest.raises(NodeFault):
        await frames_per_second(tmp_path, await HostHardware().device("cpu"), broken)


async def test_progress_is_told_while_a_job_runs(
    controller: MemoryController, clips: Path, speed: Path, tmp_path: Path
) -> None:
    longer = tmp_path / "longer.mkv"
    await asyncio.to_thread(lengthen, clips / "long.mkv", longer)
    controller.place("uid-0", longer, longer, SLOW)
    async with agent(controller.address, tmp_path / "state", speed):
        await eventually(lambda: frames_told(controller), "progress is told")
        said = frames_told(controller)[0]
        assert (said.final, said.job_id, said.name) == (False, "uid-0", "job-uid-0")
        assert said.progress.total_frames == 2000
        assert 0 < said.progress.frames < 2000
        assert said.progress.fps > 0
        controller.placed.clear()  # the next is told that it does not count
        await eventually(lambda: controller.held() == set(), "and it is stopped")


def frames_told(controller: MemoryController) -> list[Any]:
    """Progress that says something: a worker that has only just begun has nothing to tell."""
    return [one for one in controller.calls("ReportResult") if one.final or one.progress.frames]


def lengthen(clip: Path, longer: Path) -> None:
    ffmpeg("-stream_loop", "9", "-i", clip, "-c", "copy", longer)
