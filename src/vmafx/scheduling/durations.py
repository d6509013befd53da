"""How long jobs take, as far as those that ended here tell. What they do not tell is not guessed."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from vmafx.scheduling.terms import Offer, Terms

KEPT = 100  # runs of each kind, the latest
OVERDUE = 2.0  # a run that takes longer than any before is due at any moment; this many times as long, nobody knows


class Kind(NamedTuple):
    """Runs that can be compared: in the same namespace, computed by the same sort of device."""

    namespace: str
    device: str


class Run(NamedTuple):
    """A job that had a node from its placement to its score."""

    kind: Kind
    ended: float
    seconds: float


class Durations:
    """What to expect of a job, by the runs of its kind that ended last."""

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        latest: dict[Kind, list[float]] = defaultdict(list)
        for run in sorted(runs, key=lambda one: -one.ended):
            if len(latest[run.kind]) < KEPT and run.seconds >= 0:
                latest[run.kind].append(run.seconds)
        self._known = {kind: sorted(seconds) for kind, seconds in latest.items() if seconds}
        self._medians = {kind: _median(seconds) for kind, seconds in self._known.items()}

    def whole(self, terms: Terms, offer: Offer) -> float | None:
        """Seconds that a job of these terms will take on this node: the median of what others took."""
        return self._medians.get(kind_of(terms, offer))

    def rest(self, terms: Terms, offer: Offer, so_far: float) -> float | None:
        """Seconds that one which has run `so_far` still takes: what those took that were not over by then either."""
        known = self._known.get(kind_of(terms, offer))
        if known is None:
            return None
        longer = known[bisect_right(known, so_far) :]
        if longer:
            return _median(longer) - so_far
        return 0.0 if so_far <= OVERDUE * known[-1] else None


def kind_of(terms: Terms, offer: Offer) -> Kind:
    """A cpu job is computed by the CPU wherever it runs; any other by what its node has."""
    return Kind(terms.namespace, "cpu" if terms.backend == "cpu" else offer.vendor)


def _median(known: list[float]) -> float:
    """Of sorted numbers; the library's own brings fractions and decimals along, and the time to import them."""
    middle = len(known) // 2
    return known[middle] if len(known) % 2 else (known[middle - 1] + known[middle]) / 2
