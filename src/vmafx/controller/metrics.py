"""What the controller does, in numbers: all there from the start at zero."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import get_args

import msgspec

from vmafx.controller.errors import Code
from vmafx.meters import Counters, Histograms
from vmafx.runtime.metrics import Metrics
from vmafx.wire import controller_pb2 as wire

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
METHODS = tuple(method.name for method in wire.DESCRIPTOR.services_by_name["VmafxController"].methods)
OK, LEFT = "OK", "CANCELLED"


class Measured(msgspec.Struct):
    """One call; `code` is how it ended."""

    code: str = OK


class CallMetrics:
    """Calls by name and by how they ended, whichever door they came by."""

    def __init__(self, metrics: Metrics) -> None:
        calls = Counters(
            "vmafx_controller_calls", "Calls by name and result.", ["method", "code"], registry=metrics.registry
        )
        seconds = Histograms(
            "vmafx_controller_call_seconds", "Time to answer.", ["method"], buckets=BUCKETS, registry=metrics.registry
        )
        codes = (OK, LEFT, *get_args(Code))
        self._calls = {(name, code): calls.labels(name, code) for name in METHODS for code in codes}
        self._seconds = {name: seconds.labels(name) for name in METHODS}

    @contextmanager
    def measured(self, name: str) -> Iterator[Measured]:
        one, began = Measured(LEFT), time.perf_counter()
        try:
            one.code = OK
            yield one
        except BaseException:
            if one.code == OK:  # the caller left before the answer
                one.code = LEFT
            raise
        finally:
            self._calls[name, one.code].inc()
            self._seconds[name].observe(time.perf_counter() - began)
