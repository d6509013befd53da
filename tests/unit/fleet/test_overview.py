"""The overview of the fleet: nodes, running and ended jobs, throughput."""

from datetime import timedelta
from typing import Any

from tests.unit.fleet.objects import NOW, ago, condition, job, node, running_job
from vmafx.api.job import JobProgress
from vmafx.fleet.overview import MAX_REMEMBERED, EndedJobs, FleetOverview, make_overview, sort_overview
from vmafx.fleet.queue import make_queue
from vmafx.fleet.reader import FleetJob, FleetNode
from vmafx.kube import key_of
from vmafx.runtime.store import ObjectChange


def ended_job(name: str, seconds_ago: float, phase: Any = "Succeeded", **status: Any) -> FleetJob:
    times = {"startedAt": ago(seconds_ago + 10), "finishedAt": ago(seconds_ago)}
    return job(name, phase=phase, **({"score": 91.25, "frames": 120} | times | status))


def job_with_progress(name: str, on: str, frames: int, total: int, fps: float) -> FleetJob:
    placed = condition("Scheduled", "Placed", status="True", at=ago(8))
    progress = JobProgress(frames, total, fps)
    return job(name, phase="Running", assignedNode=on, attempts=2, conditions=(placed,), progress=progress)


def ended_jobs(*jobs: FleetJob, whole: bool = True) -> EndedJobs:
    ended = EndedJobs()
    ended.load(jobs, NOW, whole=whole)
    return ended


def overview_of(jobs: list[FleetJob], nodes: list[FleetNode], ended: EndedJobs | None = None) -> FleetOverview:
    queue = make_queue(jobs, nodes, [], NOW)
    return make_overview("https://host:6443", "x", NOW, nodes, jobs, queue, ended or EndedJobs())


FLEET = overview_of(
    [
        job_with_progress("half", "fast", 60, 120, 80.0),
        running_job("quiet", "slow", 30),
        job("next"),
        job("later", age=5),
    ],
    [node("fast", throughput=300.0, detectedDevice="A100"), node("slow", {"capacity": 2, "unschedulable": True})],
    ended_jobs(ended_job("good", 5), ended_job("bad", 8, "Failed", score=None, message="no such clip")),
)


def test_an_overview_has_the_jobs_of_each_node_and_their_speed() -> None:
    assert FLEET.phases == {"Pending": 2, "Running": 2, "Succeeded": 1, "Failed": 1}
    assert (FLEET.slots, FLEET.used, FLEET.free) == (3, 2, 0)
    half, quiet = FLEET.running
    assert (half.node, half.attempt, half.done, half.fps, half.elapsed) == ("fast", 2, 0.5, 80.0, 8.0)
    assert (quiet.done, quiet.fps, quiet.elapsed) == (None, None, 30.0)
    assert [(row.name, [job.name for job in row.jobs]) for row in FLEET.nodes] == [
        ("fast", ["half"]), ("slow", ["quiet"]),
    ]  # fmt: skip
    assert [row.name for row in FLEET.queue] == ["next", "later"]
    assert [row.name for row in FLEET.ended] == ["good", "bad"]
    assert FLEET.fps == 80.0  # reported by a running job, so not estimated from ended jobs
    assert FLEET.jobsPerSecond == round(2 / 60, 3)


def test_throughput_is_measured_over_the_last_minute() -> None:
    ended = ended_jobs(ended_job("now", 1, frames=600), ended_job("old", 61), ended_job("bad", 2, "Failed", frames=9))
    assert (ended.throughput(NOW).jobs, ended.throughput(NOW).frames) == (2 / 60, 10.0)
    assert overview_of([], [], ended).fps == 10.0
    incomplete = ended_jobs(ended_job("before", 1), whole=False)
    assert incomplete.throughput(NOW).jobs is None
    incomplete.on_change(ObjectChange(key_of(ended_job("after", -5)), None, ended_job("after", -5)))
    assert incomplete.throughput(NOW + timedelta(seconds=10)).jobs == 1 / 10


def test_an_ended_job_is_counted_once_until_it_is_deleted() -> None:
    ended, item = ended_jobs(), ended_job("a", 1)
    for _ in range(2):
        ended.on_change(ObjectChange(key_of(item), None, item))
    ended.on_change(ObjectChange(key_of(item), None, job("b")))
    assert ended.phases() == {"Succeeded": 1, "Failed": 0}
    ended.on_change(ObjectChange(key_of(item), item, None))
    assert ended.phases() == {"Succeeded": 0, "Failed": 0}
    assert ended.whole


def test_the_oldest_ended_jobs_are_dropped_above_the_limit() -> None:
    ended = ended_jobs(*(ended_job(f"job-{number}", 1) for number in range(MAX_REMEMBERED + 1)))
    assert (ended.phases()["Succeeded"], ended.whole) == (MAX_REMEMBERED, False)


def test_an_overview_is_sorted_by_name_load_or_speed() -> None:
    jobs = [
        job_with_progress("a", "m", 1, 9, 5.0),
        job_with_progress("b", "n", 1, 9, 7.0),
        running_job("c", "n", 99),
    ]
    overview = overview_of(jobs, [node("m", {"capacity": 9}, throughput=9.0), node("n", {"capacity": 2})])

    def names(sorting: Any) -> tuple[list[str], list[str]]:
        result = sort_overview(overview, sorting)
        return [row.name for row in result.nodes], [row.name for row in result.running]

    assert names("name") == (["m", "n"], ["a", "b", "c"])
    assert names("busy") == (["n", "m"], ["c", "a", "b"])
    assert names("fps") == (["m", "n"], ["b", "a", "c"])
