"""How an attempt ends, and the job status that each outcome leads to. Pure."""

from datetime import datetime
from typing import Any, Literal

import msgspec

from vmafx.api.job import JobView
from vmafx.jobs.attempt import AttemptResult
from vmafx.runtime.conditions import MAX_MESSAGE, with_condition

FailureReason = Literal["Cancelled", "DeadlineExceeded", "RetriesExhausted", "BadInput", "ExternalFailure"]


class Succeed(msgspec.Struct, frozen=True):
    answer: AttemptResult


class Fail(msgspec.Struct, frozen=True):
    """The end, without a score."""

    reason: FailureReason
    message: str


class Retry(msgspec.Struct, frozen=True):
    """This attempt is over. `failed`: it counts as a failure, and its node is avoided from now on."""

    message: str
    failed: bool = True


class Suspend(msgspec.Struct, frozen=True):
    """Stop the work, and let it wait until it may go on."""


Outcome = Succeed | Fail | Retry | Suspend  # an attempt, and maybe the job, is over


def outcome_of(job: JobView, answer: AttemptResult) -> Succeed | Fail | Retry:
    """What a worker's answer comes to: a score, a clip that no other node can score either, or a node to avoid."""
    if answer.fault is None:
        return Succeed(answer)
    if answer.fault == "BadInput":
        return Fail("BadInput", answer.message or "the worker does not say what is wrong")
    return failed_attempt(job, f"{answer.fault}: {answer.message}")


def failed_attempt(job: JobView, message: str) -> Fail | Retry:
    """An attempt came to nothing: once more, or once too often."""
    if job.status.failures >= job.spec.retryLimit:
        tries = job.status.failures + 1
        return Fail("RetriesExhausted", message if tries == 1 else f"failed {tries} times, at last: {message}")
    return Retry(message)


def deadline_exceeded(job: JobView) -> Fail:
    return Fail("DeadlineExceeded", f"not done within {job.spec.activeDeadlineSeconds} s of its start")


MAX_EXCLUDED_NODES = 128


def status_after(job: JobView, step: Outcome, now: datetime) -> dict[str, Any]:
    """An attempt is over, and maybe the job."""
    match step:
        case Succeed():
            return succeeded_status(job, step, now)
        case Fail():
            return failed_status(job, step, now)
        case Retry():
            return retry_status(job, step, now)
        case Suspend():
            return suspended_status(job, now)


def succeeded_status(job: JobView, step: Succeed, now: datetime) -> dict[str, Any]:
    answer = step.answer
    done: dict[str, Any] = {
        "phase": "Succeeded",
        "score": answer.score,
        "frames": answer.frames,
        "metrics": answer.metrics,
        "progress": _complete(job, answer.frames),
        "finishedAt": now,
        "message": None,
        "observedGeneration": job.metadata.generation,
        "conditions": with_condition(job, "Complete", "True", "Scored", f"VMAF {answer.score:.3f}", now),
    }
    return done | ({"reportURI": answer.reportURI} if answer.reportURI else {})


def _complete(job: JobView, frames: int | None) -> dict[str, Any] | None:
    """All frames, for a job of which an agent told progress; its last rate stays."""
    return {"frames": frames, "totalFrames": frames} if frames and job.status.claimedAt is not None else None


def failed_status(job: JobView, step: Fail, now: datetime) -> dict[str, Any]:
    return {
        "phase": "Failed",
        "progress": None,
        "finishedAt": now,
        "message": step.message[:MAX_MESSAGE],
        "failures": job.status.failures + (step.reason == "RetriesExhausted"),
        "observedGeneration": job.metadata.generation,
        "conditions": with_condition(job, "Failed", "True", step.reason, step.message, now),
    }


def retry_status(job: JobView, step: Retry, now: datetime) -> dict[str, Any]:
    """Back to the queue. A failure is counted, and its node avoided; what the cluster did is neither's fault."""
    node = job.status.assignedNode
    back: dict[str, Any] = {
        "phase": "Pending",
        "assignedNode": None,
        "controllerJobID": None,
        "claimedAt": None,
        "progress": None,
        "message": step.message[:MAX_MESSAGE],
        "observedGeneration": job.metadata.generation,
        # Its time moves with each attempt: the pause before the next one is counted from there.
        "conditions": with_condition(job, "Scheduled", "False", "Retrying", step.message, now, restart=True),
    }
    if step.failed:
        back["failures"] = job.status.failures + 1
        if node and node not in job.status.excludedNodes:
            back["excludedNodes"] = [*job.status.excludedNodes, node][-MAX_EXCLUDED_NODES:]
    return back


def suspended_status(job: JobView, now: datetime) -> dict[str, Any]:
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
            job, "Scheduled", "False", "Suspended", "stopped; it goes on when spec.suspend is false", now
        ),
    }
