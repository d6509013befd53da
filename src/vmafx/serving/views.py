"""What clients get about jobs, as JSON."""

from datetime import datetime

import msgspec

from vmafx.scoring.result import Progress
from vmafx.serving.job import JobError, ServedJob, State
from vmafx.serving.service import ScoringService


class JobView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job as clients see it. Times are RFC 3339."""

    id: str
    state: State
    reference: str  # names, without credentials
    distorted: str
    model: str
    createdAt: datetime
    startedAt: datetime | None = None
    finishedAt: datetime | None = None
    position: int | None = None  # jobs that come first; while it waits
    expectedStartSeconds: float | None = None  # an estimate
    progress: Progress | None = None  # while it runs
    score: float | None = None
    error: JobError | None = None
    links: dict[str, str] = {}


class JobList(msgspec.Struct, frozen=True, omit_defaults=True):
    """A page of jobs, the newest first."""

    jobs: list[JobView]
    continue_: str = msgspec.field(default="", name="continue")


def job_path(job_id: str) -> str:
    return f"/v1/jobs/{job_id}"


def job_view(job: ServedJob, service: ScoringService) -> JobView:
    record, position, path = job.record, service.position(job), job_path(job.id)
    links = {"self": path, "events": f"{path}/events", "cancel": f"{path}/cancel"}
    if record.result:
        links |= {"result": f"/v1/results/{record.result}", "page": f"/results/{record.result}"}
    return JobView(
        id=job.id,
        state=record.state,
        reference=record.clip_name("reference"),
        distorted=record.clip_name("distorted"),
        model=record.model_name,
        createdAt=record.created,
        startedAt=record.started,
        finishedAt=record.finished,
        position=position,
        expectedStartSeconds=None if position is None else round(service.seconds_until_start(position), 1),
        progress=job.progress,
        score=record.score,
        error=record.error,
        links=links,
    )


def encode(view: object) -> bytes:
    return msgspec.json.encode(view)
