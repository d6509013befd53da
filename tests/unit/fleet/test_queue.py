"""The queue: positions, reasons, and estimated starts and ends."""

from tests.unit.fleet.objects import NOW, ago, condition, job, node, running_job
from vmafx.api.job import JobSpecView
from vmafx.api.meta import MetaView
from vmafx.fleet.queue import JobQueue, make_queue
from vmafx.fleet.reader import FleetJob
from vmafx.scheduling.durations import JobClass, JobDuration

HISTORY = [JobDuration(JobClass("x", "cpu"), 1.0, 10.0)]


def test_the_queue_has_positions_reasons_and_estimates() -> None:
    jobs = [
        running_job("old", "pool", since=4),
        job("second", age=20),
        job("first", {"priority": 9}, age=5),
        job("suspended", {"suspend": True}),
        job("retrying", failures=1, conditions=(condition("Scheduled", "Retrying", at=ago(3)),), age=30),
        job("gpu", {"backend": "cuda"}),
    ]
    queue = make_queue(jobs, [node("pool")], HISTORY, NOW)
    assert [(row.name, row.position, row.reason, row.startsIn, row.doneIn) for row in queue.jobs] == [
        ("first", 1, "InsufficientCapacity", 6.0, 16.0),
        ("retrying", 2, "Retrying", 16.0, 26.0),
        ("second", 3, "InsufficientCapacity", 26.0, 36.0),
        ("gpu", None, "BackendUnavailable", None, None),
        ("suspended", None, "Suspended", None, None),
    ]
    assert (queue.summary.waiting, queue.summary.held, queue.summary.running) == (5, 2, 1)
    assert (queue.summary.slots, queue.summary.free) == (1, 0)
    assert [row.is_schedulable() for row in queue.jobs] == [True, True, True, False, False]
    without_history = make_queue(jobs, [node("pool")], [], NOW)
    assert {row.startsIn for row in without_history.jobs} == {None}
    cordoned = make_queue(jobs, [node("pool", {"unschedulable": True})], HISTORY, NOW)
    assert {(row.position, row.is_schedulable()) for row in cordoned.jobs} == {(None, False)}  # also when retrying


def test_a_job_that_is_not_placed_on_a_free_slot_hints_at_the_operator() -> None:
    def reason(age: float) -> str:
        return make_queue([job("a", age=age)], [node("pool")], [], NOW).jobs[0].reason

    assert (reason(5), reason(60)) == ("Placing", "NotPlaced")


def test_a_job_placed_by_another_scheduler_uses_a_slot_and_a_deleted_job_does_not() -> None:
    placed = job("placed", {"schedulerName": "other"}, assignedNode="pool")
    deleted = FleetJob(MetaView("deleted", "x", deletionTimestamp=NOW), JobSpecView("s3://b/r", "s3://b/d"))
    queue = make_queue([placed, deleted, job("next")], [node("pool")], HISTORY, NOW)
    assert [(row.name, row.reason, row.startsIn) for row in queue.jobs] == [
        ("next", "InsufficientCapacity", 10.0),
        ("placed", "Placed", None),
    ]


def test_an_empty_fleet_has_an_empty_queue() -> None:
    queue = make_queue([], [], [], NOW)
    assert queue == JobQueue([], queue.summary)
    assert (queue.summary.waiting, queue.summary.running, queue.summary.slots) == (0, 0, 0)
