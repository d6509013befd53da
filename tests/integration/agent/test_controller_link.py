"""The agent's calls, on a real connection."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from tests.conftest import Logged
from tests.support.memory_controller import MemoryController
from tests.support.replica_proxy import ReplicaProxy
from tests.support.waiting import eventually
from vmafx.agent.controller_link import (
    AgentSession,
    ControllerError,
    ControllerLink,
    ControllerRefused,
    ControllerUnreachable,
    InvalidRequest,
    NotSupported,
    SessionRejected,
    TokenUnavailable,
)
from vmafx.wire import controller_pb2 as wire
from vmafx.wire.client import Endpoint

CAN = wire.NodeCapability(gpu_vendor="cpu", backends=["cpu"], concurrency=1)
REQUEST = wire.RegisterNodeRequest(name="machine", capability=CAN)


@pytest.fixture
async def link(controller: MemoryController) -> AsyncIterator[ControllerLink]:
    link = ControllerLink(Endpoint(address=controller.address, insecure=True))
    yield link
    await link.close()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("UNAUTHENTICATED", SessionRejected),
        ("FAILED_PRECONDITION", ControllerRefused),
        ("PERMISSION_DENIED", ControllerRefused),
        ("INVALID_ARGUMENT", InvalidRequest),
        ("UNAVAILABLE", ControllerUnreachable),
        ("INTERNAL", ControllerUnreachable),
        ("CANCELLED", ControllerUnreachable),
        ("UNIMPLEMENTED", NotSupported),
    ],
)
async def test_a_status_code_becomes_an_error_of_the_link(
    controller: MemoryController, link: ControllerLink, code: str, kind: type[ControllerError]
) -> None:
    controller.refusals["RegisterNode"] = grpc.StatusCode[code]
    with pytest.raises(kind) as error:
        await link.register(REQUEST)
    assert str(error.value) == f"{code}: so it [31mis"


async def test_a_registration_that_was_accepted_in_part_is_logged(
    controller: MemoryController, link: ControllerLink, logged: Logged
) -> None:
    controller.message = "limited\nto 8"
    await link.register(REQUEST)
    assert logged("message", "limited to 8") == [("registration changed by the controller", {})]


async def test_closing_the_link_fails_its_calls_and_cancels_nothing(
    controller: MemoryController, link: ControllerLink
) -> None:
    session = await link.register(REQUEST)
    first, second = (asyncio.create_task(link.pull(session, CAN, [])) for _ in range(2))
    await eventually(lambda: len(controller.calls("PullWork")) == 2, "both pulls wait")
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    await link.close()
    with pytest.raises(ControllerUnreachable):
        await first
    with pytest.raises(ControllerUnreachable):
        await link.register(REQUEST)


def port_of(controller: MemoryController) -> int:
    return int(controller.address.rpartition(":")[2])


async def beat(link: ControllerLink, session: AgentSession) -> bool:
    return (await link.heartbeat(session, [], 0, draining=False)).ok


@pytest.mark.parametrize("code", ["UNAVAILABLE", "INTERNAL", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED"])
async def test_after_two_failed_heartbeats_the_next_may_reach_another_replica(
    controller: MemoryController, code: str
) -> None:
    async with MemoryController() as other, ReplicaProxy(port_of(controller), port_of(other)) as proxy:
        other.sessions = controller.sessions
        link = ControllerLink(Endpoint(address=proxy.address, insecure=True))
        session = await link.register(REQUEST)
        pull = asyncio.create_task(link.pull(session, CAN, []))
        await eventually(lambda: controller.calls("PullWork"), "the pull waits")
        controller.refusals["Heartbeat"] = grpc.StatusCode[code]
        for _ in range(2):
            assert proxy.went == [port_of(controller)]
            with pytest.raises(ControllerUnreachable):
                await beat(link, session)
        assert await beat(link, session)
        assert proxy.went == [port_of(controller), port_of(other)]
        with pytest.raises(ControllerUnreachable):
            await pull
        await link.close()


async def test_a_heartbeat_that_fails_once_keeps_its_connection(controller: MemoryController) -> None:
    async with ReplicaProxy(port_of(controller)) as proxy:
        link = ControllerLink(Endpoint(address=proxy.address, insecure=True))
        session = await link.register(REQUEST)
        for _ in range(3):
            controller.refusals["Heartbeat"] = grpc.StatusCode.UNAVAILABLE
            with pytest.raises(ControllerUnreachable):
                await beat(link, session)
            controller.refusals.clear()
            assert await beat(link, session)
        assert proxy.connections == 1
        await link.close()


@pytest.mark.parametrize("content", [None, b"", b"two words", b"line\nline", b"\xff", "ü".encode()])
async def test_a_token_file_without_a_token_is_an_error_until_it_has_one(
    controller: MemoryController, tmp_path: Path, content: bytes | None
) -> None:
    token = tmp_path / "token"
    if content is not None:
        token.write_bytes(content)
    link = ControllerLink(Endpoint(address=controller.address, insecure=True, token=token))
    with pytest.raises(TokenUnavailable, match="the token file"):
        await link.register(REQUEST)
    token.write_text("a-token\n")
    assert (await link.register(REQUEST)).node == "default/machine"
    assert controller.received[-1].authorization == "Bearer a-token"
    await link.close()


async def test_a_port_that_does_not_speak_grpc_is_unreachable() -> None:
    async def respond(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(respond, "127.0.0.1", 0)
    async with server:
        link = ControllerLink(Endpoint(address=f"127.0.0.1:{server.sockets[0].getsockname()[1]}", insecure=True))
        with pytest.raises(ControllerUnreachable):
            await link.heartbeat(AgentSession("a", "b"), [], 0, draining=False)
        await link.close()
