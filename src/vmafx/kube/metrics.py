"""Metrics of the client, with client-go's names, labels and buckets, so that stock dashboards read them."""

from prometheus_client import CollectorRegistry

from vmafx.meters import Counter, Counters, Histogram, Histograms

BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60)


class ClientMetrics:
    """One set of metrics for one client."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counters(
            "rest_client_requests_total",
            "HTTP requests by status code, method and host.",
            ["code", "method", "host"],
            registry,
        )
        self._durations = Histograms(
            "rest_client_request_duration_seconds",
            "Seconds until a request was answered, by verb and host.",
            ["verb", "host"],
            registry,
            BUCKETS,
        )
        self._cells: dict[tuple[str, str, str], tuple[Counter, Histogram]] = {}

    def answered(self, method: str, host: str, code: str, seconds: float) -> None:
        """Count one request; `code` is `<error>` where there was no answer, as client-go has it."""
        cell = self._cells.get((method, host, code))
        if cell is None:
            cell = (self._requests.labels(code, method, host), self._durations.labels(method, host))
            self._cells[method, host, code] = cell
        cell[0].inc()
        cell[1].observe(seconds)
