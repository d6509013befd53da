"""Heartbeats that fail for reasons of the cluster make the controller unhealthy, and nothing else does."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from itertools import count
from typing import Any, NamedTuple

import pytest

from tests.support.proxy import FaultyProxy, Refuse, Stall
from tests.support.waiting import eventually
from vmafx.auth.access import InsecureAccess
from vmafx.auth.credentials import CallerCredentials
from vmafx.clock import utc_now
from vmafx.controller import middleware, registry
from vmafx.controller.caches import ControllerCaches, make_caches
from vmafx.controller.middleware import AgentCalls, ControllerCallLimits
from vmafx.controller.registry import AgentDescription, AgentRegistry
from vmafx.controller.servicer import ControllerServicer, ServicerParts
from vmafx.controller.sessions import Session, Sessions
from vmafx.http.errors import StatusError
from vmafx.kube import Client, ObjectKey
from vmafx.kube.errors import ServerError
from vmafx.wire import controller_pb2 as wire


async def allowed() -> None:
    """An agent may create its node."""


class FailingAccess(InsecureAccess):
    """Its reviews fail at once, as those of an API server that refuses them."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def authorize(self, *_: Any, **__: Any) -> Any:
        raise self._error


FAILING_REVIEWS = {
    "review": StatusError("UNAVAILABLE", "the Kubernetes API did not answer the access review"),
    "unexpected": ZeroDivisionError("a defect"),
}


class HeartbeatHarness(NamedTuple):
    nodes: AgentRegistry
    servicer: ControllerServicer
    sessions: Sessions
    cached: ControllerCaches
    me: ObjectKey

    async def register(self, key: ObjectKey | None = None) -> Session:
        """Start a session, and wait until the cache has it."""
        session = (await self.nodes.register(key or self.me, AgentDescription(), allowed)).session

        def is_cached() -> bool:
            node = self.cached.nodes.store.get(session.node)
            return node is not None and node.status.agentSession == session.id

        await eventually(is_cached, "the cache has the session")
        self.nodes._written._entries.clear()  # as if HEARTBEAT_WRITE_INTERVAL had passed
        return session

    async def submit(self, credentials: CallerCredentials) -> None:
        await self.servicer.SubmitJob(wire.SubmitJobRequest(), credentials)

    async def beat(self, token: str, key: ObjectKey | None = None) -> None:
        request = wire.HeartbeatRequest(node_id=str(key or self.me), session_token=token)
        await self.servicer.Heartbeat(request, CallerCredentials())

    async def report(self, token: str) -> None:
        request = wire.ReportResultRequest(node_id=str(self.me), session_token=token)
        await self.servicer.ReportResult(request, CallerCredentials())


@asynccontextmanager
async def beating(
    client: Client, namespace: str, access: InsecureAccess, now: Callable[[], datetime] | None = None
) -> AsyncIterator[HeartbeatHarness]:
    """By default, every heartbeat is a minute after the one before."""
    cached, sessions = make_caches(client, namespace), Sessions(b"k" * 32)
    start, minutes = utc_now(), count()
    nodes = AgentRegistry(client, cached, sessions, 1, now or (lambda: start + timedelta(minutes=next(minutes))))
    unused = None
    parts: Any = (access, sessions, unused, nodes, unused, unused, unused, unused, namespace)
    servicer = AgentCalls(nodes).wrap(ControllerCallLimits(access).wrap(ControllerServicer(ServicerParts(*parts))))
    watching = asyncio.create_task(cached.nodes.run())
    try:
        await cached.nodes.synced.wait()
        yield HeartbeatHarness(nodes, servicer, sessions, cached, ObjectKey(namespace, "box"))
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


@pytest.mark.parametrize("failure", ["review", "unexpected", "write", "timeout"])
async def test_a_controller_that_refuses_heartbeats_for_its_own_reasons_is_unhealthy(
    failure: str, client: Client, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the operator would take the agents for dead. Nobody but a registered agent can make it so."""
    monkeypatch.setattr(registry, "HEARTBEAT_TIMEOUT", 2.0)
    access = FailingAccess(FAILING_REVIEWS[failure]) if failure in FAILING_REVIEWS else InsecureAccess()
    async with (
        FaultyProxy(client.config) as proxy,
        Client(proxy.config) as through,
        beating(through, namespace, access) as harness,
    ):
        former = harness.sessions.sign(await harness.register())
        session = await harness.register()
        for token in ("forged", former):
            with suppress(StatusError, ZeroDivisionError):
                await harness.beat(token)
            assert harness.nodes.heartbeat_problem() is None
        if failure not in FAILING_REVIEWS:
            proxy.faults.append(Refuse(500) if failure == "write" else Stall())
        with pytest.raises((StatusError, ServerError, ZeroDivisionError)):
            await harness.beat(harness.sessions.sign(session))
        assert "heartbeats cannot be written: " in (harness.nodes.heartbeat_problem() or "")
        async with harness.nodes.heartbeat(session):
            await harness.nodes.record_heartbeat(session, draining=False)
        assert harness.nodes.heartbeat_problem() is None


@pytest.mark.parametrize("before", [0, 1], ids=["new", "registered again"])
@pytest.mark.parametrize("failure", ["review", "read"])
async def test_a_heartbeat_that_fails_while_the_cache_is_stale_makes_the_controller_unhealthy(
    failure: str, before: int, client: Client, namespace: str
) -> None:
    """As after a registration with another replica: the controller reads the node, and that may fail as well."""
    access = FailingAccess(FAILING_REVIEWS[failure]) if failure in FAILING_REVIEWS else InsecureAccess()
    async with (
        FaultyProxy(client.config) as proxy,
        Client(proxy.config) as through,
        beating(through, namespace, access, utc_now) as harness,
    ):
        for _ in range(before):
            await harness.register()
        proxy.streaming.clear()
        session = (await harness.nodes.register(harness.me, AgentDescription(), allowed)).session
        assert not harness.nodes.is_current(session)
        proxy.choose = lambda request: Refuse(500) if "watch" not in request.query else None
        with pytest.raises((StatusError, ServerError)):
            await harness.beat(harness.sessions.sign(session))
        assert "heartbeats cannot be written: " in (harness.nodes.heartbeat_problem() or "")


class StalledAccess(InsecureAccess):
    """Its reviews last until the test ends."""

    async def authorize(self, *_: Any, **__: Any) -> Any:
        await asyncio.sleep(3600)


@pytest.mark.parametrize("flooder", ["others", "itself"])
async def test_a_heartbeat_that_is_refused_because_of_others_makes_the_controller_unhealthy(
    flooder: str, client: Client, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that is refused for its own calls does not."""
    monkeypatch.setattr(middleware, "MAX_SHORT_CALLS", 2)  # each agent gets one
    async with beating(client, namespace, StalledAccess()) as harness:
        token = harness.sessions.sign(await harness.register())
        keys = [harness.me] if flooder == "itself" else [ObjectKey(namespace, f"other-{n}") for n in range(2)]
        tokens = [token] if flooder == "itself" else [harness.sessions.sign(await harness.register(k)) for k in keys]
        running = [asyncio.create_task(harness.beat(one, key)) for one, key in zip(tokens, keys, strict=True)]
        await asyncio.sleep(0)  # each has started, and holds its place
        with pytest.raises(StatusError, match="too many calls at the same time"):
            await harness.beat(token)
        problem = harness.nodes.heartbeat_problem()
        assert (problem is not None) is (flooder == "others")
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def test_an_agent_has_few_calls_at_the_same_time_and_its_reports_take_no_place_of_its_heartbeats(
    client: Client, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(middleware, "MAX_AGENT_CALLS", 3)
    monkeypatch.setattr(middleware, "MAX_AGENT_HEARTBEATS", 2)
    async with beating(client, namespace, StalledAccess()) as harness:
        token = harness.sessions.sign(await harness.register())
        calls = [harness.report(token) for _ in range(5)] + [harness.beat(token) for _ in range(4)]
        running = [asyncio.create_task(call) for call in calls]
        await asyncio.sleep(0.1)
        reports, heartbeats = [[task.done() for task in tasks] for tasks in (running[:5], running[5:])]
        assert (reports, heartbeats) == ([False, False, False, True, True], [False, False, True, True])
        assert {str(task.exception()) for task in running if task.done()} == {
            "too many calls at the same time; end some of yours, or try again later"
        }
        assert harness.nodes.heartbeat_problem() is None
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def test_calls_of_clients_take_no_place_of_agents(
    client: Client, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(middleware, "MAX_SHORT_CALLS", 2)
    async with beating(client, namespace, StalledAccess()) as harness:
        token = harness.sessions.sign(await harness.register())
        clients = [CallerCredentials(peer=f"192.0.2.{number}") for number in range(3)]
        running = [asyncio.create_task(harness.submit(one)) for one in clients]
        running.append(asyncio.create_task(harness.beat(token)))
        await asyncio.sleep(0.1)
        assert [task.done() for task in running] == [False, False, True, False]  # the heartbeat is being reviewed
        assert harness.nodes.heartbeat_problem() is None
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
