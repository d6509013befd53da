"""The metrics of `vmafx mcp`."""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from vmafx.mcp.job import FINISHED, McpJobRecord
from vmafx.meters import Counters

OUTCOMES = ("ok", "error", "cancelled")


class McpMetrics:
    """Counts calls of tools and jobs."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        jobs = Counters("vmafx_mcp_jobs", "Jobs that ended, by phase.", ["phase"], self.registry)
        self._ended = {phase: jobs.labels(phase) for phase in sorted(FINISHED)}
        self._calls = Counters(
            "vmafx_mcp_tool_calls", "Calls of tools, by outcome: ok, error or cancelled.", ["tool", "outcome"],
            self.registry,
        )  # fmt: skip

    def declare(self, tools: Iterator[str]) -> None:
        """Each counter is present from the start, at zero."""
        for tool in tools:
            for outcome in OUTCOMES:
                self._calls.labels(tool, outcome)

    def called(self, tool: str, outcome: str) -> None:
        self._calls.labels(tool, outcome).inc()

    def ended(self, record: McpJobRecord) -> None:
        self._ended[record.phase].inc()

    def observe(self, waiting: Callable[[], int], running: Callable[[], int]) -> None:
        """Export the numbers of jobs that wait and run."""
        self.registry.register(_Gauges("vmafx_mcp_unfinished_jobs", "Jobs that wait or run, by phase.", "phase",
                                       {"Pending": waiting, "Running": running}))  # fmt: skip

    def observe_sessions(self, sessions: Callable[[], int]) -> None:
        self.registry.register(_Gauges("vmafx_mcp_sessions", "Open sessions, by kind.", "kind", {"http": sessions}))


class _Gauges(Collector):
    def __init__(self, name: str, text: str, label: str, values: dict[str, Callable[[], int]]) -> None:
        self._name, self._text, self._label, self._values = name, text, label, values

    def collect(self) -> Iterator[Metric]:
        gauge = GaugeMetricFamily(self._name, self._text, labels=[self._label])
        for value, count in self._values.items():
            gauge.add_metric([value], count())
        yield gauge
