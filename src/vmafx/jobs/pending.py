"""Where a pending job stands: in the queue, or held back, and by what. Pure."""

from datetime import datetime
from typing import Literal, NamedTuple

from vmafx.api.job import JobView
from vmafx.api.meta import Condition
from vmafx.backoff import Backoff
from vmafx.jobs.attempts import is_foreign
from vmafx.runtime.conditions import find_condition

SCHEDULER = "vmafx"
AFTER_FAILURE = Backoff(10.0, 300.0, spread=0)
AFTER_DISRUPTION = Backoff(1.0, 60.0, spread=0)  # whatever took a Pod away may go on doing so
Hindrance = Literal["Cancelled", "Suspended", "DeadlineExceeded", "Placed", "AwaitingScheduler", "Retrying"]


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
    if (left := deadline_left(job, now)) is not None and left <= 0:
        return Held("DeadlineExceeded", "its deadline is over; the operator is about to end it")
    if job.status.assignedNode:
        return Held("Placed", f"placed on {job.status.assignedNode}; the operator is about to run it there")
    if is_foreign(job):
        return Held("AwaitingScheduler", f"another controller has it, as {job.status.controllerJobID}")
    if job.spec.schedulerName != SCHEDULER:
        return Held("AwaitingScheduler", f"waits for {job.spec.schedulerName} to place it")
    if (pause := _pause_left(job, now)) > 0:
        failed = scheduled(job)
        return Held("Retrying", (failed.message if failed else "") or "tried again in a moment", pause)
    return None


def deadline_left(job: JobView, now: datetime) -> float | None:
    """Seconds until the deadline, which runs from the first start over all attempts; None if there is none."""
    if job.spec.activeDeadlineSeconds is None or job.status.startedAt is None:
        return None
    return (job.status.startedAt - now).total_seconds() + job.spec.activeDeadlineSeconds


def _pause_left(job: JobView, now: datetime) -> float:
    """Seconds until a job is tried again, longer after each failure, and a little longer after each attempt."""
    said = scheduled(job)
    if said is None or said.reason != "Retrying":
        return 0.0
    pause = AFTER_DISRUPTION.delay(job.status.attempts)
    if job.status.failures:
        pause = max(pause, AFTER_FAILURE.delay(job.status.failures))
    return min(pause, pause - (now - said.lastTransitionTime).total_seconds())  # a clock may have been set back


def scheduled(job: JobView) -> Condition | None:
    """What the job's status says of its place."""
    return find_condition(job.status.conditions, "Scheduled")
