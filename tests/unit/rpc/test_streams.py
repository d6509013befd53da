"""Calls in which both sides stream, between a real client and a real server."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from prometheus_client import CollectorRegistry

from tests.support import virtual
from tests.support.scripted_scoring import (
    CHANNEL_OPTIONS,
    LOCAL,
    Replies,
    Requests,
    ScoringServer,
    aggregate,
    config,
    frame_score,
    pair,
    replies_of,
    scoring_server,
    send,
)
from tests.support.waiting import eventually
from vmafx.auth.access import InsecureAccess
from vmafx.auth.credentials import CallerCredentials
from vmafx.http.address import ListenAddress
from vmafx.http.errors import StatusError
from vmafx.rpc import server as rpc_server
from vmafx.rpc.messages import MessageReader, RequestStream
from vmafx.rpc.server import serve_grpc
from vmafx.rpc.service import RpcLimits, RpcService
from vmafx.wire import scoring_pb2 as wire

MIB = 1 << 20


@pytest.fixture
async def server() -> AsyncIterator[ScoringServer]:
    async with scoring_server() as server:
        yield server


async def test_replies_come_in_the_order_of_the_requests(server: ScoringServer) -> None:
    call = server.open()
    sending = asyncio.create_task(send(call, config(), *(pair(n) for n in range(300))))
    assert await replies_of(call) == [*range(300), -300]
    await sending
    assert await call.code() is grpc.StatusCode.OK
    assert server.calls.outcomes == ["returned"]


async def test_a_reply_needs_no_further_request(server: ScoringServer) -> None:
    """Otherwise a client that waits for each score before it sends the next frame would wait forever."""
    call = server.open()
    await call.write(config())
    for index in range(20):
        await call.write(pair(index))
        assert (await call.read()).frame_score.frame_index == index
    await call.done_writing()
    assert await replies_of(call) == [-20]


async def test_streams_at_the_same_time_do_not_mix(server: ScoringServer) -> None:
    calls = [server.open() for _ in range(8)]
    sending = [
        asyncio.create_task(send(call, config(), *(pair(n * 1000 + i) for i in range(20))))
        for n, call in enumerate(calls)
    ]
    replies = await asyncio.gather(*map(replies_of, calls))
    assert replies == [[*range(n * 1000, n * 1000 + 20), -20] for n in range(8)]
    await asyncio.gather(*sending)


async def test_a_stream_without_messages_is_an_empty_one(server: ScoringServer) -> None:
    call = server.open()
    await call.done_writing()
    assert await replies_of(call) == [0]


async def test_the_server_may_end_the_stream_first() -> None:
    async def first_two(requests: Requests) -> Replies:
        async for request in requests:
            yield frame_score(request.frame_pair.frame_index)
            if request.frame_pair.frame_index == 1:
                return

    async with scoring_server(first_two) as server:
        call = server.open()
        await send(call, pair(0), pair(1), close=False)
        assert await replies_of(call) == [0, 1]
        assert await call.code() is grpc.StatusCode.OK
        assert await server.is_served()


async def test_a_refusal_reaches_a_client_that_still_sends() -> None:
    async def refuse(requests: Requests) -> Replies:
        await anext(requests)
        yield frame_score(0)
        raise StatusError("INVALID_ARGUMENT", "frame_index 7 follows 5")

    async with scoring_server(refuse) as server:
        call = server.open()
        await send(call, config(), close=False)
        assert (await call.read()).HasField("frame_score")
        assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert await call.details() == "frame_index 7 follows 5"
        assert server.calls.outcomes == ["StatusError"]


async def test_a_client_that_opens_a_stream_and_sends_nothing_never_reaches_the_servicer(
    server: ScoringServer,
) -> None:
    call = server.open()
    assert await server.is_served()  # after the call above, on the same connection
    call.cancel()
    assert await server.is_served()
    assert server.calls.outcomes == []


async def test_a_client_that_stalls_is_ended() -> None:
    async with scoring_server(idle_seconds=0.2) as server:
        call = server.open()
        await call.write(config())
        async with asyncio.timeout(60):
            assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert await call.details() == "the next message did not arrive within 0.2 s"
        assert server.calls.outcomes == ["StatusError"]
        assert server.metric("calls_without_message_total", reason="timeout") == 1
        assert await server.is_served()


async def test_a_malformed_message_is_invalid(server: ScoringServer) -> None:
    raw: Any = server.channel.stream_stream("/vmafx.v1.VmafxScoring/ScoreStream")
    call = raw()
    await call.write(config().SerializeToString())
    await call.write(b"\xff\xff")
    assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert server.calls.outcomes == ["StatusError"]


async def test_a_message_that_is_too_large_ends_the_call_and_is_not_taken_for_the_end() -> None:
    async with scoring_server(message_bytes=MIB) as server:
        fits = server.open()
        await send(fits, config(), pair(0, MIB - 100))
        assert await replies_of(fits) == [0, -1]
        call = server.open()
        await send(call, config(), pair(0), close=False)
        assert (await call.read()).frame_score.frame_index == 0
        await call.write(pair(1, MIB + 100))
        async with asyncio.timeout(60):
            assert await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        await eventually(lambda: len(server.calls.outcomes) == 2, "the servicer has ended")
        # gRPC may report the end of the messages before it cancels the call: the reply that follows has no reader.
        assert server.calls.outcomes in (["returned", "CancelledError"], ["returned", "GeneratorExit"])
        assert await server.is_served()


@pytest.mark.parametrize("during", ["read", "work", "write"])
async def test_a_cancellation_reaches_the_servicer(during: str) -> None:
    replied = asyncio.Event()  # the first reply is written, and the servicer runs again

    async def score(requests: Requests) -> Replies:
        await anext(requests)
        yield frame_score(0)
        replied.set()
        if during == "work":
            await asyncio.Event().wait()
        while during == "write":
            yield frame_score(1, size=MIB)
        async for _ in requests:
            pass
        yield aggregate(0)

    async with scoring_server(score) as server:
        call = server.open()
        await call.write(config())
        assert (await call.read()).HasField("frame_score")
        await replied.wait()
        call.cancel()
        await eventually(lambda: server.calls.outcomes, "the servicer has ended")
        # A generator that is not running, since its reply is being written, is closed. While it waits for a message,
        # gRPC may report the end of the messages before it cancels the call: the reply that follows has no reader.
        expected = {"write": {"GeneratorExit"}, "work": {"CancelledError"}, "read": {"CancelledError", "GeneratorExit"}}
        assert {*server.calls.outcomes} <= expected[during]
        assert await server.is_served()


async def test_a_wait_for_a_message_may_be_cancelled_and_continued() -> None:
    """A servicer that must do something else in time, such as score what it has, loses no message by that."""
    waits = 0

    async def impatient(requests: Requests) -> Replies:
        nonlocal waits
        while True:
            try:
                async with asyncio.timeout(0.01):
                    request = await anext(requests)
            except TimeoutError:
                waits += 1
            except StopAsyncIteration:
                yield aggregate(waits)
                return
            else:
                yield frame_score(request.frame_pair.frame_index)

    async with scoring_server(impatient) as server:
        call = server.open()
        for index in range(4):
            await call.write(pair(index))
            assert (await call.read()).frame_score.frame_index == index
            goal = waits + 3
            await eventually(lambda goal=goal: waits >= goal, "it waits in vain", every=0.01)  # type: ignore[misc]
        await call.done_writing()
        assert len(await replies_of(call)) == 1


async def test_a_client_cannot_send_far_ahead_of_the_servicer() -> None:
    """Nothing is read before the servicer asks for it, so flow control stops the client."""
    # Messages of 1 MiB, and how many may be in buffers of sockets and windows of HTTP/2, which grow with the time that
    # pings take: on a busy machine to 16 MiB for the connection, and the same for the call.
    total, ahead = 128, 40
    read, sent, may_read = 0, 0, asyncio.Semaphore(1)

    async def slow(requests: Requests) -> Replies:
        nonlocal read
        while True:
            await may_read.acquire()
            if await anext(requests, None) is None:
                break
            read += 1
        yield aggregate(read)

    async with scoring_server(slow, message_bytes=2 * MIB) as server:
        call = server.open()

        async def send_all() -> None:
            nonlocal sent
            for index in range(total):
                await call.write(pair(index, MIB))
                sent += 1
            await call.done_writing()

        sending = asyncio.create_task(send_all())
        for step in range(1, 20):
            await eventually(lambda step=step: read == step, "it has read a message", every=0.001)  # type: ignore[misc]
            for _ in range(20):  # the connection is in use all the time
                assert await server.is_served()
            assert sent <= step + ahead
            may_read.release()
        for _ in range(total + 1):
            may_read.release()
        assert await replies_of(call) == [-total]
        await sending


@pytest.mark.parametrize("size", [MIB, 32 * MIB], ids=["later", "first"])  # the reply that has no room
async def test_a_client_that_reads_no_replies_is_ended(size: int) -> None:
    async def endless(requests: Requests) -> Replies:
        await anext(requests)
        while True:
            yield frame_score(0, size)

    async with scoring_server(endless, write_seconds=0.2) as server:
        call = server.open()
        await call.write(config())
        await eventually(lambda: server.calls.outcomes, "the servicer has ended")
        assert server.calls.outcomes == ["GeneratorExit"]
        assert await server.is_served()
        with pytest.raises(grpc.aio.AioRpcError, match=r"no reply was read for 0\.2 s") as error:
            await replies_of(call)  # it reads again, and learns why
        assert error.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_stream_outlives_the_age_of_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {**dict(rpc_server.SERVER_OPTIONS), "grpc.max_connection_age_ms": 200}
    monkeypatch.setattr(rpc_server, "SERVER_OPTIONS", tuple(options.items()))
    async with scoring_server(last_call_seconds=3600) as server:
        call = server.open()
        await call.write(config())

        async def peer() -> str:
            return (await server.stub.Health(wire.HealthRequest(), wait_for_ready=True)).message

        first = await peer()

        async def has_new_connection() -> bool:
            return await peer() != first

        await eventually(has_new_connection, "the channel has another connection")
        await call.write(pair(0))
        assert (await call.read()).frame_score.frame_index == 0
        call.cancel()


class QueuedContext:
    """Messages that arrive when a test says so, in virtual time."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Any] = asyncio.Queue()

    async def read(self) -> Any:
        return await self.queue.get()


def test_only_the_time_that_the_servicer_waits_counts_as_idle() -> None:
    async def scenario() -> list[str]:
        service = RpcService(wire.DESCRIPTOR.services_by_name["VmafxScoring"], "server", "vmafx_test")
        reader, context = MessageReader(service, InsecureAccess(), CollectorRegistry()), QueuedContext()
        requests = RequestStream(reader, context, "first", 20.0)  # type: ignore[arg-type]
        seen = [await anext(requests)]
        await asyncio.sleep(3600)  # of work
        asyncio.get_running_loop().call_later(19, context.queue.put_nowait, "second")
        seen.append(await anext(requests))
        for _ in range(3):  # waits that end early do not start the time again
            try:
                async with asyncio.timeout(9):
                    await anext(requests)
            except TimeoutError:
                seen.append("early")
            except StatusError as error:
                seen.append(error.code)
        return seen

    assert virtual.run(scenario()) == ["first", "second", "early", "early", "DEADLINE_EXCEEDED"]


async def test_a_call_in_which_only_the_client_streams() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="counting.proto", package="test", syntax="proto3")
    file.message_type.add(name="Number").field.add(
        name="value",
        number=1,
        type=descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
        label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL,
    )
    file.service.add(name="Counting").method.add(
        name="Sum", input_type=".test.Number", output_type=".test.Number", client_streaming=True
    )
    pool = DescriptorPool()
    pool.Add(file)
    number: Any = GetMessageClass(pool.FindMessageTypeByName("test.Number"))

    class Counting:
        async def Sum(self, requests: AsyncIterator[Any], _: CallerCredentials) -> Any:  # noqa: N802
            return number(value=sum([request.value async for request in requests]))

    service = RpcService(pool.FindServiceByName("test.Counting"), "counter", "vmafx_test", limits=RpcLimits())
    registry = CollectorRegistry()
    async with (
        serve_grpc(ListenAddress(LOCAL, 0), None, service, Counting(), InsecureAccess(), registry, 0.0) as port,
        grpc.aio.insecure_channel(f"{LOCAL}:{port}", CHANNEL_OPTIONS) as channel,
    ):
        total: Any = channel.stream_unary("/test.Counting/Sum", number.SerializeToString, number.FromString)
        assert (await total(number(value=value) for value in range(5))).value == 10
