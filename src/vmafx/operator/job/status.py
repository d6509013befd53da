"""What is written into a job's status, and nothing that did not change. Pure."""

from datetime import datetime
from typing import Any, Literal

from vmafx.api.job import JobView
from vmafx.api.node import NodeView
from vmafx.jobs.state import attempt_id, scheduled_condition
from vmafx.operator.job.decide import PLACED
from vmafx.operator.job.steps import MirrorForeign
from vmafx.runtime.conditions import MAX_MESSAGE, with_condition
from vmafx.runtime.conditions import has_condition as says_already


def placed_status(job: JobView, node: NodeView, now: datetime) -> dict[str, Any]:
    """The next attempt, on this node. The first start stays what it is: a deadline runs from there."""
    attempt, name = job.status.attempts, node.metadata.name
    # Its time is this placement's, also for a job that was Running before in somebody else's hands.
    placed = with_condition(job, "Scheduled", "True", PLACED[node.spec.runtime], f"on {name}", now, restart=True)
    return {
        "phase": "Running",
        "assignedNode": name,
        "controllerJobID": attempt_id(job, attempt),
        "startedAt": job.status.startedAt or now,
        "attempts": attempt + 1,
        "message": None,
        "observedGeneration": job.metadata.generation,
        "conditions": placed,
    }


def waiting_status(job: JobView, reason: str, message: str, now: datetime) -> dict[str, Any]:
    """Why it waits; empty if its status says so already."""
    if says_already(job, "Scheduled", "False", reason, message):
        return {}
    return {"conditions": with_condition(job, "Scheduled", "False", reason, message, now)}


def has_message(message: str) -> dict[str, Any]:
    return {"message": message[:MAX_MESSAGE] or None}


def has_wait_reason(job: JobView, reason: str) -> bool:
    """Whether its status says so already."""
    said = scheduled_condition(job)
    return said is not None and (said.status, said.reason) == ("False", reason)


def mirrored_status(job: JobView, step: MirrorForeign, now: datetime) -> dict[str, Any]:
    """How it stands with another controller, whose node and name for it stay; empty if its status says so already."""
    status: Literal["True", "False"] = "True" if step.phase == "Running" else "False"
    reason = "Placed" if step.phase == "Running" else "AwaitingScheduler"
    if step.phase == job.status.phase and says_already(job, "Scheduled", status, reason, step.message):
        return {}
    return {
        "phase": step.phase,
        "startedAt": job.status.startedAt or (now if step.phase == "Running" else None),
        "observedGeneration": job.metadata.generation,
        "conditions": with_condition(job, "Scheduled", status, reason, step.message, now),
    }
