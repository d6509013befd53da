"""Wrappers around every call of the service, for gRPC and HTTP alike: metrics, limits, the log of rejected calls."""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, aclosing, contextmanager
from types import SimpleNamespace
from typing import Any, cast, get_args

from google.protobuf.message import Message

from vmafx.auth.access import AccessControl
from vmafx.auth.credentials import CallerCredentials
from vmafx.auth.fair_limit import FairLimit, sharing_key
from vmafx.controller.errors import kube_status_error
from vmafx.controller.registry import AgentRegistry
from vmafx.controller.routes import SERVICE
from vmafx.controller.servicer import ControllerServicer
from vmafx.http.errors import Code, StatusError
from vmafx.kube.errors import KubeError
from vmafx.meters import Counters, Histograms
from vmafx.runtime.metrics import Metrics

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
METHODS = tuple(method.name for method in SERVICE.methods)
OK, CANCELLED = "OK", "CANCELLED"

# At the same time; a caller gets at most half. Separate limits, so that heartbeats need not wait for long polls to end.
MAX_SHORT_CALLS = 10_000
MAX_STREAMS = 100
MAX_PULLS = 20_000  # one for each agent
LONG_CALLS = ("PullWork", "StreamJobs")
# Of one agent. Its heartbeats are apart from its reports, of which it may have one for each job.
MAX_AGENT_HEARTBEATS = 4
MAX_AGENT_CALLS = 64

# Both get the call's name and credentials.
CallWrapper = Callable[[str, CallerCredentials], AbstractContextManager[None]]
CallPreparation = Callable[[str, CallerCredentials], Awaitable[None]]


async def _nothing(_name: str, _credentials: CallerCredentials) -> None: ...


def wrap_calls(
    servicer: ControllerServicer, wrapper: CallWrapper, before: CallPreparation = _nothing
) -> ControllerServicer:
    """A servicer with the same calls, each run after `before` and inside the wrapper's context."""
    wrapped = SimpleNamespace()
    for method in SERVICE.methods:
        wrap = _wrap_stream if method.server_streaming else _wrap_call
        setattr(wrapped, method.name, wrap(method.name, getattr(servicer, method.name), wrapper, before))
    return cast("ControllerServicer", wrapped)


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


class AgentCalls:
    """Recognizes the calls of registered agents by their session tokens, before any limit applies.

    Such a call is counted to its agent and not to its address or user, which others may share, and its token does not
    wait behind those of strangers. A heartbeat that fails because of the calls of others, or for another reason that is
    not its own, makes the controller unhealthy.
    """

    def __init__(self, registry: AgentRegistry) -> None:
        self._registry = registry

    def wrap(self, servicer: ControllerServicer) -> ControllerServicer:
        """A servicer with the same calls; those of an agent with a current session name it in their credentials."""
        wrapped = SimpleNamespace()
        for method in SERVICE.methods:
            call = getattr(servicer, method.name)
            has_session = "session_token" in method.input_type.fields_by_name
            setattr(wrapped, method.name, self._wrap_call(method.name, call) if has_session else call)
        return cast("ControllerServicer", wrapped)

    def _wrap_call(self, name: str, call: Callable[..., Awaitable[Message]]) -> Callable[..., Any]:
        async def wrapped(request: Any, credentials: CallerCredentials) -> Message:
            session = self._registry.verified_session(request.node_id, request.session_token)
            is_current = session is not None and self._registry.is_current(session)
            known = credentials._replace(agent=request.node_id if is_current else "")
            if name != "Heartbeat":
                return await call(request, known)
            async with self._registry.heartbeat(session):
                return await call(request, known)

        return wrapped


class CallLimits:
    """Limits calls at the same time, in all and per caller.

    Agents with a session have limits of their own, which others cannot exhaust. Of the others, a call that lasts is
    counted to its user, which is authenticated first, and a short one to its address while its token is reviewed.
    """

    def __init__(self, access: AccessControl) -> None:
        self._access = access
        self._of_agents, self._of_others = _agent_limits(), _fair_limits()

    def wrap(self, servicer: ControllerServicer) -> ControllerServicer:
        """A servicer with the same calls, each within the limits."""
        return wrap_calls(servicer, self._limit, self._authenticate_if_long)

    async def _authenticate_if_long(self, name: str, credentials: CallerCredentials) -> None:
        if name in LONG_CALLS:
            await self._access.authenticate(credentials)

    @contextmanager
    def _limit(self, name: str, credentials: CallerCredentials) -> Iterator[None]:
        user, agent = self._access.known_user(credentials), credentials.agent
        limits, key = (self._of_agents, agent) if agent else (self._of_others, sharing_key(user, credentials.peer))
        with limits[name].hold(key, caller=user):
            yield


def _fair_limits() -> dict[str, FairLimit]:
    """By call."""
    long = {"PullWork": FairLimit(MAX_PULLS, "PullWork calls"), "StreamJobs": FairLimit(MAX_STREAMS, "streams")}
    short = FairLimit(MAX_SHORT_CALLS, "calls")
    return {method.name: long.get(method.name, short) for method in SERVICE.methods}


def _agent_limits() -> dict[str, FairLimit]:
    """By call. An agent needs few calls at the same time, and each may cost the API server several requests."""
    short = FairLimit(MAX_SHORT_CALLS, "calls", MAX_AGENT_CALLS)
    own = {
        "PullWork": FairLimit(MAX_PULLS, "PullWork calls"),
        "Heartbeat": FairLimit(MAX_SHORT_CALLS, "calls", MAX_AGENT_HEARTBEATS),
    }
    return {method.name: own.get(method.name, short) for method in SERVICE.methods}


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
