"""Forecasts for waiting jobs: position in the queue, start and end, from running the scheduler ahead of time."""

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from vmafx.api.job import JobProgress, JobView
from vmafx.jobs.state import age_at, placed_at, queue_gate
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

# Seconds that a job takes on a node; None: not known.
DurationEstimate = Callable[[Requirements, NodeOffer], float | None]


class WaitingJob(msgspec.Struct, frozen=True):
    """A job without a node. `after`: seconds until it enters the queue; None: not by itself."""

    request: JobRequest
    after: float | None = 0.0


class RunningJob(msgspec.Struct, frozen=True):
    """A job with a node. `left`: estimated seconds until it ends; None: not known."""

    job: NamespacedName
    node: NamespacedName
    left: float | None = None


class PredictedStart(NamedTuple):
    """Where a job will start, and in how many seconds it starts and ends; `ends` is None if not known."""

    job: NamespacedName
    node: NamespacedName
    starts: float
    ends: float | None


class JobForecast(msgspec.Struct, frozen=True):
    """The forecast of a waiting job.

    `position` is None for a job that is not in the queue, or that no usable node fits. `cause` is why the job waits;
    None if a slot is free for it, or if it is not in the queue.
    """

    position: int | None = None
    cause: PendingCause | None = None
    start: PredictedStart | None = None


def forecast(
    waiting: Sequence[WaitingJob],
    running: Iterable[RunningJob],
    offers: Sequence[NodeOffer],
    estimate: DurationEstimate,
) -> dict[NamespacedName, JobForecast]:
    """The forecast of every waiting job: by namespace, then by position, then the jobs without one."""
    simulation = SchedulerSimulation(waiting, running, offers, estimate)
    starts = {start.job: start for start in simulation.starts()}
    position_of = positions(waiting, offers)

    def sort_key(waiter: WaitingJob) -> tuple[str, bool, Order]:
        request = waiter.request
        return request.job.namespace, request.job not in position_of, request.order()

    jobs = [waiter.request.job for waiter in sorted(waiting, key=sort_key)]
    return {job: JobForecast(position_of.get(job), simulation.causes.get(job), starts.get(job)) for job in jobs}


class SchedulerSimulation:
    """Runs a scheduler ahead of time, from one end of a job to the next."""

    def __init__(
        self,
        waiting: Collection[WaitingJob],
        running: Iterable[RunningJob],
        offers: Iterable[NodeOffer],
        estimate: DurationEstimate,
    ) -> None:
        self.causes: dict[NamespacedName, PendingCause] = {}  # of the jobs that wait now
        self._scheduler = Scheduler()
        self._offers = {offer.node: offer for offer in offers}
        self._estimate = estimate
        self._requests = {waiter.request.job: waiter.request for waiter in waiting if waiter.after is not None}
        self._not_queued = {waiter.request.job for waiter in waiting if waiter.after}  # jobs that enter the queue later
        self._events: list[tuple[float, NamespacedName]] = []  # a heap: a job ends, or enters the queue
        for offer in self._offers.values():
            self._scheduler.set_node(offer)
        for runner in running:
            self._scheduler.hold(runner.job, runner.node)
            self._add_event(runner.left, runner.job)
        for waiter in waiting:
            if waiter.after:
                self._add_event(waiter.after, waiter.request.job)
            elif waiter.after is not None:
                self._scheduler.enqueue(waiter.request)

    def starts(self) -> Iterator[PredictedStart]:
        """The predicted starts, soonest first. A job whose start cannot be predicted is missing."""
        yield from self._place(0.0)
        self.causes = {
            job: cause for job in self._requests if (cause := self._scheduler.pending_cause(job)) is not None
        }
        while self._events:
            now = self._events[0][0]
            while self._events and self._events[0][0] == now:  # all events of one moment come before its placements
                self._apply_event(heapq.heappop(self._events)[1])
            yield from self._place(now)

    def _apply_event(self, job: NamespacedName) -> None:
        if job in self._not_queued:
            self._not_queued.discard(job)
            self._scheduler.enqueue(self._requests[job])
        else:
            self._scheduler.remove_job(job)

    def _place(self, now: float) -> Iterator[PredictedStart]:
        for job, node in self._scheduler.place():
            seconds = self._estimate(self._requests[job].requirements, self._offers[node])
            ends = None if seconds is None else now + max(seconds, 0.0)
            self._add_event(ends, job)
            yield PredictedStart(job, node, now, ends)

    def _add_event(self, at: float | None, job: NamespacedName) -> None:
        if at is not None:
            heapq.heappush(self._events, (max(at, 0.0), job))


def positions(waiting: Iterable[WaitingJob], offers: Iterable[NodeOffer]) -> dict[NamespacedName, int]:
    """The position of each job in the queue of its namespace, from 1, by priority and then by age.

    Only jobs that can get a node have a position: a job that is not in the queue, or that no usable node fits, delays
    no other. All jobs of a namespace share one queue, so that no two have the same position even if they need different
    nodes: a job that needs an idle GPU may start before jobs ahead of it.
    """
    usable: dict[str, list[NodeOffer]] = defaultdict(list)
    for offer in offers:
        if offer.usable():
            usable[offer.node.namespace].append(offer)
    has_node: dict[Requirements, bool] = {}
    last: Counter[str] = Counter()
    position_of = {}
    for waiter in sorted(waiting, key=lambda waiter: waiter.request.order()):
        requirements = waiter.request.requirements.without_exclusions()
        if requirements not in has_node:
            has_node[requirements] = any(offer.fits(requirements) for offer in usable[requirements.namespace])
        if has_node[requirements] and waiter.after is not None:
            last[requirements.namespace] += 1
            position_of[waiter.request.job] = last[requirements.namespace]
    return position_of


def waiting_job(job: JobView, now: datetime) -> WaitingJob:
    """A job without a node, for a forecast."""
    gate = queue_gate(job, age_at(now))
    return WaitingJob(job_request(job), 0.0 if gate is None else gate.after)


def running_job(
    job: JobView, offer: NodeOffer | None, durations: Durations, now: datetime, progress: JobProgress | None = None
) -> RunningJob:
    """A job with a node, for a forecast: its end is estimated from its progress, if known, else from `durations`."""
    name = NamespacedName(job.metadata.namespace, job.metadata.name)
    node = NamespacedName(name.namespace, job.status.assignedNode or "")
    if progress is not None and progress.totalFrames and progress.fps:
        return RunningJob(name, node, max(progress.totalFrames - progress.frames, 0) / progress.fps)
    if offer is None:
        return RunningJob(name, node)
    started = placed_at(job)
    elapsed = max((now - started).total_seconds(), 0.0) if started else 0.0
    return RunningJob(name, node, durations.remaining(job_request(job).requirements, offer, elapsed))


def job_duration(job: JobView, offer: NodeOffer) -> JobDuration | None:
    """The duration of a finished job on its node, `offer`; None if its status does not show it."""
    started, ended = placed_at(job), job.status.finishedAt
    if started is None or ended is None:
        return None
    kind = job_class(job_request(job).requirements, offer)
    return JobDuration(kind, ended.timestamp(), (ended - started).total_seconds())
