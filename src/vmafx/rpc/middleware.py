"""Wrappers around every call of a servicer, for gRPC and HTTP alike: metrics and limits."""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, aclosing, contextmanager
from types import SimpleNamespace
from typing import Any, TypeVar, cast, get_args

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message
from prometheus_client import CollectorRegistry

from vmafx.auth.access import AccessControl
from vmafx.auth.credentials import CallerCredentials
from vmafx.auth.fair_limit import FairLimit, sharing_key
from vmafx.http.errors import Code
from vmafx.meters import Counters, Histograms
from vmafx.rpc.service import RpcService

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
OK, CANCELLED = "OK", "CANCELLED"

# Both get the call's name and credentials.
CallWrapper = Callable[[str, CallerCredentials], AbstractContextManager[None]]
CallPreparation = Callable[[str, CallerCredentials], Awaitable[None]]

S = TypeVar("S")


async def _nothing(_name: str, _credentials: CallerCredentials) -> None: ...


def wrap_calls(service: ServiceDescriptor, servicer: S, wrapper: CallWrapper, before: CallPreparation = _nothing) -> S:
    """A servicer with the same calls, each run after `before` and inside the wrapper's context."""
    wrapped = SimpleNamespace()
    for method in service.methods:
        wrap = _wrap_stream if method.server_streaming else _wrap_call
        setattr(wrapped, method.name, wrap(method.name, getattr(servicer, method.name), wrapper, before))
    return cast("S", wrapped)


def _wrap_call(
    name: str,
    call: Callable[[Any, CallerCredentials], Awaitable[Message]],
    wrapper: CallWrapper,
    before: CallPreparation,
) -> Callable[..., Any]:
    async def wrapped(request: Any, credentials: CallerCredentials) -> Message:
        await before(name, credentials)
        with wrapper(name, credentials):
            return await call(request, credentials)

    return wrapped


def _wrap_stream(
    name: str,
    call: Callable[[Any, CallerCredentials], AsyncGenerator[Message]],
    wrapper: CallWrapper,
    before: CallPreparation,
) -> Callable[..., Any]:
    async def wrapped(request: Any, credentials: CallerCredentials) -> AsyncGenerator[Message]:
        await before(name, credentials)
        with wrapper(name, credentials):
            async with aclosing(call(request, credentials)) as messages:
                async for message in messages:
                    yield message

    return wrapped


class CallLimits:
    """Limits calls at the same time, in all and per caller.

    A call that lasts is counted to its user, which is authenticated first, and a short one to its address while its
    token is reviewed.
    """

    def __init__(
        self,
        service: ServiceDescriptor,
        access: AccessControl,
        limits: Mapping[str, FairLimit],
        long_calls: Collection[str],
    ) -> None:
        self._service, self._access, self._limits, self._long_calls = service, access, limits, long_calls

    def wrap(self, servicer: S) -> S:
        """A servicer with the same calls, each within the limits."""
        return wrap_calls(self._service, servicer, self._hold, self._authenticate_if_long)

    async def _authenticate_if_long(self, name: str, credentials: CallerCredentials) -> None:
        if name in self._long_calls:
            await self._access.authenticate(credentials)

    @contextmanager
    def _hold(self, name: str, credentials: CallerCredentials) -> Iterator[None]:
        user = self._access.known_user(credentials)
        limit, key = self.share(name, credentials, user)
        with limit.hold(key, caller=user):
            yield

    def share(self, name: str, credentials: CallerCredentials, user: str) -> tuple[FairLimit, str]:
        """The limit of a call, and the key that it is counted to; `user` is empty if it is not known."""
        return self._limits[name], sharing_key(user, credentials.peer)


class CallMetrics:
    """Counts and times calls by method and status code."""

    def __init__(self, service: RpcService, registry: CollectorRegistry) -> None:
        self._service = service
        calls = Counters(
            f"{service.metrics_prefix}_calls",
            "Finished calls, by method and gRPC status code.",
            ["method", "code"],
            registry=registry,
        )
        seconds = Histograms(
            f"{service.metrics_prefix}_call_seconds",
            "Duration of calls in seconds, by method.",
            ["method"],
            buckets=BUCKETS,
            registry=registry,
        )
        codes = (OK, CANCELLED, *get_args(Code))
        names = [method.name for method in service.descriptor.methods]
        self._calls = {(name, code): calls.labels(name, code) for name in names for code in codes}
        self._seconds = {name: seconds.labels(name) for name in names}

    def wrap(self, servicer: S) -> S:
        """A servicer with the same calls, each counted and timed."""
        return wrap_calls(self._service.descriptor, servicer, self._measure)

    @contextmanager
    def _measure(self, name: str, _: CallerCredentials) -> Iterator[None]:
        code, started = OK, time.perf_counter()
        try:
            yield
        except Exception as error:
            known = self._service.known_error(error)
            code = known.code if known is not None else "INTERNAL"
            raise
        except BaseException:  # the caller cancelled the call
            code = CANCELLED
            raise
        finally:
            self._calls[name, code].inc()
            self._seconds[name].observe(time.perf_counter() - started)
