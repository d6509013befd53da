"""Wrappers around every call of the service, for gRPC and HTTP alike: metrics, and the log of rejected calls."""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, aclosing, contextmanager
from types import SimpleNamespace
from typing import Any, cast, get_args

from google.protobuf.message import Message

from vmafx.auth.credentials import CallerCredentials
from vmafx.controller.errors import kube_status_error
from vmafx.controller.routes import SERVICE
from vmafx.controller.servicer import ControllerServicer
from vmafx.http.errors import Code, StatusError
from vmafx.kube.errors import KubeError
from vmafx.meters import Counters, Histograms
from vmafx.runtime.metrics import Metrics

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
METHODS = tuple(method.name for method in SERVICE.methods)
OK, CANCELLED = "OK", "CANCELLED"

CallWrapper = Callable[[str, CallerCredentials], AbstractContextManager[None]]  # gets the call's name and credentials


def wrap_calls(servicer: ControllerServicer, wrapper: CallWrapper) -> ControllerServicer:
    """A servicer with the same calls, each run inside the wrapper's context."""
    wrapped = SimpleNamespace()
    for method in SERVICE.methods:
        wrap = _wrap_stream if method.server_streaming else _wrap_call
        setattr(wrapped, method.name, wrap(method.name, getattr(servicer, method.name), wrapper))
    return cast("ControllerServicer", wrapped)


def _wrap_call(
    name: str, call: Callable[[Any, CallerCredentials], Awaitable[Message]], wrapper: CallWrapper
) -> Callable[..., Any]:
    async def wrapped(request: Any, credentials: CallerCredentials) -> Message:
        with wrapper(name, credentials):
            return await call(request, credentials)

    return wrapped


def _wrap_stream(
    name: str, call: Callable[[Any, CallerCredentials], AsyncGenerator[Message]], wrapper: CallWrapper
) -> Callable[..., Any]:
    async def wrapped(request: Any, credentials: CallerCredentials) -> AsyncGenerator[Message]:
        with wrapper(name, credentials):
            async with aclosing(call(request, credentials)) as messages:
                async for message in messages:
                    yield message

    return wrapped


class CallMetrics:
    """Counts and times calls by method and status code."""

    def __init__(self, metrics: Metrics) -> None:
        calls = Counters(
            "vmafx_controller_calls",
            "Finished calls, by method and gRPC status code.",
            ["method", "code"],
            registry=metrics.registry,
        )
        seconds = Histograms(
            "vmafx_controller_call_seconds",
            "Duration of calls in seconds, by method.",
            ["method"],
            buckets=BUCKETS,
            registry=metrics.registry,
        )
        codes = (OK, CANCELLED, *get_args(Code))
        self._calls = {(name, code): calls.labels(name, code) for name in METHODS for code in codes}
        self._seconds = {name: seconds.labels(name) for name in METHODS}

    def wrap(self, servicer: ControllerServicer) -> ControllerServicer:
        """A servicer with the same calls, each counted and timed."""
        return wrap_calls(servicer, self._measure)

    @contextmanager
    def _measure(self, name: str, _: CallerCredentials) -> Iterator[None]:
        code, started = OK, time.perf_counter()
        try:
            yield
        except StatusError as error:
            code = error.code
            raise
        except KubeError as error:
            code = kube_status_error(error).code
            raise
        except Exception:
            code = "INTERNAL"
            raise
        except BaseException:  # the caller cancelled the call
            code = CANCELLED
            raise
        finally:
            self._calls[name, code].inc()
            self._seconds[name].observe(time.perf_counter() - started)
