"""Counters, gauges and histograms that are cheap to update, exported by prometheus_client.

They belong to one thread, that of the event loop, so nothing is locked. prometheus_client's own meters take a lock at
every update and search a histogram's buckets one by one; here it only formats the values at a scrape.
"""

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

INFINITY = float("inf")


class Counter:
    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, by: float = 1) -> None:
        self.value += by


class Gauge:
    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self) -> None:
        self.value += 1

    def dec(self) -> None:
        self.value -= 1

    def set(self, value: float) -> None:
        self.value = value


class Histogram:
    """`counts` has the observations of each bucket, not cumulative, and last those above every bound."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: list[float]) -> None:
        self.bounds, self.counts, self.sum = bounds, [0] * (len(bounds) + 1), 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1  # bounds are inclusive
        self.sum += value


Meter = TypeVar("Meter", Counter, Gauge, Histogram)
Exported = TypeVar("Exported", bound=Metric)


class _Family(Collector, Generic[Meter, Exported]):
    """The meters of one metric, by their label values."""

    def __init__(self, name: str, help_text: str, labels: Sequence[str], registry: CollectorRegistry) -> None:
        self._name, self._help, self._labels = name, help_text, labels
        self._meters: dict[tuple[str, ...], Meter] = {}
        registry.register(self)

    def labels(self, *values: str) -> Meter:
        """The meter with these label values, created at zero. Keep it where it is updated often."""
        if len(values) != len(self._labels):
            raise ValueError(
                f"{self._name} has the labels {', '.join(self._labels) or 'none'}; got {len(values)} values"
            )
        if values not in self._meters:
            self._meters[values] = self._new()
        return self._meters[values]

    def describe(self) -> Iterator[Metric]:
        """Lets the registry refuse a second metric of the same name."""
        yield self._empty()

    def collect(self) -> Iterator[Metric]:
        exported = self._empty()
        for values, meter in self._meters.items():
            self._export(exported, values, meter)
        yield exported

    @abstractmethod
    def _new(self) -> Meter: ...

    @abstractmethod
    def _empty(self) -> Exported: ...

    @abstractmethod
    def _export(self, exported: Exported, values: tuple[str, ...], meter: Meter) -> None: ...


class Counters(_Family[Counter, CounterMetricFamily]):
    def _new(self) -> Counter:
        return Counter()

    def _empty(self) -> CounterMetricFamily:
        return CounterMetricFamily(self._name, self._help, labels=self._labels)

    def _export(self, exported: CounterMetricFamily, values: tuple[str, ...], meter: Counter) -> None:
        exported.add_metric(values, meter.value)


class Gauges(_Family[Gauge, GaugeMetricFamily]):
    def _new(self) -> Gauge:
        return Gauge()

    def _empty(self) -> GaugeMetricFamily:
        return GaugeMetricFamily(self._name, self._help, labels=self._labels)

    def _export(self, exported: GaugeMetricFamily, values: tuple[str, ...], meter: Gauge) -> None:
        exported.add_metric(values, meter.value)


class Histograms(_Family[Histogram, HistogramMetricFamily]):
    def __init__(
        self, name: str, help_text: str, labels: Sequence[str], registry: CollectorRegistry, buckets: Sequence[float]
    ) -> None:
        self._bounds = [float(bound) for bound in buckets]
        if self._bounds != sorted(self._bounds):
            raise ValueError(f"the buckets of {name} are not in ascending order")
        self._bucket_names = [floatToGoString(bound) for bound in (*self._bounds, INFINITY)]
        super().__init__(name, help_text, labels, registry)

    def _new(self) -> Histogram:
        return Histogram(self._bounds)

    def _empty(self) -> HistogramMetricFamily:
        return HistogramMetricFamily(self._name, self._help, labels=self._labels)

    def _export(self, exported: HistogramMetricFamily, values: tuple[str, ...], meter: Histogram) -> None:
        buckets = list(zip(self._bucket_names, accumulate(meter.counts), strict=True))
        exported.add_metric(values, buckets, meter.sum)
