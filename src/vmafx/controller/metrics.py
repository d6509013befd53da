"""What the controller does, in numbers: all there from the start at zero."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import get_args

from vmafx.auth.credentials import Presented
from vmafx.controller.around import around
from vmafx.controller.calls import Calls
from vmafx.controller.errors import refusal
from vmafx.controller.routes import SERVICE
from vmafx.http.errors import Code, Refused
from vmafx.kube.errors import KubeError
from vmafx.meters import Counters, Histograms
from vmafx.runtime.metrics import Metrics

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
METHODS = tuple(method.name for method in SERVICE.methods)
OK, LEFT = "OK", "CANCELLED"


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

    def counted(self, calls: Calls) -> Calls:
        """The same calls, each counted."""
        return around(calls, self._measured)

    @contextmanager
    def _measured(self, name: str, _: Presented) -> Iterator[None]:
        code, began = OK, time.perf_counter()
        try:
            yield
        except Refused as refused:
            code = refused.code
            raise
        except KubeError as error:
            code = refusal(error).code
            raise
        except Exception:
            code = "INTERNAL"
            raise
        except BaseException:  # the caller left before the answer
            code = LEFT
            raise
        finally:
            self._calls[name, code].inc()
            self._seconds[name].observe(time.perf_counter() - began)
