"""How many jobs a second the scheduler places, alone: 100,000 jobs on 10,000 nodes of three vendors.

Run by `python bench/placing.py`.
"""

import random
import time

from vmafx.scheduling.scheduler import Scheduler
from vmafx.scheduling.terms import Name, Offer, Request, Terms

JOBS, NODES, GOAL = 100_000, 10_000, 20_000


def main() -> None:
    scheduler, chance = Scheduler(), random.Random(1)  # noqa: S311 - the same jobs every time
    for number in range(NODES):
        vendor = chance.choice(["cpu", "nvidia", "amd"])
        scheduler.offer(Offer(Name("ns", f"node-{number:05}"), vendor, capacity=12, fps=chance.random() * 100))
    for number in range(JOBS):
        terms = Terms("ns", chance.choice([None, "cpu", "cuda", "hip"]))
        job = Name("ns", f"job-{number:06}")
        scheduler.wait(Request(job, terms, created=chance.random() * 1e6, priority=chance.randrange(5)))
    started = time.perf_counter()
    placed = sum(1 for _ in scheduler.place())
    rate = placed / (time.perf_counter() - started)
    print(f"{placed:,} of {JOBS:,} jobs placed on {NODES:,} nodes: {rate:,.0f} a second (goal {GOAL:,})")


if __name__ == "__main__":
    main()
