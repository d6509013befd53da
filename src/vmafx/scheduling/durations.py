"""How long jobs take, as far as those that ended here tell. What they do not tell is not guessed."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from vmafx.scheduling.requirements import NodeOffer, Requirements

MAX_SAMPLES = 100  # runs of each kind, the latest
OVERDUE = 2.0  # a run that takes longer than any before is due at any moment; this many times as long, nobody knows


class JobClass(NamedTuple):
    """Runs that can be compared: in the same namespace, computed by the same sort of device."""

    namespace: str
    device: str


class JobDuration(NamedTuple):
    """A job that had a node from its placement to its score."""

    kind: JobClass
    ended: float
    seconds: float


class Durations:
    """What to expect of a job, by the runs of its kind that ended last."""

    def __init__(self, runs: Iterable[JobDuration] = ()) -> None:
        latest: dict[JobClass, list[float]] = defaultdict(list)
        for run in sorted(runs, key=lambda one: -one.ended):
            if len(latest[run.kind]) < MAX_SAMPLES and run.seconds >= 0:
                latest[run.kind].append(run.seconds)
        self._known = {kind: sorted(seconds) for kind, seconds in latest.items() if seconds}
        self._medians = {kind: _median(seconds) for kind, seconds in self._known.items()}

    def expected(self, terms: Requirements, offer: NodeOffer) -> float | None:
        """Seconds that a job of these terms will take on this node: the median of what others took."""
        return self._medians.get(job_class(terms, offer))

    def remaining(self, terms: Requirements, offer: NodeOffer, so_far: float) -> float | None:
        """Seconds that one which has run `so_far` still takes: what those took that were not over by then either."""
        known = self._known.get(job_class(terms, offer))
        if known is None:
            return None
        longer = known[bisect_right(known, so_far) :]
        if longer:
            return _median(longer) - so_far
        return 0.0 if so_far <= OVERDUE * known[-1] else None


def job_class(terms: Requirements, offer: NodeOffer) -> JobClass:
    """A cpu job is computed by the CPU wherever it runs; any other by what its node has."""
    return JobClass(terms.namespace, "cpu" if terms.backend == "cpu" else offer.vendor)


def _median(known: list[float]) -> float:
    """Of sorted numbers; the library's own brings fractions and decimals along, and the time to import them."""
    middle = len(known) // 2
    return known[middle] if len(known) % 2 else (known[middle - 1] + known[middle]) / 2
