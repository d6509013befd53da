"""Benchmark of the scheduler: placements per CPU second, and the time to reassign a slot when a job ends.

Run by `python bench/placement.py`: 100,000 jobs on 10,000 nodes of three vendors; then 20 full
nodes and waiting jobs with many different requirements: labels used by one job only, or different excluded nodes.
"""

import random
import time
from itertools import combinations, islice
from statistics import median

from vmafx.scheduling.requirements import JobRequest, NamespacedName, NodeOffer, Requirements
from vmafx.scheduling.scheduler import Scheduler

JOBS, NODES, GOAL = 100_000, 10_000, 20_000


def bench_placement() -> None:
    scheduler, chance = Scheduler(), random.Random(1)  # noqa: S311 - fixed seed
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
    print(f"{placed:,} of {JOBS:,} jobs placed on {NODES:,} nodes: {rate:,.0f} per CPU second (goal {GOAL:,})")


def bench_release(kind: str, terms: list[Requirements]) -> None:
    scheduler = Scheduler()
    nodes = [NamespacedName("ns", f"node-{number}") for number in range(20)]
    for node in nodes:
        scheduler.set_node(NodeOffer(node, "nvidia", labels=frozenset({("tier", "a")})))
        scheduler.hold(NamespacedName("ns", f"on-{node.name}"), node)
    for number, requirements in enumerate(terms):
        scheduler.enqueue(JobRequest(NamespacedName("ns", f"job-{number}"), requirements, float(number)))
    list(scheduler.place())
    took = []
    for node in nodes:
        started = time.process_time()
        scheduler.remove_job(NamespacedName("ns", f"on-{node.name}"))
        list(scheduler.place())
        took.append(time.process_time() - started)
    print(
        f"{len(terms):>6,} requirements by {kind}: slot reassigned in {median(took) * 1e3:.2f} ms, "
        f"max {max(took) * 1e3:.2f}"
    )


def main() -> None:
    bench_placement()
    for count in (1_000, 10_000):
        unique_labels = [
            Requirements("ns", None, frozenset({("tier", "a"), ("project", str(number))})) for number in range(count)
        ]
        sets = islice(combinations([f"node-{number}" for number in range(20)], 5), count)
        bench_release("label", unique_labels)
        bench_release("excluded nodes", [Requirements("ns", None, excluded=frozenset(names)) for names in sets])


if __name__ == "__main__":
    main()
