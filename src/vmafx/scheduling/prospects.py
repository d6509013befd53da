"""Jobs of the API, as the forecast wants them."""

from datetime import datetime

from vmafx.api.job import JobProgress, JobView
from vmafx.jobs.pending import held, scheduled
from vmafx.scheduling.durations import Durations, Run, kind_of
from vmafx.scheduling.forecast import Runner, Waiter
from vmafx.scheduling.reading import request_of
from vmafx.scheduling.terms import Name, Offer


def waiter_of(job: JobView, now: datetime) -> Waiter:
    """A job without a node."""
    hold = held(job, now)
    return Waiter(request_of(job), 0.0 if hold is None else hold.after)


def runner_of(
    job: JobView, offer: Offer | None, durations: Durations, now: datetime, progress: JobProgress | None = None
) -> Runner:
    """A job with a node: by the frames that it has left where it tells them, else by what others took."""
    name = Name(job.metadata.namespace, job.metadata.name)
    node = Name(name.namespace, job.status.assignedNode or "")
    if progress is not None and progress.totalFrames and progress.fps:
        return Runner(name, node, max(progress.totalFrames - progress.frames, 0) / progress.fps)
    if offer is None:
        return Runner(name, node)
    begun = attempt_began(job)
    so_far = max((now - begun).total_seconds(), 0.0) if begun else 0.0
    return Runner(name, node, durations.rest(request_of(job).terms, offer, so_far))


def run_of(job: JobView, offer: Offer) -> Run | None:
    """How long a job had its node, which `offer` is, from its last placement to its end; None if it does not tell."""
    begun, ended = attempt_began(job), job.status.finishedAt
    if begun is None or ended is None:
        return None
    return Run(kind_of(request_of(job).terms, offer), ended.timestamp(), (ended - begun).total_seconds())


def attempt_began(job: JobView) -> datetime | None:
    """When it was given the node that it has, or last had; the first start where no condition tells."""
    placed = scheduled(job)
    if placed is not None and placed.status == "True":
        return placed.lastTransitionTime
    return job.status.startedAt
