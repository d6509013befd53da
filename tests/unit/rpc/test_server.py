"""What the server adds to every service: errors as status codes, health, reflection, metrics and limits."""

from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from prometheus_client import CollectorRegistry

from tests.support.scripted_scoring import (
    Replies,
    Requests,
    ScoringError,
    config,
    frame_score,
    pair,
    replies_of,
    scoring_server,
    send,
)
from tests.support.waiting import eventually
from vmafx.auth.access import InsecureAccess
from vmafx.auth.fair_limit import FairLimit
from vmafx.http.errors import StatusError
from vmafx.rpc.middleware import CallLimits, CallMetrics
from vmafx.rpc.service import RpcService
from vmafx.wire import scoring_pb2 as wire


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (StatusError("NOT_FOUND", "no such model"), "NOT_FOUND", "no such model"),
        (ScoringError("the engine is busy"), "ABORTED", "the engine is busy"),
        (ValueError("secret"), "INTERNAL", "internal error; the scoring server's log has the details"),
    ],
)
@pytest.mark.parametrize("call", ["Score", "ScoreStream"])
async def test_errors_become_status_codes(call: str, error: Exception, code: str, message: str) -> None:
    async def fail() -> wire.ScoreResponse:
        raise error

    async def fail_stream(_: Requests) -> Replies:
        yield frame_score(0)
        raise error

    async with scoring_server(fail_stream, wrap=measure) as server:
        server.calls.score = fail
        stream = server.open()
        await send(stream, config())
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await (server.stub.Score(wire.ScoreRequest()) if call == "Score" else replies_of(stream))
        assert (failure.value.code(), failure.value.details()) == (getattr(grpc.StatusCode, code), message)
        assert server.metric("calls_total", method=call, code=code) == 1
        assert server.metric("calls_total", method=call, code="OK") == 0


def measure(service: RpcService, registry: CollectorRegistry, servicer: Any) -> Any:
    return CallMetrics(service, registry).wrap(servicer)


async def test_streams_are_counted_when_they_end() -> None:
    async with scoring_server(wrap=measure) as server:
        call = server.open()
        await send(call, config(), pair(0))
        assert await replies_of(call) == [0, -1]
        assert server.metric("calls_total", method="ScoreStream", code="OK") == 1
        assert server.metric("call_seconds_count", method="ScoreStream") == 1
        cancelled = server.open()
        await send(cancelled, config(), pair(0), close=False)
        await cancelled.read()
        cancelled.cancel()
        await eventually(
            lambda: server.metric("calls_total", method="ScoreStream", code="CANCELLED") == 1, "it is counted"
        )


async def test_streams_are_limited_per_caller() -> None:
    def limit(service: RpcService, _: CollectorRegistry, servicer: Any) -> Any:
        limits = {name: FairLimit(100, "calls") for name in ("Score", "Health")}
        limits["ScoreStream"] = FairLimit(4, "streams")  # a caller gets two
        return CallLimits(service.descriptor, InsecureAccess(), limits, ["ScoreStream"]).wrap(servicer)

    async with scoring_server(wrap=limit) as server:
        held = [server.open() for _ in range(2)]
        for call in held:
            await send(call, config(), pair(0), close=False)
            assert (await call.read()).HasField("frame_score")
        refused = server.open()
        await refused.write(config())
        assert await refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "too many streams at the same time" in await refused.details()
        assert await server.is_served()
        await held.pop().done_writing()

        async def has_room() -> bool:
            call = server.open()
            await send(call, config())
            try:
                return await replies_of(call) == [0]
            except grpc.aio.AioRpcError:
                return False

        await eventually(has_room, "there is room again")
        held.pop().cancel()


async def test_health_and_reflection_know_the_service() -> None:
    async with scoring_server() as server:
        health: Any = health_pb2_grpc.HealthStub(server.channel)
        checked = await health.Check(health_pb2.HealthCheckRequest(service="vmafx.v1.VmafxScoring"))
        assert checked.status == health_pb2.HealthCheckResponse.SERVING
        stub: Any = reflection_pb2_grpc.ServerReflectionStub(server.channel)  # type: ignore[arg-type]
        requests = [
            reflection_pb2.ServerReflectionRequest(list_services=""),
            reflection_pb2.ServerReflectionRequest(file_containing_symbol="vmafx.v1.VmafxScoring"),
        ]
        listed, found = [reply async for reply in stub.ServerReflectionInfo(iter(requests))]
        assert [service.name for service in listed.list_services_response.service] == [
            "grpc.health.v1.Health",
            "grpc.reflection.v1alpha.ServerReflection",
            "vmafx.v1.VmafxScoring",
        ]
        assert b"ScoreStream" in found.file_descriptor_response.file_descriptor_proto[0]


async def test_a_call_that_the_servicer_does_not_have_is_unimplemented() -> None:
    async with scoring_server() as server:
        missing: Any = server.channel.unary_unary("/grpc.health.v1.Health/List")
        assert await missing(b"").code() is grpc.StatusCode.UNIMPLEMENTED
