"""Sends responses with aiohttp: whole ones, files and streams. A client that does not read is disconnected."""

import asyncio
import os
import stat
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

from aiohttp import web

from vmafx.http.errors import StatusError
from vmafx.http.events import encode_event, encoded_events
from vmafx.http.limits import ServerLimits
from vmafx.http.problems import ProblemDetails
from vmafx.http.request import request_id
from vmafx.http.responses import (
    EVENTS,
    NDJSON,
    AnyResponse,
    EventStream,
    FileResponse,
    JsonStream,
    Response,
    ServerEvent,
)
from vmafx.logs import log
from vmafx.tasks import in_thread

BLOCK_SIZE = 256 << 10  # bytes of a body that the client must read within write_seconds
CACHEABLE = {"GET", "HEAD"}


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
            case FileResponse():
                return await self._send_file(request, response)
            case JsonStream():
                return await self._send_stream(request, json_lines(response))
            case EventStream():
                return await self._send_stream(request, event_frames(response, self._limits.idle_event_seconds))

    async def finish(self, request: web.Request, response: web.StreamResponse) -> None:
        async with self._write_timeout(request):
            await response.prepare(request)
            await response.write_eof()

    async def _send_whole(self, request: web.Request, response: Response) -> web.StreamResponse:
        if _is_unchanged(request, response):
            return web.Response(status=304, headers=response.headers)
        if len(response.body) <= BLOCK_SIZE:
            return to_aiohttp(response)

        async def blocks() -> AsyncGenerator[memoryview]:
            body = memoryview(response.body)
            for start in range(0, len(body), BLOCK_SIZE):
                yield body[start : start + BLOCK_SIZE]

        return await self._send_blocks(request, response, len(response.body), blocks())

    async def _send_file(self, request: web.Request, response: FileResponse) -> web.StreamResponse:
        fd = response.file if isinstance(response.file, int) else await in_thread(_open, response.file)
        try:
            if _is_unchanged(request, response):
                return web.Response(status=304, headers=response.headers)
            details = os.fstat(fd)
            if not stat.S_ISREG(details.st_mode):
                raise _no_such_file()
            return await self._send_blocks(request, response, details.st_size, _read_blocks(fd, details.st_size))
        finally:
            await in_thread(os.close, fd)  # in a thread: freeing a large file takes time

    async def _send_blocks(
        self,
        request: web.Request,
        response: Response | FileResponse,
        size: int,
        blocks: AsyncGenerator[bytes | memoryview],
    ) -> web.StreamResponse:
        status = response.status if isinstance(response, Response) else 200
        sent = web.StreamResponse(status=status, headers={"Content-Type": response.content_type, **response.headers})
        sent.content_length = size
        async with aclosing(blocks):
            await sent.prepare(request)
            if request.method == "HEAD":
                return sent
            try:
                async for block in blocks:
                    async with self._write_timeout(request):
                        await sent.write(block)
            except OSError as error:  # the status is sent already: only the end of the connection shows the failure
                if not isinstance(error, ConnectionError):
                    log.error("cannot read a file that is being sent", path=request.path, error=str(error))
                    _disconnect(request)
                raise ConnectionResetError("the response was not sent completely") from error
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
        response = web.StreamResponse(headers=stream.headers)
        first = asyncio.create_task(_next(stream.frames))
        try:
            await asyncio.wait({first}, timeout=self._limits.first_object_seconds)
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


def to_aiohttp(response: Response) -> web.Response:
    headers = {"Content-Type": response.content_type, **response.headers}
    return web.Response(status=response.status, body=response.body, headers=headers)


def _is_unchanged(request: web.Request, response: Response | FileResponse) -> bool:
    """Whether the client has the response already."""
    etag = response.headers.get("ETag")
    if etag is None or request.method not in CACHEABLE or (isinstance(response, Response) and response.status != 200):
        return False
    known = ",".join(request.headers.getall("If-None-Match", [])).split(",")
    return any(tag.strip().removeprefix("W/") in {etag, "*"} for tag in known)


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise _no_such_file() from error


def _no_such_file() -> StatusError:
    return StatusError("NOT_FOUND", "the file does not exist, or no longer")


async def _read_blocks(fd: int, size: int) -> AsyncGenerator[bytes]:
    """The first `size` bytes of a file; OSError if it has become shorter."""
    offset = 0
    while offset < size:
        block = await in_thread(os.pread, fd, min(BLOCK_SIZE, size - offset), offset)
        if not block:
            raise OSError(f"the file became shorter: it has {offset:,} bytes and had {size:,}")
        yield block
        offset += len(block)


def _disconnect(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


async def _next(frames: AsyncGenerator[bytes]) -> bytes | None:
    return await anext(frames, None)
