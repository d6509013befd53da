"""The metrics of `vmafx serve`."""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from vmafx.http.errors import Code
from vmafx.meters import Counters, Histograms
from vmafx.serving.job import FINISHED, JobRecord

SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)


class ServingMetrics:
    """Counts jobs and answers."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        jobs = Counters("vmafx_serve_jobs", "Jobs that ended, by state.", ["state"], self.registry)
        self._ended = {state: jobs.labels(state) for state in sorted(FINISHED)}
        self.cached = Counters(
            "vmafx_serve_cached_answers", "Requests answered without a job, because the score was known.", [],
            self.registry,
        ).labels()  # fmt: skip
        refused = Counters(
            "vmafx_serve_refused_requests",
            "Requests refused: the queue was full (RESOURCE_EXHAUSTED), or the server was stopping (UNAVAILABLE).",
            ["code"],
            self.registry,
        )
        codes: tuple[Code, ...] = ("RESOURCE_EXHAUSTED", "UNAVAILABLE")
        self.refused = {code: refused.labels(code) for code in codes}
        self._waited = Histograms(
            "vmafx_serve_queue_seconds", "Time that a job waited.", [], self.registry, SECONDS
        ).labels()
        self._seconds = Histograms(
            "vmafx_serve_job_seconds", "Time from the request to the end of a job.", [], self.registry, SECONDS
        ).labels()

    def ended(self, record: JobRecord) -> None:
        self._ended[record.state].inc()
        if record.finished is not None:
            self._seconds.observe((record.finished - record.created).total_seconds())
        if record.started is not None:
            self._waited.observe((record.started - record.created).total_seconds())

    def observe(self, waiting: Callable[[], int], running: Callable[[], int]) -> None:
        """Export the numbers of jobs that wait and run."""
        self.registry.register(_JobGauges(waiting, running))


class _JobGauges(Collector):
    def __init__(self, waiting: Callable[[], int], running: Callable[[], int]) -> None:
        self._counts = {"queued": waiting, "running": running}

    def collect(self) -> Iterator[Metric]:
        gauge = GaugeMetricFamily("vmafx_serve_unfinished_jobs", "Jobs that wait or run, by state.", labels=["state"])
        for state, count in self._counts.items():
            gauge.add_metric([state], count())
        yield gauge
