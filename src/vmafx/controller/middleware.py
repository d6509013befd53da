"""What wraps every call of the service, over gRPC and HTTP alike: counting it, and logging rejections."""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, aclosing, contextmanager
from types import SimpleNamespace
from typing import Any, cast, get_args

from google.protobuf.message import Message

from vmafx.auth.credentials import CallerCredentials
from vmafx.controller.errors import refusal_for
from vmafx.controller.routes import SERVICE
from vmafx.controller.servicer import ControllerServicer
from vmafx.http.errors import CallRefused, Code
from vmafx.kube.errors import KubeError
from vmafx.meters import Counters, Histograms
from vmafx.runtime.metrics import Metrics

CallWrapper = Callable[[str, CallerCredentials], AbstractContextManager[None]]  # by the call's name, and by who calls


def wrap_calls(calls: ControllerServicer, within: CallWrapper) -> ControllerServicer:
    """The same calls, each within such a context."""
    made = SimpleNamespace()
    for method in SERVICE.methods:
        wrap = _stream if method.server_streaming else _call
        setattr(made, method.name, wrap(method.name, getattr(calls, method.name), within))
    return cast("ControllerServicer", made)


def _call(
    name: str, call: Callable[[Any, CallerCredentials], Awaitable[Message]], within: CallWrapper
) -> Callable[..., Any]:
    async def wrapped(request: Any, shown: CallerCredentials) -> Message:
        with within(name, shown):
            return await call(request, shown)

    return wrapped


def _stream(
    name: str, call: Callable[[Any, CallerCredentials], AsyncGenerator[Message]], within: CallWrapper
) -> Callable[..., Any]:
    async def wrapped(request: Any, shown: CallerCredentials) -> AsyncGenerator[Message]:
        with within(name, shown):
            async with aclosing(call(request, shown)) as messages:
                async for message in messages:
                    yield message

    return wrapped


BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
METHODS = tuple(method.name for method in SERVICE.methods)
OK, CANCELLED = "OK", "CANCELLED"


class CallMetrics:
    """Calls by name and by how they ended, whichever door they came by."""

    def __init__(self, metrics: Metrics) -> None:
        calls = Counters(
            "vmafx_controller_calls", "Calls by name and result.", ["method", "code"], registry=metrics.registry
        )
        seconds = Histograms(
            "vmafx_controller_call_seconds", "Time to answer.", ["method"], buckets=BUCKETS, registry=metrics.registry
        )
        codes = (OK, CANCELLED, *get_args(Code))
        self._calls = {(name, code): calls.labels(name, code) for name in METHODS for code in codes}
        self._seconds = {name: seconds.labels(name) for name in METHODS}

    def counted(self, calls: ControllerServicer) -> ControllerServicer:
        """The same calls, each counted."""
        return wrap_calls(calls, self._measured)

    @contextmanager
    def _measured(self, name: str, _: CallerCredentials) -> Iterator[None]:
        code, began = OK, time.perf_counter()
        try:
            yield
        except CallRefused as refused:
            code = refused.code
            raise
        except KubeError as error:
            code = refusal_for(error).code
            raise
        except Exception:
            code = "INTERNAL"
            raise
        except BaseException:  # the caller left before the answer
            code = CANCELLED
            raise
        finally:
            self._calls[name, code].inc()
            self._seconds[name].observe(time.perf_counter() - began)
