"""Metrics by controller-runtime's names, labels and buckets: its stock dashboards read them unchanged."""

import asyncio
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from vmafx.meters import Counters, Gauges, Histograms

RECONCILE_BUCKETS = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0,
    1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60,
)  # fmt: skip
QUEUE_BUCKETS = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1, 10, 100, 1000)
OUTCOMES = ("success", "requeue", "requeue_after", "error")


class Metrics:
    """All metrics of a process: one registry, handed to those who count."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._queues = _Queues()
        self.registry.register(self._queues)
        one, queue = ["controller"], ["name", "controller"]

        def counter(name: str, text: str, labels: list[str]) -> Counters:
            return Counters(name, text, labels, self.registry)

        def gauge(name: str, text: str, labels: list[str]) -> Gauges:
            return Gauges(name, text, labels, self.registry)

        def histogram(name: str, text: str, labels: list[str], buckets: tuple[float, ...]) -> Histograms:
            return Histograms(name, text, labels, self.registry, buckets)

        prefix = "controller_runtime_"
        self.reconciles = counter(f"{prefix}reconcile_total", "Reconciliations by outcome.", [*one, "result"])
        self.errors = counter(f"{prefix}reconcile_errors_total", "Reconciliations that failed.", one)
        self.terminal_errors = counter(f"{prefix}terminal_reconcile_errors_total", "Failures not tried again.", one)
        self.panics = counter(f"{prefix}reconcile_panics_total", "Failures nobody foresaw.", one)
        self.timeouts = counter(f"{prefix}reconcile_timeouts_total", "Reconciliations that took too long.", one)
        self.seconds = histogram(f"{prefix}reconcile_time_seconds", "Time to reconcile.", one, RECONCILE_BUCKETS)
        self.workers = gauge(f"{prefix}max_concurrent_reconciles", "Workers there are.", one)
        self.active = gauge(f"{prefix}active_workers", "Workers that work.", one)
        self.adds = counter("workqueue_adds_total", "Keys added.", queue)
        self.retries = counter("workqueue_retries_total", "Keys added again after a failure.", queue)
        self.waited = histogram("workqueue_queue_duration_seconds", "Time a key waits.", queue, QUEUE_BUCKETS)
        self.worked = histogram("workqueue_work_duration_seconds", "Time a key is worked on.", queue, QUEUE_BUCKETS)
        self.leader = gauge("leader_election_master_status", "1 while this process leads.", ["name"])
        lag = gauge("vmafx_event_loop_lag_seconds", "How late the event loop was when last looked at.", [])
        self.lag = lag.labels()

    def queue(self, name: str) -> "QueueMetrics":
        return QueueMetrics(self, name)

    def reconcile_loop(self, name: str, workers: int) -> "LoopMetrics":
        return LoopMetrics(self, name, workers)

    def watch_queue(self, name: str, depth: Callable[[], int], ages: Callable[[], list[float]]) -> None:
        self._queues.add(name, depth, ages)

    async def measure_lag(self, every: float = 5.0) -> None:
        """Look now and then how late a wake-up comes."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + every
            await asyncio.sleep(every)
            self.lag.set(max(0.0, loop.time() - due))


class QueueMetrics:
    """The counters of one queue, looked up once."""

    def __init__(self, metrics: Metrics, name: str) -> None:
        self._metrics, self._name = metrics, name
        self.added = metrics.adds.labels(name, name).inc
        self.retried = metrics.retries.labels(name, name).inc
        self.taken = metrics.waited.labels(name, name).observe
        self.worked = metrics.worked.labels(name, name).observe

    def observe(self, depth: Callable[[], int], ages: Callable[[], list[float]]) -> None:
        """Where to look for how long the queue is, and for how long each key has been worked on."""
        self._metrics.watch_queue(self._name, depth, ages)


class LoopMetrics:
    """The counters of one reconcile loop, all there from the start at zero."""

    def __init__(self, metrics: Metrics, name: str, workers: int) -> None:
        self.outcomes = {outcome: metrics.reconciles.labels(name, outcome) for outcome in OUTCOMES}
        self.errors = metrics.errors.labels(name)
        self.terminal_errors = metrics.terminal_errors.labels(name)
        self.panics = metrics.panics.labels(name)
        self.timeouts = metrics.timeouts.labels(name)
        self.seconds = metrics.seconds.labels(name)
        self.active = metrics.active.labels(name)
        metrics.workers.labels(name).set(workers)


class _Queues(Collector):
    """Gauges of queues that are cheaper to compute when asked than to keep."""

    def __init__(self) -> None:
        self._queues: list[tuple[str, Callable[[], int], Callable[[], list[float]]]] = []

    def add(self, name: str, depth: Callable[[], int], ages: Callable[[], list[float]]) -> None:
        self._queues.append((name, depth, ages))

    def collect(self) -> Iterator[Metric]:
        labels = ["name", "controller"]
        depths = GaugeMetricFamily("workqueue_depth", "Keys that wait.", labels=labels)
        unfinished = GaugeMetricFamily("workqueue_unfinished_work_seconds", "Work in hand, in all.", labels=labels)
        longest = GaugeMetricFamily(
            "workqueue_longest_running_processor_seconds", "Oldest work in hand.", labels=labels
        )
        for name, depth, ages_now in self._queues:
            ages = ages_now()
            depths.add_metric([name, name], depth())
            unfinished.add_metric([name, name], sum(ages))
            longest.add_metric([name, name], max(ages, default=0.0))
        yield from (depths, unfinished, longest)
