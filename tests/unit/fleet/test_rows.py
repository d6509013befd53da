"""The rows of jobs and nodes."""

import pytest

from tests.unit.fleet.objects import condition, job, node, running_job
from vmafx.api.job import JobProgress
from vmafx.fleet.reader import ALL_PHASES, UNFINISHED_PHASES, FleetJob, FleetNode, phase_selector
from vmafx.fleet.rows import job_row, node_row


@pytest.mark.parametrize(
    ("item", "reason", "message"),
    [
        (job("a"), None, None),
        (job("a", conditions=(condition("Scheduled", "NoNodes"),), message="old"), "NoNodes", "a message"),
        (running_job("a", "n", 1), None, None),
        (job("a", phase="Running", progress=JobProgress(3, 9, 1.0)), None, "3 of 9 frames"),
        (job("a", phase="Running", message="starting", progress=JobProgress(3, 0, 1.0)), None, "starting"),
        (job("a", phase="Succeeded", conditions=(condition("Complete", "Scored"),)), "Scored", None),
        (job("a", phase="Failed", message="no", conditions=(condition("Failed", "BadInput"),)), "BadInput", "no"),
    ],
)
def test_a_job_row_has_the_reason_and_message_of_its_phase(
    item: FleetJob, reason: str | None, message: str | None
) -> None:
    row = job_row(item)
    assert (row.reason, row.message) == (reason, message)


@pytest.mark.parametrize(
    ("item", "used", "free", "reason"),
    [
        (node("n", {"capacity": 4}), 1, 3, None),
        (node("n", {"capacity": 1}), 3, 0, None),
        (node("n", {"unschedulable": True, "capacity": 2}), 0, 0, "Cordoned"),
        (node("n", healthy=None), 0, 0, "Unjudged"),
        (node("n", healthy=False), 0, 0, "Unhealthy"),
        (node("n", healthy=False, conditions=(condition("Ready", "HeartbeatStale"),)), 0, 0, "HeartbeatStale"),
        (node("n", {"runtime": "Agent"}), 0, 0, "NoAgent"),
        (node("n", {"runtime": "Agent"}, agentSession="s"), 0, 1, None),
        (node("n", {"runtime": "Agent"}, agentSession="s", draining=True), 0, 0, "Draining"),
        (node("n", {"unschedulable": True, "runtime": "Agent"}, agentSession="s", draining=True), 0, 0, "Draining"),
        (node("n", healthy=False, draining=True, conditions=(condition("Ready", "AgentLost"),)), 0, 0, "AgentLost"),
    ],
)
def test_a_node_row_has_its_free_slots_and_why_it_gets_no_jobs(
    item: FleetNode, used: int, free: int, reason: str | None
) -> None:
    row = node_row(item, used)
    assert (row.free, row.reason) == (free, reason)
    assert (row.message is None) == (reason is None)


def test_a_phase_selector_excludes_the_other_phases() -> None:
    assert phase_selector(ALL_PHASES) == ""
    assert phase_selector(UNFINISHED_PHASES) == "status.phase!=Succeeded,status.phase!=Failed"
