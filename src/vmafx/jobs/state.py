"""The state of an unfinished job: its current attempt, and what keeps it out of the queue. Pure."""

from collections.abc import Callable
from datetime import datetime
from typing import Literal, NamedTuple

from vmafx.api.job import JobView
from vmafx.api.meta import Condition
from vmafx.api.scoring import ScoringSpec
from vmafx.backoff import Backoff
from vmafx.jobs.attempt import AttemptSpec, uid_of
from vmafx.kube import ObjectKey
from vmafx.runtime.conditions import find_condition

DEFAULT_SCHEDULER = "vmafx"
FAILURE_BACKOFF = Backoff(10.0, 300.0, spread=0)
DISRUPTION_BACKOFF = Backoff(1.0, 60.0, spread=0)  # whatever disrupted one attempt may disrupt the next
GateReason = Literal["Cancelled", "Suspended", "DeadlineExceeded", "Placed", "AwaitingScheduler", "Retrying"]
Age = Callable[[datetime], float]  # seconds since a time in the status of a job, node or Pod; never negative


def age_at(now: datetime) -> Age:
    """Ages by the wall clock. A time in the future has just been: the clock was set back since it was written."""
    return lambda time: max(0.0, (now - time).total_seconds())


def attempt_id(job: JobView, attempt: int) -> str:
    """The id of an attempt in the status, in specs and in results."""
    return f"{job.metadata.uid}-{attempt}"


def is_external(job: JobView) -> bool:
    """Whether an external controller runs the job: its controllerJobID is not the id of one of its attempts."""
    attempt = job.status.controllerJobID or ""
    return bool(attempt) and uid_of(attempt) != job.metadata.uid


def is_current_attempt(job: JobView, attempt: str, node: ObjectKey) -> bool:
    """Whether the job runs this attempt, on this node."""
    status = job.status
    return (
        status.phase == "Running"
        and status.controllerJobID == attempt
        and (job.metadata.namespace, status.assignedNode) == node
        and job.metadata.deletionTimestamp is None
    )


def attempt_spec(job: JobView, attempt: int) -> AttemptSpec:
    """What a worker gets."""
    scoring = {name: getattr(job.spec, name) for name in ScoringSpec.__struct_fields__}
    return AttemptSpec(**scoring, id=attempt_id(job, attempt))


class QueueGate(NamedTuple):
    """What keeps a pending job out of the queue. `after`: seconds until it opens by itself, or None."""

    reason: GateReason
    message: str
    after: float | None = None


def queue_gate(job: JobView, age: Age) -> QueueGate | None:
    """The gate of a pending job; None if the job is in the queue."""
    if job.spec.cancel:
        return QueueGate("Cancelled", "cancelled; waiting for the operator to end it")
    if job.spec.suspend:
        return QueueGate("Suspended", "suspended; set spec.suspend to false to let it run")
    if (left := deadline_left(job, age)) is not None and left <= 0:
        return QueueGate("DeadlineExceeded", "deadline exceeded; waiting for the operator to end it")
    if job.status.assignedNode:
        return QueueGate("Placed", f"placed on {job.status.assignedNode}; waiting for the operator to start it")
    if is_external(job):
        return QueueGate("AwaitingScheduler", f"an external controller runs it, as {job.status.controllerJobID}")
    if job.spec.schedulerName != DEFAULT_SCHEDULER:
        return QueueGate("AwaitingScheduler", f"waiting for scheduler {job.spec.schedulerName} to place it")
    if (delay := _retry_delay_left(job, age)) > 0:
        scheduled = scheduled_condition(job)
        return QueueGate("Retrying", (scheduled.message if scheduled else "") or "waiting to retry", delay)
    return None


def deadline_left(job: JobView, age: Age) -> float | None:
    """Seconds until the deadline, which counts from the first start and spans all attempts; None without a deadline."""
    if job.spec.activeDeadlineSeconds is None or job.status.startedAt is None:
        return None
    return job.spec.activeDeadlineSeconds - age(job.status.startedAt)


def _retry_delay_left(job: JobView, age: Age) -> float:
    """Seconds until a job may be retried. The delay grows with each failure, and more slowly with each attempt."""
    scheduled = scheduled_condition(job)
    if scheduled is None or scheduled.reason != "Retrying":
        return 0.0
    delay = DISRUPTION_BACKOFF.delay(job.status.attempts)
    if job.status.failures:
        delay = max(delay, FAILURE_BACKOFF.delay(job.status.failures))
    return delay - age(scheduled.lastTransitionTime)


def placed_at(job: JobView) -> datetime | None:
    """When the current or last attempt was placed; the first start if no condition shows it."""
    scheduled = scheduled_condition(job)
    if scheduled is not None and scheduled.status == "True":
        return scheduled.lastTransitionTime
    return job.status.startedAt


def scheduled_condition(job: JobView) -> Condition | None:
    return find_condition(job.status.conditions, "Scheduled")
