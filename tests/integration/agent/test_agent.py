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

from tests.support.agents import VMAFX, agent, children, read
from tests.support.frontdoor import FrontDoor
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


async def test_a_score_is_that_of_the_command(door: FrontDoor, clips: Path, speed: Path, tmp_path: Path) -> None:
    door.place_short(clips)
    door.place_short(clips, "uid-1")
    flags = ("--capacity", "1", "--namespace", "video", "--label", "rack=a", "--label", "zone=b")
    async with agent(door.address, tmp_path, speed, *flags) as running:
        await eventually(lambda: len(door.results) == 2, "both are scored")
        await eventually(lambda: not spooled(tmp_path), "nothing is left to report")
        (said,) = door.calls("RegisterNode")
        assert (said.name, said.namespace, dict(said.labels)) == ("machine", "video", {"rack": "a", "zone": "b"})
        assert (said.capability.gpu_vendor, said.capability.backends, said.capability.concurrency) == (
            "cpu",
            ["cpu"],
            1,
        )
        assert "core" in said.device
        assert said.fps == json.loads(speed.read_text())["fps"]
        report = next(one for one in door.calls("ReportResult") if one.final)  # before it, progress of a slow one
        assert (report.final, report.job_id, report.name, report.error) == (True, "uid-0", "job-uid-0", "")
        assert report.score == door.results["uid-0"].score == expected(clips)
        assert report.features["vmaf"] == door.results["uid-0"].metrics["vmaf"].mean
        assert list((tmp_path / "work").iterdir()) == []
        running.process.terminate()
        assert await running.ended() == 0


async def test_a_bad_clip_is_told_as_such(door: FrontDoor, clips: Path, speed: Path, tmp_path: Path) -> None:
    door.place("uid-0", clips / "reference.mkv", clips / "none.mkv")
    door.place("uid-1", clips / "reference.mkv", clips / "distorted.mp4")
    door.placed["uid-1"].work = "{nonsense"
    async with agent(door.address, tmp_path, speed, "--capacity", "2"):
        await eventually(lambda: len(door.results) == 2, "both are answered")
    assert (door.results["uid-0"].fault, door.results["uid-1"].fault) == ("BadInput", "NodeFault")
    assert "VMAFX_WORK is invalid" in (door.results["uid-1"].message or "")
    errors = {one.job_id: one.error for one in door.calls("ReportResult")}
    assert errors["uid-0"].startswith("BadInput: distorted: there is no file")


async def test_a_worker_that_dies_is_a_failure_of_the_node(
    door: FrontDoor, clips: Path, speed: Path, tmp_path: Path
) -> None:
    door.place_long(clips)
    async with agent(door.address, tmp_path, speed) as running:
        await eventually(running.workers, "it works")
        (worker,) = children(running.process.pid)
        os.kill(worker, signal.SIGKILL)
        await eventually(lambda: door.results, "it is told")
    assert door.results["uid-0"].fault == "NodeFault"
    assert "signal SIGKILL" in (door.results["uid-0"].message or "")


async def test_a_worker_that_somebody_stops_is_no_failure(
    door: FrontDoor, clips: Path, speed: Path, tmp_path: Path
) -> None:
    door.place_long(clips)
    async with agent(door.address, tmp_path, speed) as running:
        await eventually(lambda: len(ffmpegs(running.process.pid)) == 1, "it scores")
        (worker,) = children(running.process.pid)
        os.kill(worker, signal.SIGTERM)
        await running.says("its worker was stopped")
        await eventually(lambda: door.results, "it is done once more")
        assert door.results["uid-0"].fault is None
        assert [one["job"] for one in running.said if one["msg"] == "taken"] == ["uid-0", "uid-0"]


async def test_a_finished_score_survives_the_agent(door: FrontDoor, clips: Path, speed: Path, tmp_path: Path) -> None:
    door.refusals["ReportResult"] = grpc.StatusCode.UNAVAILABLE
    door.place_short(clips)
    async with agent(door.address, tmp_path, speed) as first:
        await first.says("a result cannot be reported")
        await first.killed()
    (kept,) = spooled(tmp_path)
    assert door.results == {}
    begun = len(door.heard)
    door.refusals.clear()
    async with agent(door.address, tmp_path, speed) as second:
        await eventually(lambda: "uid-0" in door.results, "the next one reports it")
        await eventually(lambda: not spooled(tmp_path), f"{kept} is gone")
        assert not second.has_said("taken")  # it was not scored again
    assert door.results["uid-0"].score == expected(clips)
    pulls = [one.request for one in door.heard[begun:] if one.method == "PullWork"]
    assert all("uid-0" in {job.id for job in one.running_job_ids.jobs} for one in pulls[:1])


async def test_a_killed_agent_takes_its_workers_along_and_is_given_the_job_again(
    door: FrontDoor, clips: Path, speed: Path, tmp_path: Path
) -> None:
    door.place_long(clips)
    async with agent(door.address, tmp_path, speed) as first:
        await eventually(lambda: len(ffmpegs(first.process.pid)) == 1, "it scores")
        (worker,), (scorer,) = children(first.process.pid), ffmpegs(first.process.pid)
        await first.killed()
        await eventually(lambda: not read(worker, "cmdline") and not read(scorer, "cmdline"), "both are gone")
        assert list((tmp_path / "work").iterdir()) != []
    door.placed.clear()
    door.place_short(clips)
    async with agent(door.address, tmp_path, speed):
        await eventually(lambda: "uid-0" in door.results, "it is done by the next one")
        assert list((tmp_path / "work").iterdir()) == []


def ffmpegs(pid: int) -> list[int]:
    return [one for child in children(pid) for one in children(child) if "libvmaf" in read(one, "cmdline")]


async def test_the_controller_is_away_while_a_job_ends(
    door: FrontDoor, clips: Path, speed: Path, tmp_path: Path
) -> None:
    door.place_long(clips)
    async with agent(door.address, tmp_path, speed) as running:
        await eventually(running.workers, "it works")
        await door.stop()
        await running.says("scored")
        await running.says("a result cannot be reported")
        assert len(spooled(tmp_path)) == 1
        await door.start()
        await eventually(lambda: "uid-0" in door.results, "it is reported")
        door.place_short(clips, "uid-1")
        await eventually(lambda: "uid-1" in door.results, "and work goes on")
    assert len(door.calls("RegisterNode")) == 1


async def test_an_answer_that_is_lost_is_asked_for_again(
    door: FrontDoor, clips: Path, speed: Path, tmp_path: Path
) -> None:
    door.lost.add("ReportResult")
    door.place_short(clips)
    async with agent(door.address, tmp_path, speed) as running:
        await running.says("a result cannot be reported")
        assert "uid-0" in door.results
        door.lost.clear()
        await running.says("the result does not count")
        await eventually(lambda: not spooled(tmp_path), "it is forgotten")
        door.place_short(clips)  # as a controller that has not seen its own result yet
        door.place_short(clips, "uid-1")
        door.placed["uid-0"] = door.placed.pop("uid-0")
        await eventually(lambda: "uid-1" in door.results, "the other is done")
        pulls = len(door.calls("PullWork"))
        await eventually(lambda: len(door.calls("PullWork")) > pulls + 1, "the first was handed out once more")
        assert [one["job"] for one in running.said if one["msg"] == "taken"] == ["uid-0", "uid-1"]


async def test_what_is_not_wanted_is_stopped(door: FrontDoor, clips: Path, speed: Path, tmp_path: Path) -> None:
    door.place_long(clips)
    async with agent(door.address, tmp_path, speed, "--capacity", "1") as running:
        await eventually(lambda: len(ffmpegs(running.process.pid)) == 1, "it scores")
        (scorer,) = ffmpegs(running.process.pid)
        door.place_short(clips, "uid-1")
        door.end("uid-0")
        await eventually(lambda: "uid-1" in door.results, "the slot is free at once")
        assert not read(scorer, "cmdline")
        assert list((tmp_path / "work").iterdir()) == []
        assert "uid-0" not in door.results


async def test_a_session_that_is_forgotten_is_made_anew_and_work_goes_on(
    door: FrontDoor, clips: Path, speed: Path, tmp_path: Path
) -> None:
    door.place_long(clips)
    async with agent(door.address, tmp_path, speed) as running:
        await eventually(running.workers, "it works")
        door.sessions.clear()
        door.change()
        await eventually(lambda: len(door.calls("RegisterNode")) == 2, "it registers again")
        await eventually(lambda: door.in_hand() == {"uid-0"}, "it still has its job")
        await eventually(lambda: "uid-0" in door.results, "which it does")
        assert len([one for one in running.said if one["msg"] == "taken"]) == 1


async def test_without_work_it_says_that_it_goes(door: FrontDoor, speed: Path, tmp_path: Path) -> None:
    """Else its node would get jobs until its silence is noticed."""
    async with agent(door.address, tmp_path, speed) as running:
        await eventually(lambda: door.calls("Heartbeat"), "it is there")
        assert not door.calls("Heartbeat")[-1].draining
        running.process.terminate()
        assert await running.ended() == 0
    assert door.calls("Heartbeat")[-1].draining


async def test_drained_it_finishes_what_it_has(door: FrontDoor, clips: Path, speed: Path, tmp_path: Path) -> None:
    door.place_long(clips)
    async with agent(door.address, tmp_path, speed, "--capacity", "2", "--drain-seconds", "600") as running:
        await eventually(running.workers, "it works")
        running.process.terminate()
        await running.says("draining")
        door.place_short(clips, "uid-1")
        assert await running.ended() == 0
    assert set(door.results) == {"uid-0"}


@pytest.mark.parametrize("seconds", ["0", "60"])
async def test_told_twice_or_without_time_it_stops_at_once_and_the_job_is_handed_out_again(
    door: FrontDoor, clips: Path, speed: Path, tmp_path: Path, seconds: str
) -> None:
    door.place_long(clips)
    async with agent(door.address, tmp_path, speed, "--drain-seconds", seconds) as running:
        await eventually(running.workers, "it works")
        running.process.terminate()
        await running.says("draining")
        if seconds == "60":
            running.process.terminate()
        assert await running.ended() == 0
        assert running.has_said("left unfinished")
    assert door.results == {}
    assert spooled(tmp_path) == []
    assert list((tmp_path / "work").iterdir()) == []


async def test_what_cannot_be_reported_before_it_ends_is_kept(
    door: FrontDoor, clips: Path, speed: Path, tmp_path: Path
) -> None:
    door.refusals["ReportResult"] = grpc.StatusCode.INTERNAL
    door.place_short(clips)
    async with agent(door.address, tmp_path, speed, "--drain-seconds", "1") as running:
        await running.says("a result cannot be reported")
        running.process.terminate()
        assert await running.ended() == 0
        assert running.has_said("not reported; the next start")
    assert len(spooled(tmp_path)) == 1


async def test_an_old_controller_hands_out_clips_and_nothing_more(
    door: FrontDoor, clips: Path, speed: Path, tmp_path: Path
) -> None:
    door.old = True
    for number in range(3):
        door.place_short(clips, f"old-{number}")
    async with agent(door.address, tmp_path, speed, "--capacity", "1"):
        await eventually(lambda: len(door.results) == 3, "all are done")
    assert door.most_at_once == 1  # it is never asked while there is no slot free
    assert door.results["old-0"].score == expected(clips)


async def test_a_machine_that_cannot_score_takes_no_jobs(door: FrontDoor, tmp_path: Path) -> None:
    none = tmp_path / "none.json"
    none.write_text("{}")
    async with agent(door.address, tmp_path / "state", none, variables={"VMAFX_FFMPEG_BIN": "/nowhere"}) as running:
        assert await running.ended() == 1
    assert "this machine cannot score" in running.said[-1]["why"]
    assert door.heard == []
    broken = {"VMAFX_FFMPEG_BIN": "/bin/true", "PATH": os.environ["PATH"]}
    with pytest.raises(NodeFault):
        await frames_per_second(tmp_path, await HostHardware().device("cpu"), broken)


async def test_progress_is_told_while_a_job_runs(door: FrontDoor, clips: Path, speed: Path, tmp_path: Path) -> None:
    longer = tmp_path / "longer.mkv"
    await asyncio.to_thread(lengthen, clips / "long.mkv", longer)
    door.place("uid-0", longer, longer, SLOW)
    async with agent(door.address, tmp_path / "state", speed):
        await eventually(lambda: frames_told(door), "progress is told")
        said = frames_told(door)[0]
        assert (said.final, said.job_id, said.name) == (False, "uid-0", "job-uid-0")
        assert said.progress.total_frames == 2000
        assert 0 < said.progress.frames < 2000
        assert said.progress.fps > 0
        door.placed.clear()  # the next is told that it does not count
        await eventually(lambda: door.in_hand() == set(), "and it is stopped")


def frames_told(door: FrontDoor) -> list[Any]:
    """Progress that says something: a worker that has only just begun has nothing to tell."""
    return [one for one in door.calls("ReportResult") if one.final or one.progress.frames]


def lengthen(clip: Path, longer: Path) -> None:
    ffmpeg("-stream_loop", "9", "-i", clip, "-c", "copy", longer)
