"""How many are before a waiting job, when it will start, and when it will be done.

The times come from the scheduler itself, run ahead: jobs that run end when they are expected to, and each free slot is
given away as it would be. Where a duration is not known, neither is what depends on it: that is left out, not guessed.
"""

import heapq
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from vmafx.scheduling.scheduler import Scheduler
from vmafx.scheduling.terms import Name, Offer, Request, Terms, Waiting

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
    """What a waiting job may expect. `why`: what it waits for; None if a slot is free for it, or if it is held back."""

    position: int
    why: Waiting | None = None
    start: Start | None = None


def forecast(
    waiters: Sequence[Waiter], runners: Iterable[Runner], offers: Sequence[Offer], lasting: Lasting
) -> dict[Name, Outlook]:
    """The outlook of every waiting job, in the order in which their turn comes."""
    ahead = Ahead(waiters, runners, offers, lasting)
    starts = {start.job: start for start in ahead.starts()}
    return {
        job: Outlook(position, ahead.why.get(job), starts.get(job))
        for job, position in positions(waiters, offers).items()
    }


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
    """Which in turn each job is: one more than the jobs before it in order that compete with it.

    Two compete if one node could take either: one that takes jobs now; for a job that has none such, one that would if
    all were well; for a job that no node fits, jobs of the same terms. A job that is held back is in nobody's way.
    """
    waiting = sorted(waiters, key=lambda one: one.request.order())
    line_of = _lines({one.request.terms for one in waiting}, offers)
    rivals = _rivals(line_of.values())
    ahead = dict.fromkeys(rivals, 0)
    found = {}
    for waiter in waiting:
        line = line_of[waiter.request.terms].number
        found[waiter.request.job] = ahead[line] + 1
        if waiter.after is not None:
            for rival in rivals[line]:
                ahead[rival] += 1
    return found


class Line(NamedTuple):
    """Jobs that compete for the same nodes, each a bit of `nodes`; or for none, on the same terms."""

    number: int
    namespace: str
    nodes: int


def _lines(asked: Iterable[Terms], offers: Iterable[Offer]) -> dict[Terms, Line]:
    """The line in which jobs of these terms stand. A node to be avoided counts: it is used if no other will do."""
    there: dict[str, list[Offer]] = defaultdict(list)
    for offer in offers:
        there[offer.node.namespace].append(offer)
    lines: dict[Terms | tuple[str, int], Line] = {}
    nodes_of: dict[Terms, int] = {}
    found = {}
    for terms in asked:
        alike = terms.alike()
        if alike not in nodes_of:
            fitting = [(1 << bit, one) for bit, one in enumerate(there[alike.namespace]) if one.fits(alike)]
            nodes_of[alike] = sum(bit for bit, one in fitting if one.usable()) or sum(bit for bit, _ in fitting)
        nodes = nodes_of[alike]
        line = Line(len(lines), terms.namespace, nodes)
        found[terms] = lines.setdefault((terms.namespace, nodes) if nodes else alike, line)
    return found


def _rivals(lines: Collection[Line]) -> dict[int, list[int]]:
    """The numbers of the lines with which each competes; its own is one of them."""
    in_namespace: dict[str, set[Line]] = defaultdict(set)
    for line in lines:
        in_namespace[line.namespace].add(line)
    return {
        line.number: [
            other.number for other in in_namespace[line.namespace] if other == line or other.nodes & line.nodes
        ]
        for line in set(lines)
    }
