"""Jobs as the wire has them. Pure."""

from datetime import datetime

import msgspec

from vmafx.api.job import JobView, VmafxJob
from vmafx.api.meta import Condition
from vmafx.jobs.state import attempt_spec
from vmafx.wire import controller_pb2 as wire

STATES = {"Pending": wire.PENDING, "Running": wire.RUNNING, "Succeeded": wire.COMPLETED, "Failed": wire.FAILED}


def job_message(job: VmafxJob, called: str = "") -> wire.Job:
    """The whole of a job; `called`: as the caller called it, which is what they look for in the answer."""
    meta, spec, status = job.metadata, job.spec, job.status
    failed = _failure(job)
    waits = next((one for one in status.conditions if one.type == "Scheduled" and one.status == "False"), None)
    said = failed or (waits if status.phase == "Pending" else None)
    message = wire.Job(
        id=called or meta.uid,
        status=wire.CANCELLED if is_cancelled(job) else STATES[status.phase],
        scoring=wire.ScoringParams(
            reference=spec.reference, distorted=spec.distorted, model=spec.model, backend=spec.backend or ""
        ),
        assigned_node=status.assignedNode or "",
        error=(status.message or "") if status.phase == "Failed" else "",
        created_at=_seconds(meta.creationTimestamp),
        updated_at=_seconds(_changed(job)),
        final_score=status.score or 0.0,
        namespace=meta.namespace,
        name=meta.name,
        features={name: one.mean for name, one in status.metrics.items() if one.mean is not None},
        reason=said.reason if said is not None else "",
    )
    if status.progress is not None:
        so_far = status.progress
        message.progress.CopyFrom(wire.Progress(frames=so_far.frames, total_frames=so_far.totalFrames, fps=so_far.fps))
    return message


def is_cancelled(job: VmafxJob) -> bool:
    """Whether it ended because somebody cancelled it; Kubernetes shows that as a failure with this reason."""
    failed = _failure(job)
    return failed is not None and failed.reason == "Cancelled"


def work_message(job: JobView) -> wire.Job:
    """An attempt, as an agent gets it."""
    spec, attempt = job.spec, job.status.controllerJobID or ""
    work = msgspec.structs.replace(attempt_spec(job, job.status.attempts - 1), id=attempt)
    return wire.Job(
        id=attempt,
        status=wire.RUNNING,
        scoring=wire.ScoringParams(
            reference=spec.reference, distorted=spec.distorted, model=spec.model, backend=spec.backend or ""
        ),
        assigned_node=job.status.assignedNode or "",
        created_at=_seconds(job.metadata.creationTimestamp),
        updated_at=_seconds(job.status.startedAt),
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        work=msgspec.json.encode(work).decode(),
    )


def _failure(job: VmafxJob) -> Condition | None:
    return next((one for one in job.status.conditions if one.type == "Failed" and one.status == "True"), None)


def _changed(job: VmafxJob) -> datetime | None:
    status = job.status
    times = [job.metadata.creationTimestamp, status.startedAt, status.finishedAt]
    times += [one.lastTransitionTime for one in status.conditions]
    return max((one for one in times if one is not None), default=None)


def _seconds(when: datetime | None) -> int:
    return int(when.timestamp()) if when is not None else 0
