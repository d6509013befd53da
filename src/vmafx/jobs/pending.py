"""Where a pending job stands: in the queue, or held back, and by what."""

from datetime import datetime
from typing import Literal, NamedTuple

from vmafx.api.job import JobView
from vmafx.api.meta import Condition

SCHEDULER = "vmafx"
BACKOFF_FIRST, BACKOFF_MOST = 10.0, 300.0  # seconds, after a failure
AGAIN_FIRST, AGAIN_MOST = 1.0, 60.0  # after what was nobody's fault
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
    """Seconds until a job is tried again: ten, twenty, forty, at most five minutes after a failure.

    One whose Pod was taken away waits too, one second and then longer with each attempt, at most a minute: whatever
    takes Pods away may go on doing so.
    """
    said = scheduled(job)
    if said is None or said.reason != "Retrying":
        return 0.0
    pause = _doubled(AGAIN_FIRST, job.status.attempts, AGAIN_MOST)
    if job.status.failures:
        pause = max(pause, _doubled(BACKOFF_FIRST, job.status.failures, BACKOFF_MOST))
    return min(pause, pause - (now - said.lastTransitionTime).total_seconds())  # a clock may have been set back


def _doubled(first: float, times: int, most: float) -> float:
    return min(first * 2.0 ** min(times - 1, 16), most)


def scheduled(job: JobView) -> Condition | None:
    """What the job's status says of its place."""
    return next((one for one in job.status.conditions if one.type == "Scheduled"), None)
