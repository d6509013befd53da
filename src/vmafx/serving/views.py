"""What clients get about jobs, as JSON."""

from datetime import datetime
from typing import Annotated

import msgspec

from vmafx.api.fields import doc
from vmafx.scoring.result import Progress
from vmafx.serving.job import JobError, ServedJob, State
from vmafx.serving.service import ScoringService


class ServedJobView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job as clients see it. Times are RFC 3339."""

    id: Annotated[str, doc("ID of the job.")]
    state: Annotated[State, doc("queued, running, succeeded, failed or cancelled.")]
    reference: Annotated[str, doc("Name of the reference clip, without credentials.")]
    distorted: Annotated[str, doc("Name of the distorted clip, without credentials.")]
    model: Annotated[str, doc("Model that the clips are scored with.")]
    createdAt: Annotated[datetime, doc("When the request came.")]
    startedAt: Annotated[datetime | None, doc("When its turn came.")] = None
    finishedAt: Annotated[datetime | None, doc("When it ended.")] = None
    position: Annotated[int | None, doc("Number of jobs that come first, while it is queued.")] = None
    expectedStartSeconds: Annotated[float | None, doc("Estimated seconds until its turn, while it is queued.")] = None
    progress: Annotated[Progress | None, doc("Progress, while it runs.")] = None
    score: Annotated[float | None, doc("The score, once it has succeeded.")] = None
    error: Annotated[JobError | None, doc("Why it failed.")] = None
    links: Annotated[dict[str, str], doc("Paths: self, events and cancel; after success, result and page.")] = {}


class ServedJobList(msgspec.Struct, frozen=True, omit_defaults=True):
    """A page of jobs, the newest first."""

    jobs: list[ServedJobView]
    continue_: Annotated[str, doc("`continue` of the request for the next page; absent on the last one.")] = (
        msgspec.field(default="", name="continue")
    )


def job_path(job_id: str) -> str:
    return f"/v1/jobs/{job_id}"


def job_view(job: ServedJob, service: ScoringService) -> ServedJobView:
    record, position, path = job.record, service.position(job), job_path(job.id)
    links = {"self": path, "events": f"{path}/events", "cancel": f"{path}/cancel"}
    if record.result:
        links |= {"result": f"/v1/results/{record.result}", "page": f"/results/{record.result}"}
    return ServedJobView(
        id=job.id,
        state=record.state,
        reference=record.clip_name("reference"),
        distorted=record.clip_name("distorted"),
        model=record.model,
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
