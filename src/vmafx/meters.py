"""Counters, gauges and histograms that cost next to nothing until somebody looks.

For one thread only, the event loop's: nothing is locked. prometheus_client locks at every count, for threads that there
are none of, and goes through a histogram's buckets one by one; here it only writes down what was counted, when asked.
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
    """`counts` has one number for each bucket, without those of the smaller ones, and one for what is in none."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: list[float]) -> None:
        self.bounds, self.counts, self.sum = bounds, [0] * (len(bounds) + 1), 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1  # left: a bound belongs to its bucket
        self.sum += value


Meter = TypeVar("Meter", Counter, Gauge, Histogram)
Written = TypeVar("Written", bound=Metric)


class _Family(Collector, Generic[Meter, Written]):
    """The meters of one name, by the values of its labels."""

    def __init__(self, name: str, text: str, labels: Sequence[str], registry: CollectorRegistry) -> None:
        self._name, self._text, self._labels = name, text, labels
        self._meters: dict[tuple[str, ...], Meter] = {}
        registry.register(self)

    def labels(self, *values: str) -> Meter:
        """Where to count: to be kept by who counts often. Without labels there is one."""
        if len(values) != len(self._labels):
            raise ValueError(f"{self._name} has the labels {', '.join(self._labels) or 'none'}, not {len(values)}")
        if values not in self._meters:
            self._meters[values] = self._new()
        return self._meters[values]

    def describe(self) -> Iterator[Metric]:
        """Tells the registry our name, which it takes from one family only."""
        yield self._empty()

    def collect(self) -> Iterator[Metric]:
        written = self._empty()
        for values, meter in self._meters.items():
            self._write(written, values, meter)
        yield written

    @abstractmethod
    def _new(self) -> Meter: ...

    @abstractmethod
    def _empty(self) -> Written: ...

    @abstractmethod
    def _write(self, written: Written, values: tuple[str, ...], meter: Meter) -> None: ...


class Counters(_Family[Counter, CounterMetricFamily]):
    def _new(self) -> Counter:
        return Counter()

    def _empty(self) -> CounterMetricFamily:
        return CounterMetricFamily(self._name, self._text, labels=self._labels)

    def _write(self, written: CounterMetricFamily, values: tuple[str, ...], meter: Counter) -> None:
        written.add_metric(values, meter.value)


class Gauges(_Family[Gauge, GaugeMetricFamily]):
    def _new(self) -> Gauge:
        return Gauge()

    def _empty(self) -> GaugeMetricFamily:
        return GaugeMetricFamily(self._name, self._text, labels=self._labels)

    def _write(self, written: GaugeMetricFamily, values: tuple[str, ...], meter: Gauge) -> None:
        written.add_metric(values, meter.value)


class Histograms(_Family[Histogram, HistogramMetricFamily]):
    def __init__(
        self, name: str, text: str, labels: Sequence[str], registry: CollectorRegistry, buckets: Sequence[float]
    ) -> None:
        self._bounds = [float(bound) for bound in buckets]
        if self._bounds != sorted(self._bounds):
            raise ValueError(f"the buckets of {name} are not in order")
        self._names = [floatToGoString(bound) for bound in (*self._bounds, INFINITY)]
        super().__init__(name, text, labels, registry)

    def _new(self) -> Histogram:
        return Histogram(self._bounds)

    def _empty(self) -> HistogramMetricFamily:
        return HistogramMetricFamily(self._name, self._text, labels=self._labels)

    def _write(self, written: HistogramMetricFamily, values: tuple[str, ...], meter: Histogram) -> None:
        buckets = list(zip(self._names, accumulate(meter.counts), strict=True))
        written.add_metric(values, buckets, meter.sum)
