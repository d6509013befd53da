"""How long it takes to tell 100,000 waiting jobs their position and when they start, in memory.

Run by `python bench/forecasting.py`. The last fleet is meant to be hard: every job asks for a node of its own label.
"""

import random
import time

from vmafx.scheduling.forecast import RunningJob, WaitingJob, forecast, positions
from vmafx.scheduling.requirements import JobRequest, NamespacedName, NodeOffer, Requirements

JOBS = 100_000


def fleet(nodes: int, capacity: int, labels: int) -> tuple[list[WaitingJob], list[RunningJob], list[NodeOffer]]:
    chance = random.Random(1)  # noqa: S311 - the same jobs every time
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
        began = time.process_time()
        positions(waiters, offers)
        placed = time.process_time()
        seen = forecast(waiters, runners, offers, lambda _terms, _offer: 30.0)
        whole = time.process_time() - placed
        known = sum(one.start is not None for one in seen.values())
        print(
            f"{nodes:>6,} nodes of {capacity}, {labels:>5,} labels: all {whole:5.1f} CPU-s, "
            f"positions alone {placed - began:.2f}; {known:,} of {JOBS:,} told when"
        )


if __name__ == "__main__":
    main()
