"""Status patches for a job that waits, is placed or is mirrored; empty if nothing changes. Pure.

The status at the end of an attempt is in jobs/outcome.py.
"""

from datetime import datetime
from typing import Any, Literal

from vmafx.api.job import JobView
from vmafx.api.node import NodeView
from vmafx.jobs.state import attempt_id, scheduled_condition
from vmafx.operator.job.decide import PLACED
from vmafx.operator.job.steps import MirrorExternal
from vmafx.runtime.conditions import MAX_MESSAGE, has_condition, with_condition


def placed_status(job: JobView, node: NodeView, now: datetime) -> dict[str, Any]:
    """The next attempt, on this node. startedAt stays that of the first attempt: the deadline counts from there."""
    attempt, name = job.status.attempts, node.metadata.name
    # restart: the transition time is that of this placement, also if the job was Running under another scheduler.
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
    """Scheduled=False with this reason."""
    if has_condition(job, "Scheduled", "False", reason, message):
        return {}
    return {"conditions": with_condition(job, "Scheduled", "False", reason, message, now)}


def is_waiting_for(job: JobView, reason: str) -> bool:
    """Whether the job has Scheduled=False with this reason, whatever the message."""
    scheduled = scheduled_condition(job)
    return scheduled is not None and (scheduled.status, scheduled.reason) == ("False", reason)


def message_status(message: str) -> dict[str, Any]:
    return {"message": message[:MAX_MESSAGE] or None}


def mirrored_status(job: JobView, step: MirrorExternal, now: datetime) -> dict[str, Any]:
    """The state that an external controller reports. Its node and job id in the status stay."""
    status: Literal["True", "False"] = "True" if step.phase == "Running" else "False"
    reason = "Placed" if step.phase == "Running" else "AwaitingScheduler"
    if step.phase == job.status.phase and has_condition(job, "Scheduled", status, reason, step.message):
        return {}
    return {
        "phase": step.phase,
        "startedAt": job.status.startedAt or (now if step.phase == "Running" else None),
        "observedGeneration": job.metadata.generation,
        "conditions": with_condition(job, "Scheduled", status, reason, step.message, now),
    }
