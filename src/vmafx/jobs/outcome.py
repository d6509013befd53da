"""How an attempt ends, and the job status that each outcome leads to. Pure."""

from datetime import datetime
from typing import Any, Literal

import msgspec

from vmafx.api.job import JobView
from vmafx.jobs.attempt import AttemptResult
from vmafx.runtime.conditions import MAX_MESSAGE, with_condition

MAX_EXCLUDED_NODES = 128
FailureReason = Literal["Cancelled", "DeadlineExceeded", "RetriesExhausted", "BadInput", "ExternalFailure"]


class Succeed(msgspec.Struct, frozen=True):
    """The job has a score."""

    result: AttemptResult


class Fail(msgspec.Struct, frozen=True):
    """The job ends without a score."""

    reason: FailureReason
    message: str


class Retry(msgspec.Struct, frozen=True):
    """The job returns to the queue. `failed`: the attempt counts as a failure, and its node is avoided."""

    message: str
    failed: bool = True


class Suspend(msgspec.Struct, frozen=True):
    """The attempt is stopped; the job waits until it is no longer suspended."""


Outcome = Succeed | Fail | Retry | Suspend  # the end of an attempt, and maybe of the job


def outcome_of(job: JobView, result: AttemptResult) -> Succeed | Fail | Retry:
    """A score; or bad input, which fails on every node; or a failed attempt."""
    if result.fault is None:
        return Succeed(result)
    if result.fault == "BadInput":
        return Fail("BadInput", result.message or "the worker gave no reason")
    return failed_attempt(job, f"{result.fault}: {result.message}")


def failed_attempt(job: JobView, message: str) -> Fail | Retry:
    """A retry, or the failure of the job once `retryLimit` is reached."""
    if job.status.failures >= job.spec.retryLimit:
        failures = job.status.failures + 1
        return Fail("RetriesExhausted", message if failures == 1 else f"failed {failures} times, last error: {message}")
    return Retry(message)


def deadline_exceeded(job: JobView) -> Fail:
    return Fail("DeadlineExceeded", f"not finished within {job.spec.activeDeadlineSeconds} s of its start")


def status_after(job: JobView, outcome: Outcome, now: datetime) -> dict[str, Any]:
    """The status fields to write."""
    match outcome:
        case Succeed(result):
            return _succeeded_status(job, result, now)
        case Fail():
            return _failed_status(job, outcome, now)
        case Retry():
            return _retry_status(job, outcome, now)
        case Suspend():
            return _suspended_status(job, now)


def _succeeded_status(job: JobView, result: AttemptResult, now: datetime) -> dict[str, Any]:
    # Only agents report progress. It ends at all frames; the last rate stays.
    reported = result.frames and job.status.claimedAt is not None
    status: dict[str, Any] = {
        "phase": "Succeeded",
        "score": result.score,
        "frames": result.frames,
        "metrics": result.metrics,
        "progress": {"frames": result.frames, "totalFrames": result.frames} if reported else None,
        "finishedAt": now,
        "message": None,
        "observedGeneration": job.metadata.generation,
        "conditions": with_condition(job, "Complete", "True", "Scored", f"VMAF {result.score:.3f}", now),
    }
    return status | ({"reportURI": result.reportURI} if result.reportURI else {})


def _failed_status(job: JobView, outcome: Fail, now: datetime) -> dict[str, Any]:
    return {
        "phase": "Failed",
        "progress": None,
        "finishedAt": now,
        "message": outcome.message[:MAX_MESSAGE],
        "failures": job.status.failures + (outcome.reason == "RetriesExhausted"),
        "observedGeneration": job.metadata.generation,
        "conditions": with_condition(job, "Failed", "True", outcome.reason, outcome.message, now),
    }


def _retry_status(job: JobView, outcome: Retry, now: datetime) -> dict[str, Any]:
    """Back to the queue. Only a failure counts against the job and its node; a disruption counts against neither."""
    node = job.status.assignedNode
    status: dict[str, Any] = {
        "phase": "Pending",
        "assignedNode": None,
        "controllerJobID": None,
        "claimedAt": None,
        "progress": None,
        "message": outcome.message[:MAX_MESSAGE],
        "observedGeneration": job.metadata.generation,
        # Each attempt moves its lastTransitionTime, from which the delay before the next one counts.
        "conditions": with_condition(job, "Scheduled", "False", "Retrying", outcome.message, now, restart=True),
    }
    if outcome.failed:
        status["failures"] = job.status.failures + 1
        if node and node not in job.status.excludedNodes:
            status["excludedNodes"] = [*job.status.excludedNodes, node][-MAX_EXCLUDED_NODES:]
    return status


def _suspended_status(job: JobView, now: datetime) -> dict[str, Any]:
    return {
        "phase": "Pending",
        "assignedNode": None,
        "controllerJobID": None,
        "startedAt": None,
        "claimedAt": None,
        "progress": None,
        "message": None,
        "observedGeneration": job.metadata.generation,
        "conditions": with_condition(
            job, "Scheduled", "False", "Suspended", "stopped; set spec.suspend to false to run it again", now
        ),
    }
