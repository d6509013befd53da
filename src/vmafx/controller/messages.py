"""VmafxJobs as protobuf messages. Pure."""

from collections.abc import Container
from datetime import datetime

import msgspec

from vmafx.api.job import JobView, VmafxJob
from vmafx.api.meta import Condition
from vmafx.api.scoring import ScoringSpec
from vmafx.controller.paths import PATH_FIELDS, path_of, submitted_paths
from vmafx.jobs.state import attempt_spec
from vmafx.wire import controller_pb2 as wire

STATES = {"Pending": wire.PENDING, "Running": wire.RUNNING, "Succeeded": wire.COMPLETED, "Failed": wire.FAILED}
PHASES = {state: phase for phase, state in STATES.items()} | {wire.CANCELLED: "Failed"}


def job_message(job: VmafxJob, job_id: str = "") -> wire.Job:
    """A job for clients. `job_id` is the ID in the request, which may name an attempt; the reply repeats it."""
    meta, status = job.metadata, job.status
    unscheduled = _condition(job, "Scheduled", "False") if status.phase == "Pending" else None
    explanation = _condition(job, "Failed", "True") or unscheduled
    message = wire.Job(
        id=job_id or meta.uid,
        status=wire.CANCELLED if is_cancelled(job) else STATES[status.phase],
        scoring=_scoring(job.spec, submitted_paths(meta.annotations)),
        assigned_node=status.assignedNode or "",
        error=(status.message or "") if status.phase == "Failed" else "",
        created_at=_seconds(meta.creationTimestamp),
        updated_at=_seconds(_last_change(job)),
        final_score=status.score or 0.0,
        namespace=meta.namespace,
        name=meta.name,
        features={name: pooled.mean for name, pooled in status.metrics.items() if pooled.mean is not None},
        reason=explanation.reason if explanation is not None else "",
    )
    if (progress := status.progress) is not None:
        message.progress.CopyFrom(
            wire.Progress(frames=progress.frames, total_frames=progress.totalFrames, fps=progress.fps)
        )
    return message


def is_cancelled(job: VmafxJob) -> bool:
    """Cancellation is a Failed condition with the reason Cancelled."""
    failed = _condition(job, "Failed", "True")
    return failed is not None and failed.reason == "Cancelled"


def work_message(job: JobView, samples_token: str = "", *, old_agent: bool = False) -> wire.Job:
    """The current attempt of a job, for an agent; with a token if its samples are wanted.

    An old agent reads only the fields of the original service, in which files have paths.
    """
    attempt = job.status.controllerJobID or ""
    work = msgspec.structs.replace(attempt_spec(job, job.status.attempts - 1), id=attempt)
    return wire.Job(
        id=attempt,
        status=wire.RUNNING,
        scoring=_scoring(job.spec, PATH_FIELDS if old_agent else ()),
        assigned_node=job.status.assignedNode or "",
        created_at=_seconds(job.metadata.creationTimestamp),
        updated_at=_seconds(job.status.startedAt),
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        work=msgspec.json.encode(work).decode(),
        samples_token=samples_token,
    )


def _scoring(spec: ScoringSpec, paths: Container[str]) -> wire.ScoringParams:
    """The clips and the model, by path in the fields `paths`."""
    values = {name: getattr(spec, name) for name in PATH_FIELDS}
    values = {name: path_of(value) if name in paths else value for name, value in values.items()}
    return wire.ScoringParams(**values, backend=spec.backend or "")


def _condition(job: VmafxJob, kind: str, status: str) -> Condition | None:
    found = (condition for condition in job.status.conditions if (condition.type, condition.status) == (kind, status))
    return next(found, None)


def _last_change(job: VmafxJob) -> datetime | None:
    status = job.status
    times = [job.metadata.creationTimestamp, status.startedAt, status.finishedAt]
    times += [condition.lastTransitionTime for condition in status.conditions]
    return max((time for time in times if time is not None), default=None)


def _seconds(time: datetime | None) -> int:
    return int(time.timestamp()) if time is not None else 0
