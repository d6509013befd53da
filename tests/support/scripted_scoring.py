"""A scoring service whose calls a test writes, on a real gRPC server, and its client."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any, NamedTuple

import grpc
from prometheus_client import CollectorRegistry

from vmafx.auth.access import InsecureAccess
from vmafx.auth.credentials import CallerCredentials
from vmafx.http.address import ListenAddress
from vmafx.http.errors import StatusError
from vmafx.rpc.server import serve_grpc
from vmafx.rpc.service import RpcLimits, RpcService
from vmafx.wire import scoring_pb2 as wire
from vmafx.wire.scoring_pb2_grpc import VmafxScoringStub

LOCAL = "127.0.0.1"
CHANNEL_OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1))

Requests = AsyncIterator[wire.ScoreStreamRequest]
Replies = AsyncGenerator[wire.ScoreStreamResponse]


def config(width: int = 16) -> wire.ScoreStreamRequest:
    return wire.ScoreStreamRequest(config=wire.StreamConfig(width=width, height=16))


def pair(index: int, size: int = 0) -> wire.ScoreStreamRequest:
    return wire.ScoreStreamRequest(frame_pair=wire.FramePair(frame_index=index, raw_reference=bytes(size)))


def frame_score(index: int, size: int = 0) -> wire.ScoreStreamResponse:
    return wire.ScoreStreamResponse(
        frame_score=wire.FrameScore(frame_index=index, features={"x" * size: 1.0} if size else {})
    )


def aggregate(frames: int) -> wire.ScoreStreamResponse:
    return wire.ScoreStreamResponse(aggregate=wire.AggregateScore(frames_processed=frames))


async def score_each(requests: Requests) -> Replies:
    """A score for each frame pair, and an aggregate at the end."""
    frames = 0
    async for request in requests:
        if request.HasField("frame_pair"):
            yield frame_score(request.frame_pair.frame_index)
            frames += 1
    yield aggregate(frames)


class ScriptedScoring:
    """`stream` and `score` are set by the test; Health answers with the caller's address."""

    def __init__(self, stream: Callable[[Requests], Replies]) -> None:
        self.stream = stream
        self.score: Callable[[], Awaitable[wire.ScoreResponse]] = _score
        self.outcomes: list[str] = []  # how each stream has ended: returned, or the name of the exception

    async def Score(self, _request: wire.ScoreRequest, _: CallerCredentials) -> wire.ScoreResponse:  # noqa: N802
        return await self.score()

    async def ScoreStream(self, requests: Requests, _: CallerCredentials) -> Replies:  # noqa: N802
        outcome = "returned"
        try:
            async with aclosing(self.stream(requests)) as replies:
                async for reply in replies:
                    yield reply
        except BaseException as error:
            outcome = type(error).__name__
            raise
        finally:
            self.outcomes.append(outcome)

    async def Health(  # noqa: N802
        self, _: wire.HealthRequest, credentials: CallerCredentials
    ) -> wire.HealthResponse:
        return wire.HealthResponse(ok=True, message=credentials.peer)


async def _score() -> wire.ScoreResponse:
    return wire.ScoreResponse(score=100.0)


class ScoringServer(NamedTuple):
    service: RpcService
    calls: ScriptedScoring
    channel: grpc.aio.Channel
    registry: CollectorRegistry

    @property
    def stub(self) -> VmafxScoringStub:
        return VmafxScoringStub(self.channel)

    def open(self) -> Any:
        return self.stub.ScoreStream()

    async def is_served(self) -> bool:
        return (await self.stub.Health(wire.HealthRequest(), timeout=60)).ok

    def metric(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"{self.service.metrics_prefix}_{name}", labels)


class ScoringError(Exception):
    """An error of the role, which it translates."""


@asynccontextmanager
async def scoring_server(
    stream: Callable[[Requests], Replies] = score_each,
    *,
    wrap: Callable[[RpcService, CollectorRegistry, Any], Any] = lambda _service, _registry, servicer: servicer,
    **limits: Any,
) -> AsyncIterator[ScoringServer]:
    """Serve with these limits; `wrap` adds middleware to the servicer."""
    service = RpcService(
        wire.DESCRIPTOR.services_by_name["VmafxScoring"],
        name="scoring server",
        metrics_prefix="vmafx_test",
        translate=lambda error: StatusError("ABORTED", str(error)) if isinstance(error, ScoringError) else None,
        limits=RpcLimits(**limits),
    )
    calls, registry = ScriptedScoring(stream), CollectorRegistry()
    servicer = wrap(service, registry, calls)
    async with (
        serve_grpc(ListenAddress(LOCAL, 0), None, service, servicer, InsecureAccess(), registry, 0.0) as port,
        grpc.aio.insecure_channel(f"{LOCAL}:{port}", CHANNEL_OPTIONS) as channel,
    ):
        yield ScoringServer(service, calls, channel, registry)


async def send(call: Any, *messages: wire.ScoreStreamRequest, close: bool = True) -> None:
    for message in messages:
        await call.write(message)
    if close:
        await call.done_writing()


async def replies_of(call: Any) -> list[int]:
    """The index of each frame score until the stream ends; of the aggregate, the negative number of frames."""
    found = []
    async with asyncio.timeout(60):
        while (reply := await call.read()) is not grpc.aio.EOF:
            is_frame = reply.HasField("frame_score")
            found.append(reply.frame_score.frame_index if is_frame else -reply.aggregate.frames_processed)
    return found
