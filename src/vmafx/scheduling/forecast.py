"""Forecasts for waiting jobs: position in the queue, start and end, by running the scheduler ahead of time."""

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from vmafx.api.job import JobProgress, JobView
from vmafx.jobs.state import scheduled_condition, scheduling_gate
from vmafx.scheduling.durations import Durations, JobDuration, job_class
from vmafx.scheduling.requirements import (
    JobRequest,
    NamespacedName,
    NodeOffer,
    Order,
    PendingCause,
    Requirements,
    job_request,
)
from vmafx.scheduling.scheduler import Scheduler

DurationEstimate = Callable[
    [Requirements, NodeOffer], float | None
]  # seconds that a job takes on a node; None: not known


class WaitingJob(msgspec.Struct, frozen=True):
    """A job without a node. `after`: seconds until it may be given one; None: until somebody lets it."""

    request: JobRequest
    after: float | None = 0.0


class RunningJob(msgspec.Struct, frozen=True):
    """A job with a node. `left`: seconds until it is expected to end; None: not known."""

    job: NamespacedName
    node: NamespacedName
    left: float | None = None


class PredictedStart(NamedTuple):
    """A job is given a node, so many seconds from now, and done then if it is known how long it takes."""

    job: NamespacedName
    node: NamespacedName
    starts: float
    ends: float | None


class JobForecast(msgspec.Struct, frozen=True):
    """What a waiting job may expect. `cause`: what it waits for; None if a slot is free for it, or if it is held back.

    `position` is None for a job that is held back, or that no node takes at present.
    """

    position: int | None = None
    cause: PendingCause | None = None
    start: PredictedStart | None = None


def forecast(
    waiters: Sequence[WaitingJob], runners: Iterable[RunningJob], offers: Sequence[NodeOffer], lasting: DurationEstimate
) -> dict[NamespacedName, JobForecast]:
    """The outlook of every waiting job: namespace by namespace, by position, and last the jobs that have none."""
    ahead = SchedulerSimulation(waiters, runners, offers, lasting)
    starts = {start.job: start for start in ahead.starts()}
    numbered = positions(waiters, offers)

    def listed(waiter: WaitingJob) -> tuple[str, bool, Order]:
        request = waiter.request
        return request.job.namespace, request.job not in numbered, request.order()

    jobs = [waiter.request.job for waiter in sorted(waiters, key=listed)]
    return {job: JobForecast(numbered.get(job), ahead.why.get(job), starts.get(job)) for job in jobs}


class SchedulerSimulation:
    """The scheduler, run ahead of time."""

    def __init__(
        self,
        waiters: Collection[WaitingJob],
        runners: Iterable[RunningJob],
        offers: Iterable[NodeOffer],
        lasting: DurationEstimate,
    ) -> None:
        self.why: dict[NamespacedName, PendingCause] = {}  # of those that find no free slot now
        self._scheduler = Scheduler()
        self._offers = {offer.node: offer for offer in offers}
        self._lasting = lasting
        self._requests = {waiter.request.job: waiter.request for waiter in waiters if waiter.after is not None}
        self._later = {waiter.request.job for waiter in waiters if waiter.after}
        self._events: list[tuple[float, NamespacedName]] = []  # a job ends; or one of those that come later comes
        for offer in self._offers.values():
            self._scheduler.set_node(offer)
        for runner in runners:
            self._scheduler.hold(runner.job, runner.node)
            self._note(runner.left, runner.job)
        for waiter in waiters:
            if waiter.after:
                self._note(waiter.after, waiter.request.job)
            elif waiter.after is not None:
                self._scheduler.enqueue(waiter.request)

    def starts(self) -> Iterator[PredictedStart]:
        """Each start, the soonest first; may be left at any time. A job that is never seen to start is not named."""
        yield from self._place(0.0)
        self.why = {job: why for job in self._requests if (why := self._scheduler.pending_cause(job)) is not None}
        while self._events:
            now = self._events[0][0]
            while self._events and self._events[0][0] == now:  # all that happens at once, before anybody gains by it
                self._happen(heapq.heappop(self._events)[1])
            yield from self._place(now)

    def _happen(self, job: NamespacedName) -> None:
        if job in self._later:
            self._later.discard(job)
            self._scheduler.enqueue(self._requests[job])
        else:
            self._scheduler.remove_job(job)

    def _place(self, now: float) -> Iterator[PredictedStart]:
        for job, node in self._scheduler.place():
            lasts = self._lasting(self._requests[job].requirements, self._offers[node])
            ends = None if lasts is None else now + max(lasts, 0.0)
            self._note(ends, job)
            yield PredictedStart(job, node, now, ends)

    def _note(self, at: float | None, job: NamespacedName) -> None:
        if at is not None:
            heapq.heappush(self._events, (max(at, 0.0), job))


def positions(waiters: Iterable[WaitingJob], offers: Iterable[NodeOffer]) -> dict[NamespacedName, int]:
    """The place of each job in the queue of its namespace, counted from 1, by priority and then by age.

    Only jobs that can get a node have one: a job that is held back or that no node takes at present stands in nobody's
    way. Jobs for different nodes share one queue, so that no two have the same number: one that waits for an idle GPU
    starts before others with a lower one.
    """
    there: dict[str, list[NodeOffer]] = defaultdict(list)
    for offer in offers:
        if offer.usable():
            there[offer.node.namespace].append(offer)
    taken: dict[Requirements, bool] = {}
    last: Counter[str] = Counter()
    found = {}
    for waiter in sorted(waiters, key=lambda one: one.request.order()):
        terms = waiter.request.requirements.without_exclusions()
        if terms not in taken:
            taken[terms] = any(offer.fits(terms) for offer in there[terms.namespace])
        if taken[terms] and waiter.after is not None:
            last[terms.namespace] += 1
            found[waiter.request.job] = last[terms.namespace]
    return found


def waiting_job(job: JobView, now: datetime) -> WaitingJob:
    """A job without a node."""
    hold = scheduling_gate(job, now)
    return WaitingJob(job_request(job), 0.0 if hold is None else hold.after)


def running_job(
    job: JobView, offer: NodeOffer | None, durations: Durations, now: datetime, progress: JobProgress | None = None
) -> RunningJob:
    """A job with a node: by the frames that it has left where it tells them, else by what others took."""
    name = NamespacedName(job.metadata.namespace, job.metadata.name)
    node = NamespacedName(name.namespace, job.status.assignedNode or "")
    if progress is not None and progress.totalFrames and progress.fps:
        return RunningJob(name, node, max(progress.totalFrames - progress.frames, 0) / progress.fps)
    if offer is None:
        return RunningJob(name, node)
    begun = attempt_start(job)
    so_far = max((now - begun).total_seconds(), 0.0) if begun else 0.0
    return RunningJob(name, node, durations.remaining(job_request(job).requirements, offer, so_far))


def job_duration(job: JobView, offer: NodeOffer) -> JobDuration | None:
    """How long a job had its node, which `offer` is, from its last placement to its end; None if it does not tell."""
    begun, ended = attempt_start(job), job.status.finishedAt
    if begun is None or ended is None:
        return None
    kind = job_class(job_request(job).requirements, offer)
    return JobDuration(kind, ended.timestamp(), (ended - begun).total_seconds())


def attempt_start(job: JobView) -> datetime | None:
    """When it was given the node that it has, or last had; the first start where no condition tells."""
    placed = scheduled_condition(job)
    if placed is not None and placed.status == "True":
        return placed.lastTransitionTime
    return job.status.startedAt
