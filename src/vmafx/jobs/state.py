"""Where an unfinished job stands: its current attempt, and what holds it back from the queue. Pure."""

from datetime import datetime
from typing import Literal, NamedTuple

from vmafx.api.job import JobView
from vmafx.api.meta import Condition
from vmafx.api.scoring import ScoringSpec
from vmafx.backoff import Backoff
from vmafx.jobs.attempt import AttemptSpec
from vmafx.kube import ObjectKey
from vmafx.runtime.conditions import find_condition


def attempt_id(job: JobView, attempt: int) -> str:
    """Its name everywhere: in the status, in what workers are told and in what they answer."""
    return f"{job.metadata.uid}-{attempt}"


def uid_of(attempt: str) -> str:
    """The job's uid in the name of an attempt; empty if it is no such name."""
    uid, _, number = attempt.rpartition("-")
    return uid if number.isdecimal() else ""


def is_external(job: JobView) -> bool:
    """Whether another controller has it: its controllerJobID is none that the operator gives to attempts at it."""
    uid, _, attempt = (job.status.controllerJobID or "").rpartition("-")
    return bool(job.status.controllerJobID) and not (uid == job.metadata.uid and attempt.isdecimal())


def is_current_attempt(job: JobView, attempt: str, node: ObjectKey) -> bool:
    """Whether this attempt is the job's current one, on this node."""
    status = job.status
    return (
        status.phase == "Running"
        and status.controllerJobID == attempt
        and (job.metadata.namespace, status.assignedNode) == node
        and job.metadata.deletionTimestamp is None
    )


def attempt_spec(job: JobView, attempt: int) -> AttemptSpec:
    scoring = {name: getattr(job.spec, name) for name in ScoringSpec.__struct_fields__}
    return AttemptSpec(**scoring, id=attempt_id(job, attempt))


DEFAULT_SCHEDULER = "vmafx"
FAILURE_BACKOFF = Backoff(10.0, 300.0, spread=0)
DISRUPTION_BACKOFF = Backoff(1.0, 60.0, spread=0)  # whatever took a Pod away may go on doing so
HoldReason = Literal["Cancelled", "Suspended", "DeadlineExceeded", "Placed", "AwaitingScheduler", "Retrying"]


class Hold(NamedTuple):
    """What keeps a job out of the queue, and for how many seconds; None if that is for somebody to say."""

    reason: HoldReason
    message: str
    after: float | None = None


def hold_on(job: JobView, now: datetime) -> Hold | None:
    """Nothing, for a job that waits for a node like any other."""
    if job.spec.cancel:
        return Hold("Cancelled", "cancelled; the operator is about to end it")
    if job.spec.suspend:
        return Hold("Suspended", "suspended; set spec.suspend to false to let it run")
    if (left := deadline_left(job, now)) is not None and left <= 0:
        return Hold("DeadlineExceeded", "its deadline is over; the operator is about to end it")
    if job.status.assignedNode:
        return Hold("Placed", f"placed on {job.status.assignedNode}; the operator is about to run it there")
    if is_external(job):
        return Hold("AwaitingScheduler", f"another controller has it, as {job.status.controllerJobID}")
    if job.spec.schedulerName != DEFAULT_SCHEDULER:
        return Hold("AwaitingScheduler", f"waits for {job.spec.schedulerName} to place it")
    if (pause := _pause_left(job, now)) > 0:
        failed = scheduled_condition(job)
        return Hold("Retrying", (failed.message if failed else "") or "tried again in a moment", pause)
    return None


def deadline_left(job: JobView, now: datetime) -> float | None:
    """Seconds until the deadline, which runs from the first start over all attempts; None if there is none."""
    if job.spec.activeDeadlineSeconds is None or job.status.startedAt is None:
        return None
    return (job.status.startedAt - now).total_seconds() + job.spec.activeDeadlineSeconds


def _pause_left(job: JobView, now: datetime) -> float:
    """Seconds until a job is tried again, longer after each failure, and a little longer after each attempt."""
    said = scheduled_condition(job)
    if said is None or said.reason != "Retrying":
        return 0.0
    pause = DISRUPTION_BACKOFF.delay(job.status.attempts)
    if job.status.failures:
        pause = max(pause, FAILURE_BACKOFF.delay(job.status.failures))
    return min(pause, pause - (now - said.lastTransitionTime).total_seconds())  # a clock may have been set back


def scheduled_condition(job: JobView) -> Condition | None:
    """What the job's status says of its place."""
    return find_condition(job.status.conditions, "Scheduled")
