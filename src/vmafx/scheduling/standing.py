"""Where a pending job stands: in the queue, or held back, and by what."""

from datetime import datetime
from typing import Literal, NamedTuple

from vmafx.api.job import JobView
from vmafx.api.meta import Condition

SCHEDULER = "vmafx"
BACKOFF_FIRST, BACKOFF_MOST = 10.0, 300.0
Hindrance = Literal["Cancelled", "Suspended", "Placed", "AwaitingScheduler", "Retrying"]


class Held(NamedTuple):
    """What keeps a job out of the queue, and for how many seconds; None if that is for somebody to say."""

    reason: Hindrance
    message: str
    after: float | None = None


def held(job: JobView, now: datetime) -> Held | None:
    """Nothing, for a job that waits for a node like any other."""
    if job.spec.cancel:
        return Held("Cancelled", "cancelled; the operator is about to end it")
    if job.spec.suspend:
        return Held("Suspended", "suspended; set spec.suspend to false to let it run")
    if job.status.assignedNode:
        return Held("Placed", f"placed on {job.status.assignedNode}; the operator is about to run it there")
    if job.status.controllerJobID or job.spec.schedulerName != SCHEDULER:
        theirs = f"another controller has it, as {job.status.controllerJobID}"
        return Held(
            "AwaitingScheduler",
            theirs if job.status.controllerJobID else f"waits for {job.spec.schedulerName} to place it",
        )
    if (pause := pause_left(job, now)) > 0:
        failed = scheduled(job)
        return Held("Retrying", (failed.message if failed else "") or "tried again in a moment", pause)
    return None


def pause_left(job: JobView, now: datetime) -> float:
    """Seconds until a job that failed is tried again: ten, twenty, forty, at most five minutes after the failure."""
    failed = scheduled(job)
    if not job.status.failures or failed is None or failed.reason != "Retrying":
        return 0.0
    pause = min(BACKOFF_FIRST * 2.0 ** (job.status.failures - 1), BACKOFF_MOST)
    return pause - (now - failed.lastTransitionTime).total_seconds()


def scheduled(job: JobView) -> Condition | None:
    """What the job's status says of its place."""
    return next((one for one in job.status.conditions if one.type == "Scheduled"), None)
