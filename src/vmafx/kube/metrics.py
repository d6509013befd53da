"""Request metrics with client-go's names, labels and buckets, so that existing dashboards work."""

from prometheus_client import CollectorRegistry

from vmafx.meters import Counter, Counters, Histogram, Histograms

BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60)


class ClientMetrics:
    """The request metrics of one client."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counters(
            "rest_client_requests_total",
            "HTTP requests, by status code, method and host.",
            ["code", "method", "host"],
            registry,
        )
        self._durations = Histograms(
            "rest_client_request_duration_seconds",
            "Request latency in seconds, by verb and host.",
            ["verb", "host"],
            registry,
            BUCKETS,
        )
        self._cells: dict[tuple[str, str, str], tuple[Counter, Histogram]] = {}

    def observe(self, method: str, host: str, code: str, seconds: float) -> None:
        """Count one request; as in client-go, `code` is `<error>` if there was no response."""
        cell = self._cells.get((method, host, code))
        if cell is None:
            cell = (self._requests.labels(code, method, host), self._durations.labels(method, host))
            self._cells[method, host, code] = cell
        cell[0].inc()
        cell[1].observe(seconds)
