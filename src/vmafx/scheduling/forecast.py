"""The position of a waiting job, when it will start, and when it will be done.

The times come from the scheduler itself, run ahead: jobs that run end when they are expected to, and each free slot is
given away as it would be. Where a duration is not known, neither is what depends on it: that is left out, not guessed.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from vmafx.scheduling.scheduler import Scheduler
from vmafx.scheduling.terms import Name, Offer, Order, Request, Terms, Waiting

Lasting = Callable[[Terms, Offer], float | None]  # seconds that a job takes on a node; None: not known


class Waiter(msgspec.Struct, frozen=True):
    """A job without a node. `after`: seconds until it may be given one; None: until somebody lets it."""

    request: Request
    after: float | None = 0.0


class Runner(msgspec.Struct, frozen=True):
    """A job with a node. `left`: seconds until it is expected to end; None: not known."""

    job: Name
    node: Name
    left: float | None = None


class Start(NamedTuple):
    """A job is given a node, so many seconds from now, and done then if it is known how long it takes."""

    job: Name
    node: Name
    starts: float
    ends: float | None


class Outlook(msgspec.Struct, frozen=True):
    """What a waiting job may expect. `why`: what it waits for; None if a slot is free for it, or if it is held back.

    `position` is None for a job that is held back, or that no node takes at present.
    """

    position: int | None = None
    why: Waiting | None = None
    start: Start | None = None


def forecast(
    waiters: Sequence[Waiter], runners: Iterable[Runner], offers: Sequence[Offer], lasting: Lasting
) -> dict[Name, Outlook]:
    """The outlook of every waiting job: namespace by namespace, by position, and last the jobs that have none."""
    ahead = Ahead(waiters, runners, offers, lasting)
    starts = {start.job: start for start in ahead.starts()}
    numbered = positions(waiters, offers)

    def listed(waiter: Waiter) -> tuple[str, bool, Order]:
        request = waiter.request
        return request.job.namespace, request.job not in numbered, request.order()

    jobs = [waiter.request.job for waiter in sorted(waiters, key=listed)]
    return {job: Outlook(numbered.get(job), ahead.why.get(job), starts.get(job)) for job in jobs}


class Ahead:
    """The scheduler, run ahead of time."""

    def __init__(
        self, waiters: Collection[Waiter], runners: Iterable[Runner], offers: Iterable[Offer], lasting: Lasting
    ) -> None:
        self.why: dict[Name, Waiting] = {}  # of those that find no free slot now
        self._scheduler = Scheduler()
        self._offers = {offer.node: offer for offer in offers}
        self._lasting = lasting
        self._requests = {waiter.request.job: waiter.request for waiter in waiters if waiter.after is not None}
        self._later = {waiter.request.job for waiter in waiters if waiter.after}
        self._events: list[tuple[float, Name]] = []  # a job ends; or one of those that come later comes
        for offer in self._offers.values():
            self._scheduler.offer(offer)
        for runner in runners:
            self._scheduler.hold(runner.job, runner.node)
            self._note(runner.left, runner.job)
        for waiter in waiters:
            if waiter.after:
                self._note(waiter.after, waiter.request.job)
            elif waiter.after is not None:
                self._scheduler.wait(waiter.request)

    def starts(self) -> Iterator[Start]:
        """Each start, the soonest first; may be left at any time. A job that is never seen to start is not named."""
        yield from self._place(0.0)
        self.why = {job: why for job in self._requests if (why := self._scheduler.why(job)) is not None}
        while self._events:
            now = self._events[0][0]
            while self._events and self._events[0][0] == now:  # all that happens at once, before anybody gains by it
                self._happen(heapq.heappop(self._events)[1])
            yield from self._place(now)

    def _happen(self, job: Name) -> None:
        if job in self._later:
            self._later.discard(job)
            self._scheduler.wait(self._requests[job])
        else:
            self._scheduler.forget(job)

    def _place(self, now: float) -> Iterator[Start]:
        for job, node in self._scheduler.place():
            lasts = self._lasting(self._requests[job].terms, self._offers[node])
            ends = None if lasts is None else now + max(lasts, 0.0)
            self._note(ends, job)
            yield Start(job, node, now, ends)

    def _note(self, at: float | None, job: Name) -> None:
        if at is not None:
            heapq.heappush(self._events, (max(at, 0.0), job))


def positions(waiters: Iterable[Waiter], offers: Iterable[Offer]) -> dict[Name, int]:
    """The place of each job in the queue of its namespace, counted from 1, by priority and then by age.

    Only jobs that can get a node have one: a job that is held back or that no node takes at present stands in nobody's
    way. Jobs for different nodes share one queue, so that no two have the same number: one that waits for an idle GPU
    starts before others with a lower one.
    """
    there: dict[str, list[Offer]] = defaultdict(list)
    for offer in offers:
        if offer.usable():
            there[offer.node.namespace].append(offer)
    taken: dict[Terms, bool] = {}
    last: Counter[str] = Counter()
    found = {}
    for waiter in sorted(waiters, key=lambda one: one.request.order()):
        terms = waiter.request.terms.alike()
        if terms not in taken:
            taken[terms] = any(offer.fits(terms) for offer in there[terms.namespace])
        if taken[terms] and waiter.after is not None:
            last[terms.namespace] += 1
            found[waiter.request.job] = last[terms.namespace]
    return found
