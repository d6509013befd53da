"""The gRPC service `vmafx.v1.VmafxScoring`: scores of clips by URI, and of raw frames as they arrive."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing

import msgspec

from vmafx.auth.callers import Callers
from vmafx.auth.credentials import CallerCredentials
from vmafx.http.errors import StatusError
from vmafx.rpc.service import RpcLimits, RpcService
from vmafx.scoring.engines.engine import FrameFormat
from vmafx.scoring.errors import ScoringError
from vmafx.scoring.frame_stream import PIXEL_FORMATS, FrameScorer, FrameScores, RawPair, StreamSummary
from vmafx.scoring.request import ClipLimits, ScoreOptions
from vmafx.scoring.result import FeatureStatistics
from vmafx.serving.job import JobError
from vmafx.serving.request import ScoreRequest
from vmafx.serving.service import ScoringService
from vmafx.wire import scoring_pb2 as wire

SERVICE = wire.DESCRIPTOR.services_by_name["VmafxScoring"]
MAX_MESSAGE = 100 << 20  # bytes: a pair of frames of 3840x2160 in 4:4:4 with 10 bits has 95 MiB
FORMATS = {wire.PixelFormat.Value(f"PIXEL_FORMAT_{name.upper()}"): name for name in PIXEL_FORMATS}
SCORING = RpcService(
    descriptor=SERVICE,
    name="server",
    metrics_prefix="vmafx_serve",
    translate=lambda error: JobError.of(error).raised() if isinstance(error, ScoringError) else None,
    # The caller of a call without a message is not known yet, and its message may be large: 1.6 GB at most.
    limits=RpcLimits(
        message_bytes=MAX_MESSAGE, waiting_calls=16, idle_seconds=60.0, write_seconds=60.0, last_call_seconds=4 * 3600.0
    ),
)


class _Answer(msgspec.Struct):
    """What gRPC sends of a result."""

    score: float
    features: dict[str, FeatureStatistics]


class ScoringServicer:
    """The calls, over the same service as HTTP. `not_ready` says why the server is not ready, or None."""

    def __init__(
        self, service: ScoringService, callers: Callers, frames: FrameScorer, not_ready: Callable[[], str | None]
    ) -> None:
        self._service, self._callers, self._frames, self._not_ready = service, callers, frames, not_ready

    async def Score(self, request: wire.ScoreRequest, credentials: CallerCredentials) -> wire.ScoreResponse:
        caller = await self._callers.identify(credentials, "Score")
        for name in ("reference", "distorted"):
            if not getattr(request, name):
                raise StatusError("INVALID_ARGUMENT", f"{name} is missing; give a URI, or the path of a clip")
        spec = ScoreRequest(reference=request.reference, distorted=request.distorted, model=request.model)
        answer = await self._service.known_answer(spec, {})
        if answer is None:
            job = self._service.submit(spec, caller, {})
            try:
                await self._service.wait_until_finished(job)
            except asyncio.CancelledError:  # the client is gone
                self._service.cancel(job)
                raise
            answer = await self._service.answer(job)
        result = msgspec.json.decode(answer, type=_Answer)
        return wire.ScoreResponse(score=result.score, features=_means(result.features))

    async def ScoreStream(
        self, requests: AsyncIterator[wire.ScoreStreamRequest], credentials: CallerCredentials
    ) -> AsyncGenerator[wire.ScoreStreamResponse]:
        """A stream takes a turn like a job, and frames are read from the client only as they are scored."""
        caller = await self._callers.identify(credentials, "ScoreStream")
        first = await anext(requests, None)
        if first is None or first.WhichOneof("payload") != "config":
            raise StatusError("INVALID_ARGUMENT", "the first message of a stream must have its config")
        config = first.config
        if config.pixel_format not in FORMATS:
            known = ", ".join(wire.PixelFormat.Name(number) for number in FORMATS)
            raise StatusError("INVALID_ARGUMENT", f"pixel_format must be one of {known}")
        if config.frame_count_hint > (limit := ClipLimits().frames):
            raise StatusError("INVALID_ARGUMENT", f"a stream has at most {limit:,} frames")
        frames = FrameFormat(config.width, config.height, FORMATS[config.pixel_format])
        model = self._service.models.choose(config.model)
        async with self._service.slot(caller) as threads:
            scored = self._frames.stream(frames, _pairs(requests), ScoreOptions(model=model, threads=threads))
            async with aclosing(scored) as replies:
                async for reply in replies:
                    yield _response(reply)

    async def Health(self, _request: wire.HealthRequest, _credentials: CallerCredentials) -> wire.HealthResponse:
        problem = self._not_ready()
        return wire.HealthResponse(ok=problem is None, message=problem or "")


async def _pairs(requests: AsyncIterator[wire.ScoreStreamRequest]) -> AsyncGenerator[RawPair]:
    """The frames of a stream. Raises StatusError if a message is none, or is out of order."""
    expected = 0
    async for request in requests:
        if request.WhichOneof("payload") != "frame_pair":
            raise StatusError("INVALID_ARGUMENT", "all messages of a stream but the first must have a frame_pair")
        pair = request.frame_pair
        if pair.frame_index != expected:
            raise StatusError(
                "INVALID_ARGUMENT", f"frame_index is {pair.frame_index:,}, but the next frame is {expected:,}"
            )
        expected += 1
        yield RawPair(pair.raw_reference, pair.raw_distorted)


def _response(reply: FrameScores | StreamSummary) -> wire.ScoreStreamResponse:
    if isinstance(reply, StreamSummary):
        aggregate = wire.AggregateScore(
            frames_processed=reply.received,
            score=reply.score,
            features=_means(reply.features),
            elapsed_ms=reply.elapsed_ms,
        )
        return wire.ScoreStreamResponse(aggregate=aggregate)
    frame = wire.FrameScore(frame_index=reply.number, score=reply.score, features=reply.values)
    return wire.ScoreStreamResponse(frame_score=frame)


def _means(features: Mapping[str, FeatureStatistics]) -> dict[str, float]:
    return {name: statistics.mean for name, statistics in features.items()}
