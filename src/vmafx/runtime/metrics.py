"""Metrics with controller-runtime's names, labels and buckets, so that its dashboards work unchanged."""

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
    """The registry of a process, and the metrics of its reconcile loops, work queues and leader election."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._queues = _QueueGauges()
        self.registry.register(self._queues)
        loop_labels, queue_labels = ["controller"], ["name", "controller"]

        def counter(name: str, text: str, labels: list[str]) -> Counters:
            return Counters(name, text, labels, self.registry)

        def gauge(name: str, text: str, labels: list[str]) -> Gauges:
            return Gauges(name, text, labels, self.registry)

        def histogram(name: str, text: str, labels: list[str], buckets: tuple[float, ...]) -> Histograms:
            return Histograms(name, text, labels, self.registry, buckets)

        prefix = "controller_runtime_"
        self.reconciles = counter(f"{prefix}reconcile_total", "Reconciliations, by result.", [*loop_labels, "result"])
        self.errors = counter(f"{prefix}reconcile_errors_total", "Reconciliations that failed.", loop_labels)
        self.terminal_errors = counter(
            f"{prefix}terminal_reconcile_errors_total", "Reconciliations that failed and are not retried.", loop_labels
        )
        self.panics = counter(
            f"{prefix}reconcile_panics_total", "Reconciliations that raised an unexpected exception.", loop_labels
        )
        self.timeouts = counter(f"{prefix}reconcile_timeouts_total", "Reconciliations that timed out.", loop_labels)
        self.seconds = histogram(
            f"{prefix}reconcile_time_seconds", "Duration of a reconciliation.", loop_labels, RECONCILE_BUCKETS
        )
        self.workers = gauge(
            f"{prefix}max_concurrent_reconciles", "Maximum number of concurrent reconciliations.", loop_labels
        )
        self.active = gauge(f"{prefix}active_workers", "Reconciliations in progress.", loop_labels)
        self.adds = counter("workqueue_adds_total", "Keys added to the work queue.", queue_labels)
        self.retries = counter("workqueue_retries_total", "Keys requeued with a rate limit.", queue_labels)
        self.queue_seconds = histogram(
            "workqueue_queue_duration_seconds", "Time that a key waits in the work queue.", queue_labels, QUEUE_BUCKETS
        )
        self.work_seconds = histogram(
            "workqueue_work_duration_seconds", "Time to process a key of the work queue.", queue_labels, QUEUE_BUCKETS
        )
        self.leader = gauge("leader_election_master_status", "1 while this process is the leader, else 0.", ["name"])
        lag = gauge("vmafx_event_loop_lag_seconds", "How late the last timer of the event loop fired.", [])
        self.lag = lag.labels()

    def queue(self, name: str) -> "QueueMetrics":
        return QueueMetrics(self, name)

    def reconcile_loop(self, name: str, workers: int) -> "LoopMetrics":
        return LoopMetrics(self, name, workers)

    def watch_queue(self, name: str, depth: Callable[[], int], ages: Callable[[], list[float]]) -> None:
        self._queues.add(name, depth, ages)

    async def measure_lag(self, interval: float = 5.0) -> None:
        """Measure the lag of the event loop every `interval` seconds."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + interval
            await asyncio.sleep(interval)
            self.lag.set(max(0.0, loop.time() - due))


class QueueMetrics:
    """The metrics of one work queue, looked up once."""

    def __init__(self, metrics: Metrics, name: str) -> None:
        self._metrics, self._name = metrics, name
        self.added = metrics.adds.labels(name, name).inc
        self.retried = metrics.retries.labels(name, name).inc
        self.taken = metrics.queue_seconds.labels(name, name).observe
        self.worked = metrics.work_seconds.labels(name, name).observe

    def observe(self, depth: Callable[[], int], ages: Callable[[], list[float]]) -> None:
        """Read the depth of the queue, and the seconds since each key in progress was taken, at every scrape."""
        self._metrics.watch_queue(self._name, depth, ages)


class LoopMetrics:
    """The metrics of one reconcile loop, present from the start at zero."""

    def __init__(self, metrics: Metrics, name: str, workers: int) -> None:
        self.outcomes = {outcome: metrics.reconciles.labels(name, outcome) for outcome in OUTCOMES}
        self.errors = metrics.errors.labels(name)
        self.terminal_errors = metrics.terminal_errors.labels(name)
        self.panics = metrics.panics.labels(name)
        self.timeouts = metrics.timeouts.labels(name)
        self.seconds = metrics.seconds.labels(name)
        self.active = metrics.active.labels(name)
        metrics.workers.labels(name).set(workers)


class _QueueGauges(Collector):
    """The gauges of work queues, computed at a scrape: cheaper than keeping them up to date."""

    def __init__(self) -> None:
        self._queues: list[tuple[str, Callable[[], int], Callable[[], list[float]]]] = []

    def add(self, name: str, depth: Callable[[], int], ages: Callable[[], list[float]]) -> None:
        self._queues.append((name, depth, ages))

    def collect(self) -> Iterator[Metric]:
        labels = ["name", "controller"]
        depths = GaugeMetricFamily("workqueue_depth", "Keys waiting in the work queue.", labels=labels)
        unfinished = GaugeMetricFamily(
            "workqueue_unfinished_work_seconds", "Time spent so far on all keys in progress.", labels=labels
        )
        longest = GaugeMetricFamily(
            "workqueue_longest_running_processor_seconds",
            "Time spent so far on the key that has been in progress longest.",
            labels=labels,
        )
        for name, depth, get_ages in self._queues:
            ages = get_ages()
            depths.add_metric([name, name], depth())
            unfinished.add_metric([name, name], sum(ages))
            longest.add_metric([name, name], max(ages, default=0.0))
        yield from (depths, unfinished, longest)
