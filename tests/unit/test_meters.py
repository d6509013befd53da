"""Meters export the same text as those of prometheus_client, byte for byte."""

from collections.abc import Iterator
from typing import Any

import prometheus_client
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from vmafx import meters
from vmafx.kube.metrics import BUCKETS
from vmafx.runtime.metrics import QUEUE_BUCKETS, RECONCILE_BUCKETS

HELP = 'Help with a \\ and a "quote",\nand a second line.'
VALUES = ["plain", "", 'say "hi"', "back\\slash", "two\nlines", "ünïcode", "<error>", "a,b={c}"]


@pytest.fixture(scope="module", autouse=True)
def without_created() -> Iterator[None]:
    prometheus_client.disable_created_metrics()  # Go's client exports none either
    yield
    prometheus_client.enable_created_metrics()


def exported(registry: CollectorRegistry) -> str:
    return generate_latest(registry).decode()


@pytest.fixture
def both() -> tuple[CollectorRegistry, CollectorRegistry]:
    return CollectorRegistry(), CollectorRegistry()


@pytest.mark.parametrize("name", ["requests", "requests_total"])
def test_counters_export_the_same_text(name: str, both: tuple[CollectorRegistry, CollectorRegistry]) -> None:
    for family in (
        meters.Counters(name, HELP, ["code", "host"], both[0]),
        prometheus_client.Counter(name, HELP, ["code", "host"], registry=both[1]),
    ):
        for count, value in enumerate(VALUES):
            child: Any = family.labels(value, "h")
            for _ in range(count):
                child.inc()
        family.labels("plain", "h").inc(1e15)
        family.labels("plain", "h").inc(0.25)
    assert exported(both[0]) == exported(both[1])
    assert 'requests_total{code="say \\"hi\\"",host="h"} 2.0\n' in exported(both[0])


def test_gauges_export_the_same_text(both: tuple[CollectorRegistry, CollectorRegistry]) -> None:
    for family in (
        meters.Gauges("workers", HELP, ["name"], both[0]),
        prometheus_client.Gauge("workers", HELP, ["name"], registry=both[1]),
    ):
        for value in VALUES:
            family.labels(value).set(len(value))
        family.labels("plain").inc()
        family.labels("").dec()
    assert exported(both[0]) == exported(both[1])
    assert 'workers{name=""} -1.0\n' in exported(both[0])


@pytest.mark.parametrize("buckets", [BUCKETS, QUEUE_BUCKETS, RECONCILE_BUCKETS, (1, 1e6, 1e7), (0.1, float(1 << 60))])
def test_histograms_export_the_same_text(
    buckets: tuple[float, ...], both: tuple[CollectorRegistry, CollectorRegistry]
) -> None:
    for family in (
        meters.Histograms("took_seconds", HELP, ["verb"], both[0], buckets),
        prometheus_client.Histogram("took_seconds", HELP, ["verb"], buckets=buckets, registry=both[1]),
    ):
        family.labels("never")
        for value in VALUES:
            child: Any = family.labels(value)
            for bound in buckets:
                for seconds in (bound, bound * 0.999, bound * 1.001):
                    child.observe(seconds)
            child.observe(0)
            child.observe(-1)
            child.observe(1e300)
    assert exported(both[0]) == exported(both[1])
    assert 'took_seconds_bucket{le="+Inf",verb="never"} 0.0\n' in exported(both[0])


@given(st.lists(st.floats(allow_nan=False) | st.sampled_from(BUCKETS)))
def test_any_observations_export_the_same_text(observed: list[float]) -> None:
    here, there = CollectorRegistry(), CollectorRegistry()
    meter = meters.Histograms("took", "Took.", [], here, BUCKETS).labels()
    expected = prometheus_client.Histogram("took", "Took.", buckets=BUCKETS, registry=there)
    for value in observed:
        meter.observe(value)
        expected.observe(value)
    assert exported(here) == exported(there)


def test_meters_without_labels_or_values_export_the_same_text(
    both: tuple[CollectorRegistry, CollectorRegistry],
) -> None:
    meters.Counters("frames", "Frames.", [], both[0]).labels().inc(3)
    prometheus_client.Counter("frames", "Frames.", registry=both[1]).inc(3)
    meters.Gauges("lag", "Lag.", [], both[0]).labels().set(0.1)
    prometheus_client.Gauge("lag", "Lag.", registry=both[1]).set(0.1)
    meters.Counters("unused", "Unused.", ["a"], both[0])
    prometheus_client.Counter("unused", "Unused.", ["a"], registry=both[1])
    assert exported(both[0]) == exported(both[1])


def test_the_bound_of_a_bucket_is_inclusive() -> None:
    registry = CollectorRegistry()
    meters.Histograms("took", "Took.", [], registry, [1, 2]).labels().observe(1)
    assert registry.get_sample_value("took_bucket", {"le": "1.0"}) == 1


def test_wrong_labels_unordered_buckets_and_duplicate_names_are_refused() -> None:
    registry = CollectorRegistry()
    family = meters.Counters("requests", "Requests.", ["code"], registry)
    assert family.labels("200") is family.labels("200")
    with pytest.raises(ValueError, match="has the labels code; got 2 values"):
        family.labels("200", "h")
    with pytest.raises(ValueError, match="not in ascending order"):
        meters.Histograms("took", "Took.", [], registry, [2, 1])
    with pytest.raises(ValueError, match="Duplicated"):
        meters.Counters("requests_total", "Again.", [], registry)
