"""How long jobs take, estimated from finished jobs. Without comparable jobs there is no estimate."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from vmafx.scheduling.requirements import NodeOffer, Requirements

MAX_SAMPLES = 100  # per class, the latest
MAX_OVERDUE = 2.0  # a job that has run longer than this many times the longest sample has no estimate


class JobClass(NamedTuple):
    """Jobs whose durations are comparable: same namespace, scored by the same kind of device."""

    namespace: str
    device: str


class JobDuration(NamedTuple):
    """The time of a finished job from its last placement to its end."""

    job_class: JobClass
    ended: float
    seconds: float


class Durations:
    """Estimates from the latest durations of each class."""

    def __init__(self, durations: Iterable[JobDuration] = ()) -> None:
        latest: dict[JobClass, list[float]] = defaultdict(list)
        for duration in sorted(durations, key=lambda duration: -duration.ended):
            samples = latest[duration.job_class]
            if len(samples) < MAX_SAMPLES and duration.seconds >= 0:
                samples.append(duration.seconds)
        self._samples = {job_class: sorted(seconds) for job_class, seconds in latest.items() if seconds}
        self._medians = {job_class: _median(seconds) for job_class, seconds in self._samples.items()}

    def expected(self, requirements: Requirements, offer: NodeOffer) -> float | None:
        """Seconds that such a job takes on this node: the median of its class. None: not known."""
        return self._medians.get(job_class(requirements, offer))

    def remaining(self, requirements: Requirements, offer: NodeOffer, elapsed: float) -> float | None:
        """Seconds until a job that has run for `elapsed` ends: from the samples that took longer. None: not known."""
        samples = self._samples.get(job_class(requirements, offer))
        if samples is None:
            return None
        longer = samples[bisect_right(samples, elapsed) :]
        if longer:
            return _median(longer) - elapsed
        return 0.0 if elapsed <= MAX_OVERDUE * samples[-1] else None


def job_class(requirements: Requirements, offer: NodeOffer) -> JobClass:
    """A cpu job is scored by the CPU on any node, every other job by the device of its node."""
    return JobClass(requirements.namespace, "cpu" if requirements.backend == "cpu" else offer.vendor)


def _median(values: list[float]) -> float:
    """The median of sorted values. `statistics` would import fractions and decimal, which takes time."""
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2
