"""Benchmark of the forecast: position and estimated start of 100,000 waiting jobs, in memory.

Run by `python bench/forecast.py`. The last fleet is the hard case: as many different labels as nodes.
"""

import random
import time

from vmafx.scheduling.forecast import RunningJob, WaitingJob, forecast, positions
from vmafx.scheduling.requirements import JobRequest, NamespacedName, NodeOffer, Requirements

JOBS = 100_000


def fleet(nodes: int, capacity: int, labels: int) -> tuple[list[WaitingJob], list[RunningJob], list[NodeOffer]]:
    chance = random.Random(1)  # noqa: S311 - fixed seed
    offers: list[NodeOffer] = []
    runners: list[RunningJob] = []
    waiters: list[WaitingJob] = []
    for number in range(nodes):
        node = NamespacedName("ns", f"node-{number:05}")
        label = frozenset({("label", str(number % labels))})
        offers.append(NodeOffer(node, ("cpu", "nvidia", "amd")[number % 3], capacity, labels=label))
        runners += [
            RunningJob(NamespacedName("ns", f"old-{number}-{slot}"), node, chance.random() * 30)
            for slot in range(capacity)
        ]
    for number in range(JOBS):
        selector = frozenset({("label", str(number % labels))}) if labels > 1 else frozenset[tuple[str, str]]()
        terms = Requirements("ns", None if labels > 1 else chance.choice([None, "cpu", "cuda", "hip"]), selector)
        job = NamespacedName("ns", f"job-{number:06}")
        waiters.append(WaitingJob(JobRequest(job, terms, chance.random() * 1e6, chance.randrange(5))))
    return waiters, runners, offers


def main() -> None:
    for nodes, capacity, labels in ((20, 4, 1), (1_000, 4, 1), (10_000, 4, 1), (100, 4, 100), (1_000, 1, 1_000)):
        waiters, runners, offers = fleet(nodes, capacity, labels)
        started = time.process_time()
        positions(waiters, offers)
        positioned = time.process_time()
        forecasts = forecast(waiters, runners, offers, lambda _terms, _offer: 30.0)
        duration = time.process_time() - positioned
        known = sum(one.start is not None for one in forecasts.values())
        print(
            f"{nodes:>6,} nodes of {capacity}, {labels:>5,} labels: forecast {duration:5.1f} CPU-s, "
            f"positions alone {positioned - started:.2f}; {known:,} of {JOBS:,} have an estimated start"
        )


if __name__ == "__main__":
    main()
