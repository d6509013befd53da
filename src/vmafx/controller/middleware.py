"""Wrappers around the calls of the service, for gRPC and HTTP alike: the agents that call, and limits."""

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

from google.protobuf.message import Message

from vmafx.auth.access import AccessControl
from vmafx.auth.credentials import CallerCredentials
from vmafx.auth.fair_limit import FairLimit
from vmafx.controller.registry import AgentRegistry
from vmafx.controller.routes import SERVICE
from vmafx.controller.servicer import ControllerServicer
from vmafx.rpc.middleware import CallLimits

# At the same time; a caller gets at most half. Separate limits, so that heartbeats need not wait for long polls to end.
MAX_SHORT_CALLS = 10_000
MAX_STREAMS = 100
MAX_PULLS = 20_000  # one for each agent
LONG_CALLS = ("PullWork", "StreamJobs")
# Of one agent. Its heartbeats are apart from its reports, of which it may have one for each job.
MAX_AGENT_HEARTBEATS = 4
MAX_AGENT_CALLS = 64


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


class ControllerCallLimits(CallLimits):
    """Limits for agents with a session, which others cannot exhaust, and limits for everybody else."""

    def __init__(self, access: AccessControl) -> None:
        super().__init__(SERVICE, access, _fair_limits(), LONG_CALLS)
        self._of_agents = _agent_limits()

    def share(self, name: str, credentials: CallerCredentials, user: str) -> tuple[FairLimit, str]:
        if credentials.agent:
            return self._of_agents[name], credentials.agent
        return super().share(name, credentials, user)


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
