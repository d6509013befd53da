"""From what handlers return or raise to what goes over the connection. Used by server.py alone.

Errors are JSON, `{"code": …, "message": …}`, and say nothing that is not the caller's business.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any, NamedTuple, cast

from aiohttp import web

from vmafx.http.answers import NDJSON, Lines, Page, json_page
from vmafx.http.errors import Refused
from vmafx.http.limits import Limits
from vmafx.http.request import CONTINUE, Request
from vmafx.logs import log

HEADERS = {"Server": "vmafx", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
ERROR_HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": "3"}, 503: {"Retry-After": "3"}}
CLOSING = {408, 413, 507}  # the rest of what was sent is of no interest
OTHER_SITES = {"cross-site", "same-site"}

Handler = Callable[[Request], Awaitable[Page | Lines]]
Translate = Callable[[Exception], Refused | None]
RawHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class _Failure(NamedTuple):
    status: int
    code: str
    message: str

    def body(self) -> bytes:
        return json.dumps({"code": self.code, "message": self.message}).encode()

    def page(self) -> Page:
        return json_page(self.body(), self.status, ERROR_HEADERS.get(self.status))


class Answering:
    """Calls handlers, and sends their answers."""

    def __init__(self, limits: Limits, translate: Translate, not_found: str) -> None:
        self._limits, self._translate, self._not_found = limits, translate, not_found
        self._streams: set[asyncio.Task[Any]] = set()

    def hang_up(self) -> None:
        """Streams have no end of their own."""
        for task in self._streams:
            task.cancel()

    def page(self, make: Callable[[], Page]) -> RawHandler:
        async def answer(_: web.Request) -> web.StreamResponse:
            return _response(make())

        return answer

    def handler(self, handle: Handler) -> RawHandler:
        async def answer(request: web.Request) -> web.StreamResponse:
            _refuse_strange(request)
            async with asyncio.timeout(self._limits.answer_seconds) as deadline:
                asked = Request(request, self._limits, deadline)
                answer = await handle(asked)
            asked.end_deadline()
            return await self._stream(request, answer) if isinstance(answer, Lines) else _response(answer)

        return answer

    @web.middleware
    async def send(self, request: web.Request, handler: RawHandler) -> web.StreamResponse:
        """Whatever the handler does, there is an answer, and it is read or the connection is cut."""
        try:
            answer = await handler(request)
        except ConnectionError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the other callers go on
            answer = _response(self._failure(error, request).page())
            if isinstance(error, web.HTTPMethodNotAllowed):
                answer.headers["Allow"] = error.headers["Allow"]
        if answer.status in CLOSING or (request.headers.get("Expect") and not request.content.is_eof()):
            answer.force_close()  # a caller who was not asked for the body may send another request in its place
        async with self._reader_in_time(request):
            await answer.prepare(request)
            await answer.write_eof()
        return answer

    async def _stream(self, request: web.Request, lines: Lines) -> web.StreamResponse:
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._streams.add(task)
        try:
            async with aclosing(lines.objects) as objects:
                return await self._send_lines(request, objects)
        finally:
            self._streams.discard(task)

    async def _send_lines(self, request: web.Request, objects: AsyncGenerator[bytes]) -> web.StreamResponse:
        """What goes wrong after the first object can no longer be a status: it is the last line."""
        response = web.StreamResponse(headers={"Content-Type": NDJSON})
        first = asyncio.create_task(_next(objects))
        try:
            await asyncio.wait({first}, timeout=self._limits.first_object_seconds)
            if first.done():
                first.result()  # or the error, while it can be a status
            await response.prepare(request)
            try:
                line = await first
                while line is not None:
                    async with self._reader_in_time(request):
                        await response.write(line + b"\n")
                    line = await _next(objects)
            except ConnectionError:
                raise
            except Exception as error:  # noqa: BLE001 - as in `send`
                last = self._failure(error, request).body()
                async with self._reader_in_time(request):
                    await response.write(last + b"\n")
            return response
        finally:
            first.cancel()  # or it would be in the way of the generator's end
            await asyncio.wait({first})

    @asynccontextmanager
    async def _reader_in_time(self, request: web.Request) -> AsyncIterator[None]:
        """Writing waits while the connection's buffers are full; a caller who does not read on is cut off."""
        try:
            async with asyncio.timeout(self._limits.write_seconds):
                yield
        except TimeoutError:
            log.info("an answer is not read", path=request.path, peer=request.remote)
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError("the answer is not read") from None

    def _failure(self, error: Exception, request: web.Request) -> _Failure:
        match error:
            case Refused():
                return _Failure(error.status, error.code, error.message)
            case web.HTTPException():
                return _misdirected(error, self._not_found)
        if (refused := self._translate(error)) is not None:
            log.warn("a call failed", path=request.path, error=str(error))
            return self._failure(refused, request)
        if isinstance(error, TimeoutError):
            return _Failure(504, "DEADLINE_EXCEEDED", "the request took too long; try again")
        log.error("a call failed", method=request.method, path=request.path, trace_of=error)
        return _Failure(500, "INTERNAL", "internal error; the server's log has the details")


def _misdirected(error: web.HTTPException, not_found: str) -> _Failure:
    """A request that no handler got to see."""
    match error:
        case web.HTTPNotFound():
            return _Failure(404, "NOT_FOUND", not_found)
        case web.HTTPMethodNotAllowed():
            allowed = ", ".join(sorted(error.allowed_methods))
            return _Failure(405, "UNIMPLEMENTED", f"{error.method[:20]} is not allowed here; use {allowed}")
    return _Failure(error.status, "INVALID_ARGUMENT", error.reason)


def _refuse_strange(request: web.Request) -> None:
    if request.headers.get("Sec-Fetch-Site", "") in OTHER_SITES:
        raise Refused("PERMISSION_DENIED", "a page of another site may not call this with a browser's certificate")
    if request.headers.get("Expect", CONTINUE).lower() != CONTINUE:
        raise Refused("INVALID_ARGUMENT", f"the Expect header can only be {CONTINUE}", status=417)


def _response(page: Page) -> web.Response:
    headers = {"Content-Type": page.content_type, **page.headers}
    return web.Response(status=page.status, body=page.body, headers=headers)


async def _next(objects: AsyncGenerator[bytes]) -> bytes | None:
    return await anext(objects, None)
