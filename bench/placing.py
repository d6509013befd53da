"""How many jobs the scheduler places in a second of CPU, and how long it takes to give away a slot as a job ends.

Run by `python bench/placing.py`: 100,000 jobs on 10,000 nodes of three vendors; then 20 nodes, all taken, and jobs that
wait in many lines: by labels that no other job asks for, or by the nodes that they avoid.
"""

import random
import time
from itertools import combinations, islice
from statistics import median

from vmafx.scheduling.requirements import JobRequest, NamespacedName, NodeOffer, Requirements
from vmafx.scheduling.scheduler import Scheduler

JOBS, NODES, GOAL = 100_000, 10_000, 20_000


def place_all() -> None:
    scheduler, chance = Scheduler(), random.Random(1)  # noqa: S311 - the same jobs every time
    for number in range(NODES):
        vendor = chance.choice(["cpu", "nvidia", "amd"])
        scheduler.set_node(
            NodeOffer(NamespacedName("ns", f"node-{number:05}"), vendor, capacity=12, fps=chance.random() * 100)
        )
    for number in range(JOBS):
        terms = Requirements("ns", chance.choice([None, "cpu", "cuda", "hip"]))
        job = NamespacedName("ns", f"job-{number:06}")
        scheduler.enqueue(JobRequest(job, terms, created=chance.random() * 1e6, priority=chance.randrange(5)))
    started = time.process_time()
    placed = sum(1 for _ in scheduler.place())
    rate = placed / (time.process_time() - started)
    print(f"{placed:,} of {JOBS:,} jobs placed on {NODES:,} nodes: {rate:,.0f} a CPU-second (goal {GOAL:,})")


def end_one(kind: str, terms: list[Requirements]) -> None:
    scheduler = Scheduler()
    nodes = [NamespacedName("ns", f"node-{number}") for number in range(20)]
    for node in nodes:
        scheduler.set_node(NodeOffer(node, "nvidia", labels=frozenset({("tier", "a")})))
        scheduler.hold(NamespacedName("ns", f"on-{node.name}"), node)
    for number, asked in enumerate(terms):
        scheduler.enqueue(JobRequest(NamespacedName("ns", f"job-{number}"), asked, float(number)))
    list(scheduler.place())
    took = []
    for node in nodes:
        started = time.process_time()
        scheduler.remove_job(NamespacedName("ns", f"on-{node.name}"))
        list(scheduler.place())
        took.append(time.process_time() - started)
    print(f"{len(terms):>6,} lines by {kind}: a job ends in {median(took) * 1e3:.2f} ms, {max(took) * 1e3:.2f} at most")


def main() -> None:
    place_all()
    for lines in (1_000, 10_000):
        own = [
            Requirements("ns", None, frozenset({("tier", "a"), ("project", str(number))})) for number in range(lines)
        ]
        sets = islice(combinations([f"node-{number}" for number in range(20)], 5), lines)
        end_one("labels of their own", own)
        end_one("nodes they avoid", [Requirements("ns", None, excluded=frozenset(avoided)) for avoided in sets])


if __name__ == "__main__":
    main()
