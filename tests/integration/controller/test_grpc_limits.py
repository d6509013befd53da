"""The limits of the gRPC server: calls without a message, watches, and callers that take more than their share."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, cast

import grpc
import msgspec
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tests.support.inprocess_controller import LOCAL
from tests.support.scripted_controller import ScriptedController
from tests.support.waiting import eventually
from vmafx.auth.access import Caller, InsecureAccess
from vmafx.auth.credentials import CallerCredentials
from vmafx.controller import grpc_server, middleware
from vmafx.controller.grpc_server import serve_grpc
from vmafx.controller.middleware import ControllerCallLimits
from vmafx.controller.servicer import ControllerServicer
from vmafx.http.address import ListenAddress
from vmafx.http.errors import StatusError
from vmafx.rpc import handlers, health, messages
from vmafx.rpc import server as rpc_server
from vmafx.runtime.metrics import Metrics
from vmafx.wire import controller_pb2 as wire
from vmafx.wire.controller_pb2_grpc import VmafxControllerStub

METHOD = "/vmafx.controller.v1.VmafxController"


class TokenIsUser(InsecureAccess):
    """The token of a caller is its name; without a token it is nobody."""

    def known_user(self, credentials: CallerCredentials) -> str:
        return credentials.token

    async def authenticate(self, credentials: CallerCredentials) -> Caller:
        if not credentials.token:
            raise StatusError("UNAUTHENTICATED", "no token")
        return Caller(credentials.token)


class Server(NamedTuple):
    calls: ScriptedController
    channel: grpc.aio.Channel
    port: int
    metrics: Metrics

    def ended_without_message(self, reason: str) -> float:
        value = self.metrics.registry.get_sample_value(
            "vmafx_controller_calls_without_message_total", {"reason": reason}
        )
        assert value is not None
        return value

    @property
    def stub(self) -> VmafxControllerStub:
        return VmafxControllerStub(self.channel)

    @property
    def health(self) -> Any:
        return health_pb2_grpc.HealthStub(self.channel)

    def open_without_message(self, method: str = f"{METHOD}/Heartbeat", user: str = "") -> Any:
        """A call that is open, and whose message is not sent."""
        return self.channel.stream_unary(method)(metadata=bearer(user))

    async def is_served(self, user: str = "") -> bool:
        return (await self.stub.Heartbeat(wire.HeartbeatRequest(), metadata=bearer(user), timeout=20)).ok


def bearer(user: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {user}"),) if user else ()


def set_limit(monkeypatch: pytest.MonkeyPatch, **values: float) -> None:
    service = grpc_server.CONTROLLER
    limits = msgspec.structs.replace(service.limits, **values)
    monkeypatch.setattr(grpc_server, "CONTROLLER", service._replace(limits=limits))


@asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    calls, access, metrics = ScriptedController(), TokenIsUser(), Metrics()
    servicer = ControllerCallLimits(access).wrap(cast("ControllerServicer", calls))
    async with (
        serve_grpc(ListenAddress(LOCAL, 0), None, servicer, access, metrics, 0.0) as port,
        grpc.aio.insecure_channel(f"{LOCAL}:{port}", [("grpc.use_local_subchannel_pool", 1)]) as channel,
    ):
        yield Server(calls, channel, port, metrics)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as server:
        yield server


@pytest.mark.parametrize(
    "method",
    [f"{METHOD}/Heartbeat", f"{METHOD}/StreamJobs", "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"],
)
async def test_a_call_whose_message_does_not_arrive_ends(
    server: Server, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(messages, "MESSAGE_TIMEOUT", 0.1)
    async with asyncio.timeout(20):
        assert await server.open_without_message(method).code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert await server.is_served()
    assert [one.call for one in server.calls.received] == ["Heartbeat"]
    assert (server.ended_without_message("timeout"), server.ended_without_message("limit")) == (1, 0)


async def test_a_call_without_a_message_or_with_a_malformed_one_is_invalid(server: Server) -> None:
    empty = server.open_without_message()
    await empty.done_writing()
    assert await empty.code() is grpc.StatusCode.INVALID_ARGUMENT
    malformed: Any = server.channel.unary_unary(f"{METHOD}/Heartbeat")
    assert await malformed(b"\xff\xff").code() is grpc.StatusCode.INVALID_ARGUMENT
    assert await server.is_served()


async def test_calls_without_a_message_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    set_limit(monkeypatch, waiting_calls=8)
    async with serving() as server:
        calls = [server.open_without_message() for _ in range(30)]
        for user in ("", "", "alice"):
            assert await server.is_served(user)  # also proves that the server has seen the others
        await eventually(lambda: sum(not call.done() for call in calls) <= 4, "most of the calls have ended")
        ended = [call for call in calls if call.done()]
        assert len(ended) < len(calls)
        assert server.ended_without_message("limit") >= len(ended)
        assert server.ended_without_message("timeout") == 0
        assert {await call.code() for call in ended} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        for call in calls:
            call.cancel()


async def test_a_known_caller_without_messages_ends_only_its_own_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    set_limit(monkeypatch, waiting_calls=8)
    async with serving() as server:
        others = [server.open_without_message(user="bob") for _ in range(2)]
        assert await server.is_served("bob")
        calls = [server.open_without_message(user="alice") for _ in range(30)]
        assert await server.is_served("alice")
        await eventually(lambda: sum(not call.done() for call in calls) <= 3, "most of the calls have ended")
        assert not [call for call in others if call.done()]
        for call in others + calls:
            call.cancel()


async def test_health_watches_are_limited_per_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "MAX_WATCHES", 6)
    request = health_pb2.HealthCheckRequest()
    async with serving() as server:
        watches = [server.health.Watch(request) for _ in range(3)]
        for watch in watches:
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        refused = server.health.Watch(request)
        assert await refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await server.health.Check(request)).status == health_pb2.HealthCheckResponse.SERVING
        assert await server.is_served()
        watches.pop().cancel()

        async def has_room() -> bool:
            watches.append(server.health.Watch(request))
            return await watches[-1].read() is not grpc.aio.EOF

        await eventually(lambda: _succeeds(has_room()), "there is room again")
        for watch in watches:
            watch.cancel()


async def _succeeds(call: Any) -> bool:
    try:
        return bool(await call)
    except grpc.aio.AioRpcError:
        return False


async def test_the_health_of_an_unknown_service() -> None:
    request = health_pb2.HealthCheckRequest(service="nosuch")
    async with serving() as server:
        with pytest.raises(grpc.aio.AioRpcError, match="no service is called 'nosuch'") as error:
            await server.health.Check(request)
        assert error.value.code() is grpc.StatusCode.NOT_FOUND
        watch = server.health.Watch(request)
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        watch.cancel()


async def test_a_watch_learns_that_the_server_stops() -> None:
    calls, access = cast("ControllerServicer", ScriptedController()), TokenIsUser()
    async with asyncio.timeout(20):
        async with serve_grpc(ListenAddress(LOCAL, 0), None, calls, access, Metrics(), 20.0) as port:
            channel = grpc.aio.insecure_channel(f"{LOCAL}:{port}", [("grpc.use_local_subchannel_pool", 1)])
            health: Any = health_pb2_grpc.HealthStub(channel)
            watch = health.Watch(health_pb2.HealthCheckRequest())
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert await watch.read() is grpc.aio.EOF
        await channel.close()


async def test_reflection_is_for_authenticated_callers(server: Server) -> None:
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(server.channel)  # type: ignore[arg-type]
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    assert await stub.ServerReflectionInfo(iter([request])).code() is grpc.StatusCode.UNAUTHENTICATED
    call = stub.ServerReflectionInfo(metadata=bearer("alice"))
    await call.write(request)
    services = {service.name for service in (await call.read()).list_services_response.service}
    assert services == {
        "vmafx.controller.v1.VmafxController",
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }
    await call.write(request)
    assert {service.name for service in (await call.read()).list_services_response.service} == services
    call.cancel()


async def test_reflection_ends_when_the_next_message_does_not_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    set_limit(monkeypatch, idle_seconds=0.1)
    async with serving() as server:
        stub: Any = reflection_pb2_grpc.ServerReflectionStub(server.channel)  # type: ignore[arg-type]
        call = stub.ServerReflectionInfo(metadata=bearer("alice"))
        await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        assert (await call.read()).list_services_response.service
        async with asyncio.timeout(20):
            assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert server.ended_without_message("timeout") == 1


async def test_reflection_calls_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "MAX_REFLECTIONS", 4)
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    async with serving() as server:
        stub: Any = reflection_pb2_grpc.ServerReflectionStub(server.channel)  # type: ignore[arg-type]

        async def reflect(user: str) -> Any:
            """A call that stays open; None if it is refused."""
            call = stub.ServerReflectionInfo(metadata=bearer(user))
            await call.write(request)
            if await _succeeds(call.read()):
                return call
            assert await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            return None

        calls = [await reflect("alice") for _ in range(2)]
        assert await reflect("alice") is None
        calls.append(await reflect("bob"))
        assert all(calls)
        for call in calls:
            call.cancel()
        await eventually(lambda: reflect("alice"), "there is room again")


async def test_a_caller_cannot_take_all_long_polls_nor_block_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "MAX_PULLS", 8)

    async def wait() -> wire.PullWorkResponse:
        await asyncio.sleep(3600)
        return wire.PullWorkResponse()

    async with serving() as server:
        server.calls.answers["PullWork"] = wait
        pulls = [server.stub.PullWork(wire.PullWorkRequest(), metadata=bearer("alice")) for _ in range(4)]
        await eventually(lambda: len(server.calls.received) == 4, "the pulls wait")
        with pytest.raises(grpc.aio.AioRpcError, match="too many PullWork calls at the same time") as error:
            await server.stub.PullWork(wire.PullWorkRequest(), metadata=bearer("alice"))
        assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await server.is_served("alice")
        pulls.append(server.stub.PullWork(wire.PullWorkRequest(), metadata=bearer("bob")))
        await eventually(lambda: len(server.calls.received) == 6, "the pull of another caller waits")
        for pull in pulls:
            pull.cancel()


async def test_a_call_that_lasts_is_authenticated_before_it_is_counted(server: Server) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match="no token"):
        await server.stub.PullWork(wire.PullWorkRequest())
    assert await server.stub.StreamJobs(wire.StreamJobsRequest()).code() is grpc.StatusCode.UNAUTHENTICATED
    assert not server.calls.received
    jobs = [job.id async for job in server.stub.StreamJobs(wire.StreamJobsRequest(), metadata=bearer("alice"))]
    assert jobs == ["one", "two"]


def set_option(monkeypatch: pytest.MonkeyPatch, name: str, value: int) -> None:
    options = dict(rpc_server.SERVER_OPTIONS)
    assert name in options
    monkeypatch.setattr(rpc_server, "SERVER_OPTIONS", tuple({**options, name: value}.items()))


async def is_closed(reader: asyncio.StreamReader) -> bool:
    """Read what the server sends until it closes the connection."""
    async with asyncio.timeout(60):
        try:
            while await reader.read(1 << 16):
                pass
        except ConnectionResetError:
            pass
    return True


async def test_a_connection_that_sends_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    set_option(monkeypatch, "grpc.server_handshake_timeout_ms", 200)
    async with serving() as server:
        reader, writer = await asyncio.open_connection(LOCAL, server.port)
        assert await is_closed(reader)
        writer.close()
        assert await server.is_served()


async def test_a_connection_without_calls_is_closed_and_one_with_a_long_poll_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_option(monkeypatch, "grpc.max_connection_idle_ms", 500)
    async with serving() as server:
        watch = server.health.Watch(health_pb2.HealthCheckRequest())  # lasts, as the PullWork of an agent does
        await watch.read()
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(f"{LOCAL}:{server.port}", options) as idle:
            assert (await VmafxControllerStub(idle).Heartbeat(wire.HeartbeatRequest())).ok
            await eventually(lambda: idle.get_state() is grpc.ChannelConnectivity.IDLE, "the connection is closed")
            assert (await VmafxControllerStub(idle).Heartbeat(wire.HeartbeatRequest())).ok  # it connects again
        assert server.channel.get_state() is grpc.ChannelConnectivity.READY
        assert not watch.done()
        watch.cancel()


async def test_the_number_of_connections_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    set_limit(monkeypatch, connections=2)
    async with serving() as server:
        assert await server.is_served()
        second = await asyncio.open_connection(LOCAL, server.port)
        await second[0].readexactly(9)  # the settings of the server: the connection is accepted
        third = await asyncio.open_connection(LOCAL, server.port)
        assert await is_closed(third[0])
        assert await server.is_served()
        for _, writer in (second, third):
            writer.close()
