"""What is written into a job's status when an attempt is over. Pure."""

from datetime import datetime
from typing import Any

from vmafx.api.job import JobView
from vmafx.jobs.outcomes import Fail, Leaving, Succeed, Suspend, TryAgain
from vmafx.runtime.conditions import MAX_MESSAGE, with_condition

EXCLUDED_MOST = 128


def left(job: JobView, step: Leaving, now: datetime) -> dict[str, Any]:
    """An attempt is over, and maybe the job."""
    match step:
        case Succeed():
            return succeeded(job, step, now)
        case Fail():
            return failed(job, step, now)
        case TryAgain():
            return to_try_again(job, step, now)
        case Suspend():
            return suspended(job, now)


def succeeded(job: JobView, step: Succeed, now: datetime) -> dict[str, Any]:
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


def failed(job: JobView, step: Fail, now: datetime) -> dict[str, Any]:
    return {
        "phase": "Failed",
        "progress": None,
        "finishedAt": now,
        "message": step.message[:MAX_MESSAGE],
        "failures": job.status.failures + (step.reason == "RetriesExhausted"),
        "observedGeneration": job.metadata.generation,
        "conditions": with_condition(job, "Failed", "True", step.reason, step.message, now),
    }


def to_try_again(job: JobView, step: TryAgain, now: datetime) -> dict[str, Any]:
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
            back["excludedNodes"] = [*job.status.excludedNodes, node][-EXCLUDED_MOST:]
    return back


def suspended(job: JobView, now: datetime) -> dict[str, Any]:
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
