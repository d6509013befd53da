"""The gRPC service of `vmafx serve`, called by a client that knows nothing but the names, numbers and types."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass

from tests.support.serve_process import ServeProcess
from tests.support.waiting import eventually
from tests.support.wire_tables import file_descriptor
from tests.unit.wire.test_scoring import MESSAGES, PIXEL_FORMATS

WIDTH, HEIGHT, FRAMES = 96, 64, 300
FRAME_BYTES = WIDTH * HEIGHT * 3 // 2
YUV420P = 1
SERVICE = "vmafx.v1.VmafxScoring"

Pair = tuple[bytes, bytes]


class OldClient:
    """Messages and calls of the original proto, built from a table of its numbers."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel
        found = file_descriptor("vmafx.v1", MESSAGES, {"PixelFormat": PIXEL_FORMATS})
        self.messages = {name: GetMessageClass(found.message_types_by_name[name]) for name in MESSAGES}

    def make(self, name: str, **fields: Any) -> Any:
        return self.messages[name](**fields)

    async def call(self, method: str, request: Any, reply: str) -> Any:
        path = f"/{SERVICE}/{method}"
        send, receive = type(request).SerializeToString, self.messages[reply].FromString
        return await self._channel.unary_unary(path, send, receive)(request, timeout=120)

    def stream(self) -> Any:
        send = self.messages["ScoreStreamRequest"].SerializeToString
        receive = self.messages["ScoreStreamResponse"].FromString
        return self._channel.stream_stream(f"/{SERVICE}/ScoreStream", send, receive)(timeout=120)

    def config(self, **fields: Any) -> Any:
        config = {"width": WIDTH, "height": HEIGHT, "pixel_format": YUV420P, **fields}
        return self.make("ScoreStreamRequest", config=self.make("StreamConfig", **config))

    def frame(self, number: int, pair: Pair) -> Any:
        frame = self.make("FramePair", frame_index=number, raw_reference=pair[0], raw_distorted=pair[1])
        return self.make("ScoreStreamRequest", frame_pair=frame)


@asynccontextmanager
async def connected(server: ServeProcess) -> AsyncIterator[OldClient]:
    options = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc_port}", options) as channel:
        yield OldClient(channel)


def make_pairs(count: int) -> list[Pair]:
    """Moving noise, and the same with some of its samples changed."""
    source = random.Random(7)
    noise = source.randbytes(FRAME_BYTES * 2)
    pairs = []
    for number in range(count):
        reference = noise[number * 3 : number * 3 + FRAME_BYTES]
        distorted = bytearray(reference)
        for at in range(number % 7, FRAME_BYTES, 7):
            distorted[at] = (distorted[at] + 40) % 256
        pairs.append((reference, bytes(distorted)))
    return pairs


def write_y4m(path: Path, frames: Iterable[bytes]) -> Path:
    header = f"YUV4MPEG2 W{WIDTH} H{HEIGHT} F25:1 Ip A1:1 C420jpeg\n".encode()
    path.write_bytes(header + b"".join(b"FRAME\n" + frame for frame in frames))
    return path


async def test_a_client_of_the_original_proto_scores_and_streams_300_frames(tmp_path: Path) -> None:
    pairs = make_pairs(FRAMES)
    reference = write_y4m(tmp_path / "reference.y4m", (pair[0] for pair in pairs))
    distorted = write_y4m(tmp_path / "distorted.y4m", (pair[1] for pair in pairs))
    async with ServeProcess(tmp_path, roots=tmp_path) as server, connected(server) as client:
        health = await client.call("Health", client.make("HealthRequest"), "HealthResponse")
        assert (health.ok, health.message) == (True, "")
        request = client.make("ScoreRequest", reference=str(reference), distorted=distorted.as_uri())
        scored = await client.call("Score", request, "ScoreResponse")
        by_http = (await server.score(reference, distorted)).json()
        assert scored.score == by_http["score"]
        assert scored.features["vmaf"] == by_http["features"]["vmaf"]["mean"]

        call, replies = client.stream(), []

        async def send() -> None:
            await call.write(client.config(frame_count_hint=FRAMES))
            for number, pair in enumerate(pairs):
                await call.write(client.frame(number, pair))
            await call.done_writing()

        async with asyncio.TaskGroup() as group:
            group.create_task(send())
            replies = [reply async for reply in call]
    frames = [reply.frame_score for reply in replies if reply.WhichOneof("payload") == "frame_score"]
    assert [frame.frame_index for frame in frames] == list(range(FRAMES))
    assert replies[-1].WhichOneof("payload") == "aggregate"
    aggregate = replies[-1].aggregate
    assert aggregate.frames_processed == FRAMES
    assert aggregate.score == scored.score  # runs are exact
    assert dict(aggregate.features) == dict(scored.features)
    assert aggregate.elapsed_ms > 0


async def test_scores_of_frames_come_before_the_stream_ends(tmp_path: Path) -> None:
    pairs = make_pairs(60)
    async with ServeProcess(tmp_path) as server, connected(server) as client:
        call = client.stream()
        await call.write(client.config())
        for number, pair in enumerate(pairs[:40]):
            await call.write(client.frame(number, pair))
        first = await call.read()  # the client has not closed its side
        assert first.frame_score.frame_index == 0
        call.cancel()
        await eventually(lambda: running(server) == 0, "the slot of the stream is free")
        request = client.make("ScoreRequest", reference="/none.mp4", distorted="/none.mp4")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.call("Score", request, "ScoreResponse")
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def send_all(client: OldClient, messages: Iterable[Any]) -> None:
    call = client.stream()
    for message in messages:
        await call.write(message)
    await call.done_writing()
    async for _ in call:
        pass


def running(server: ServeProcess) -> int:
    """Engines of the server that run."""
    assert server.process is not None
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
    return len(children)


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        (lambda client: [client.frame(0, (b"", b""))], "the first message of a stream must have its config"),
        (lambda client: [client.config(pixel_format=0)], "pixel_format must be one of PIXEL_FORMAT_YUV420P"),
        (lambda client: [client.config(width=32)], "too small for VMAF"),
        (lambda client: [client.config(frame_count_hint=2_000_001)], "at most 2,000,000 frames"),
        (lambda client: [client.config(model="file:///etc/passwd")], "is not served"),
        (lambda client: [client.config(), client.config()], "must have a frame_pair"),
        (lambda client: [client.config(), client.frame(1, (b"", b""))], "the next frame is 0"),
        (lambda client: [client.config(), client.frame(0, (b"x", b"x"))], "has 1 bytes, but a frame of 96x64"),
        (lambda client: [client.config()], "no frame"),
    ],
)
async def test_a_stream_that_is_wrong_is_refused_with_a_reason(
    messages: Any, problem: str, server: ServeProcess
) -> None:
    async with connected(server) as client:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await send_all(client, messages(client))
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert problem in str(refused.value.details())


async def test_calls_need_a_key_if_http_does(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("ci 0123456789abcdef\n")
    async with (
        ServeProcess(tmp_path, "--auth", "keys", "--keys", str(keys)) as server,
        connected(server) as client,
    ):
        request = client.make("ScoreRequest", reference="/a.mp4", distorted="/b.mp4")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.call("Score", request, "ScoreResponse")
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert (await client.call("Health", client.make("HealthRequest"), "HealthResponse")).ok
        metrics = (await server.get("/metrics")).body.decode()
        assert 'vmafx_serve_calls_total{code="UNAUTHENTICATED",method="Score"} 1.0' in metrics
        assert json.dumps("0123456789abcdef") not in server.log.read_text()
