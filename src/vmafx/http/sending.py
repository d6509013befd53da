"""Sends responses with aiohttp: whole ones and streams. A client that does not read is disconnected."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, NamedTuple, cast

from aiohttp import web

from vmafx.http.events import encode_event, encoded_events
from vmafx.http.limits import ServerLimits
from vmafx.http.problems import ProblemDetails
from vmafx.http.request import ID_HEADER, request_id
from vmafx.http.responses import (
    EVENTS,
    NDJSON,
    AnyResponse,
    ByteStream,
    EventStream,
    JsonStream,
    Response,
    ServerEvent,
)
from vmafx.logs import log

BLOCK_SIZE = 256 << 10  # bytes of a body that the client must read within write_seconds
BUFFERED_SIZE = 32 << 10  # bytes of a body that an empty buffer takes without waiting: half of what it holds
CACHEABLE = {"GET", "HEAD"}
DEFAULT_HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}


class ResponseSender:
    """Sends responses. `problem_of` describes an error that occurs in a stream."""

    def __init__(self, limits: ServerLimits, problem_of: Callable[[Exception, web.Request], ProblemDetails]) -> None:
        self._limits, self._problem_of = limits, problem_of
        self._streams: set[asyncio.Task[Any]] = set()

    def cancel_streams(self) -> None:
        """Streams do not end on their own."""
        for task in self._streams:
            task.cancel()

    async def send(self, request: web.Request, response: AnyResponse) -> web.StreamResponse:
        """Send all but the end of a response, which `finish` sends; a small response is sent there as a whole."""
        match response:
            case Response():
                return await self._send_whole(request, response)
            case JsonStream():
                return await self._send_stream(request, json_lines(response))
            case EventStream():
                return await self._send_stream(request, event_frames(response, self._limits.idle_event_seconds))
            case ByteStream():
                return await self._send_stream(request, encoded_blocks(response))

    async def finish(self, request: web.Request, response: web.StreamResponse) -> None:
        if _is_buffered(request, response):
            await _write_end(request, response)
            return
        async with self._write_timeout(request):
            await _write_end(request, response)

    async def _send_whole(self, request: web.Request, response: Response) -> web.StreamResponse:
        if _is_unchanged(request, response):
            return web.Response(status=304, headers=_headers(request, response.headers))
        if len(response.body) <= BLOCK_SIZE:
            return to_aiohttp(request, response)

        sent = web.StreamResponse(status=response.status, headers=_response_headers(request, response))
        sent.content_length = len(response.body)
        await sent.prepare(request)
        body = memoryview(response.body if request.method != "HEAD" else b"")
        for start in range(0, len(body), BLOCK_SIZE):
            async with self._write_timeout(request):
                await sent.write(body[start : start + BLOCK_SIZE])
        return sent

    async def _send_stream(self, request: web.Request, stream: "_Stream") -> web.StreamResponse:
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._streams.add(task)
        try:
            async with aclosing(stream.frames):
                return await self._send_frames(request, stream)
        finally:
            self._streams.discard(task)

    async def _send_frames(self, request: web.Request, stream: "_Stream") -> web.StreamResponse:
        """An error before the first frame becomes the response's status; a later one is sent as the last frame."""
        response = web.StreamResponse(status=stream.status or 200, headers=_headers(request, stream.headers))
        first = asyncio.create_task(_next(stream.frames))
        try:
            await asyncio.wait({first}, timeout=0 if stream.status else self._limits.first_object_seconds)
            if first.done():
                first.result()  # raises while the status can still be set
            await response.prepare(request)
            if request.method == "HEAD":
                return response
            try:
                frame = await first
                while frame is not None:
                    async with self._write_timeout(request):
                        await response.write(frame)
                    frame = await _next(stream.frames)
            except ConnectionError:
                raise
            except Exception as error:  # noqa: BLE001 - every error is reported to the client
                last = stream.error_frame(self._problem_of(error, request))
                async with self._write_timeout(request):
                    await response.write(last)
            return response
        finally:
            first.cancel()  # a generator cannot be closed while it runs
            await asyncio.wait({first})

    @asynccontextmanager
    async def _write_timeout(self, request: web.Request) -> AsyncIterator[None]:
        """Disconnect a client that does not read: writes block while the connection's buffers are full."""
        try:
            async with asyncio.timeout(self._limits.write_seconds):
                yield
        except TimeoutError:
            log.info(
                "client does not read the response; closing the connection",
                path=request.path, peer=request.remote, request_id=request_id(request),
            )  # fmt: skip
            _disconnect(request)
            raise ConnectionResetError("the client does not read the response") from None


class _Stream(NamedTuple):
    """A stream as the bytes to send, and how an error ends it."""

    headers: dict[str, str]
    frames: AsyncGenerator[bytes]
    error_frame: Callable[[ProblemDetails], bytes]
    status: int = 0  # if it is known before the first frame; otherwise an error may still change it


def json_lines(stream: JsonStream) -> _Stream:
    async def lines() -> AsyncGenerator[bytes]:
        async with aclosing(stream.objects):
            async for line in stream.objects:
                yield line + b"\n"

    return _Stream({"Content-Type": NDJSON}, lines(), lambda problem: problem.body() + b"\n")


def event_frames(stream: EventStream, idle_seconds: float) -> _Stream:
    headers = {"Content-Type": EVENTS, "X-Accel-Buffering": "no"}  # nginx would hold back events
    frames = encoded_events(stream.events, idle_seconds)
    return _Stream(headers, frames, lambda problem: encode_event(ServerEvent(problem.body(), "error")))


def encoded_blocks(stream: ByteStream) -> _Stream:
    return _Stream(dict(stream.headers), stream.blocks, lambda _problem: b"", stream.status)


def to_aiohttp(request: web.Request, response: Response) -> web.Response:
    return web.Response(status=response.status, body=response.body, headers=_response_headers(request, response))


def _response_headers(request: web.Request, response: Response) -> dict[str, str]:
    return _headers(request, {"Content-Type": response.content_type, **response.headers})


def _headers(request: web.Request, headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of a response, with those that every response has."""
    return {**DEFAULT_HEADERS, **headers, "Server": "vmafx", ID_HEADER: request_id(request)}


async def _write_end(request: web.Request, response: web.StreamResponse) -> None:
    await response.prepare(request)
    await response.write_eof()


def _is_buffered(request: web.Request, response: web.StreamResponse) -> bool:
    """Whether all that is left of a response fits into the buffer of its connection: then writing does not wait."""
    if not isinstance(response, web.Response) or response.prepared or request.transport is None:
        return False
    body = response.body
    size = len(body) if isinstance(body, bytes) else 0 if body is None else BUFFERED_SIZE + 1
    return size <= BUFFERED_SIZE and not request.transport.get_write_buffer_size()


def _is_unchanged(request: web.Request, response: Response) -> bool:
    """Whether the client has the response already."""
    etag = response.headers.get("ETag")
    if etag is None or request.method not in CACHEABLE or response.status != 200:
        return False
    known = ",".join(request.headers.getall("If-None-Match", [])).split(",")
    return any(tag.strip().removeprefix("W/") in {etag, "*"} for tag in known)


def _disconnect(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


async def _next(frames: AsyncGenerator[bytes]) -> bytes | None:
    return await anext(frames, None)
