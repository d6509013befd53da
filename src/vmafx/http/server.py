"""An HTTP server for any role, on aiohttp: routes with handlers, probes, streams and uploads."""

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, NamedTuple, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler

from vmafx.http.address import ListenAddress
from vmafx.http.errors import CallRefused
from vmafx.http.limits import LIMITS, ServerLimits
from vmafx.http.request import CONTINUE, HttpRequest
from vmafx.http.responses import NDJSON, JsonStream, ProbeRoutes, Response, json_response
from vmafx.logs import log

HEADERS = {"Server": "vmafx", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
ERROR_HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": "3"}, 503: {"Retry-After": "3"}}
CLOSING = {408, 413, 507}  # the rest of what was sent is of no interest
OTHER_SITES = {"cross-site", "same-site"}

RouteHandler = Callable[[HttpRequest], Awaitable[Response | JsonStream]]
ErrorTranslator = Callable[[Exception], CallRefused | None]
RawHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class _Failure(NamedTuple):
    status: int
    code: str
    message: str

    def body(self) -> bytes:
        return json.dumps({"code": self.code, "message": self.message}).encode()

    def page(self) -> Response:
        return json_response(self.body(), self.status, ERROR_HEADERS.get(self.status))


class HandlerRunner:
    """Calls handlers, and sends their answers."""

    def __init__(self, limits: ServerLimits, translate: ErrorTranslator, not_found: str) -> None:
        self._limits, self._translate, self._not_found = limits, translate, not_found
        self._streams: set[asyncio.Task[Any]] = set()

    def hang_up(self) -> None:
        """Streams have no end of their own."""
        for task in self._streams:
            task.cancel()

    def page(self, make: Callable[[], Response]) -> RawHandler:
        async def answer(_: web.Request) -> web.StreamResponse:
            return _response(make())

        return answer

    def handler(self, handle: RouteHandler) -> RawHandler:
        async def answer(request: web.Request) -> web.StreamResponse:
            _refuse_strange(request)
            async with asyncio.timeout(self._limits.answer_seconds) as deadline:
                asked = HttpRequest(request, self._limits, deadline)
                answer = await handle(asked)
            asked.end_deadline()
            return await self._stream(request, answer) if isinstance(answer, JsonStream) else _response(answer)

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

    async def _stream(self, request: web.Request, lines: JsonStream) -> web.StreamResponse:
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
            case CallRefused():
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
        raise CallRefused("PERMISSION_DENIED", "a page of another site may not call this with a browser's certificate")
    if request.headers.get("Expect", CONTINUE).lower() != CONTINUE:
        raise CallRefused("INVALID_ARGUMENT", f"the Expect header can only be {CONTINUE}", status=417)


def _response(page: Response) -> web.Response:
    headers = {"Content-Type": page.content_type, **page.headers}
    return web.Response(status=page.status, body=page.body, headers=headers)


async def _next(objects: AsyncGenerator[bytes]) -> bytes | None:
    return await anext(objects, None)


class HttpRoute(NamedTuple):
    """`{name}` in the path is a segment of it, `{name:pattern}` what the regular expression matches."""

    method: str
    path: str
    handler: RouteHandler


class Site(NamedTuple):
    """What a server answers. Pages are open to everybody, also by HEAD; handlers say themselves who may call them."""

    routes: Sequence[HttpRoute] = ()
    pages: ProbeRoutes = {}
    translate: ErrorTranslator = lambda _: None  # an error that the role knows, as what the caller hears of it
    not_found: str = "no such page"


@asynccontextmanager
async def serve_http(
    address: ListenAddress | None, site: Site, tls: ssl.SSLContext | None = None, limits: ServerLimits = LIMITS
) -> AsyncIterator[int]:
    """Answer for as long as the context lasts; gives the port, 0 for none."""
    if address is None:
        yield 0
        return
    answering, busy = HandlerRunner(limits, site.translate, site.not_found), _Busy()
    runner = web.AppRunner(
        _app(site, answering, busy, limits), handler_cancellation=True, access_log=None, logger=_logger(),
        auto_decompress=False, max_line_size=limits.first_line_bytes, max_field_size=limits.header_bytes,
        max_headers=limits.headers, keepalive_timeout=limits.idle_seconds, lingering_time=limits.linger_seconds,
        shutdown_timeout=limits.stop_seconds,
    )  # fmt: skip
    await runner.setup()
    handlers = cast("web.Server", runner.server)  # there since setup

    def connection() -> asyncio.BaseProtocol:
        has_room = len(handlers.connections) < limits.connections or busy.makes_room(handlers.connections)
        return handlers() if has_room else _OneTooMany()

    try:
        server = await asyncio.get_running_loop().create_server(
            connection, address.host, address.port, ssl=tls,
            ssl_handshake_timeout=limits.handshake_seconds if tls is not None else None,
        )  # fmt: skip
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            answering.hang_up()
    finally:
        await runner.cleanup()


def _app(site: Site, answering: HandlerRunner, busy: "_Busy", limits: ServerLimits) -> web.Application:
    app = web.Application(client_max_size=limits.body_bytes, middlewares=[busy.while_asking, answering.send])
    app.on_response_prepare.append(_add_headers)
    for path, make in site.pages.items():
        app.router.add_get(path, answering.page(make), expect_handler=_expect_later)
    for route in site.routes:
        app.router.add_route(route.method, route.path, answering.handler(route.handler), expect_handler=_expect_later)
    return app


class _Busy:
    """The connections with a request in hand."""

    def __init__(self) -> None:
        self._asking: set[object] = set()

    @web.middleware
    async def while_asking(self, request: web.Request, handler: RawHandler) -> web.StreamResponse:
        self._asking.add(request.protocol)
        try:
            return await handler(request)
        finally:
            self._asking.discard(request.protocol)

    def makes_room(self, connections: Iterable[RequestHandler]) -> bool:
        """The oldest idle one goes: nobody can keep a kubelet's probe out by saying nothing."""
        for connection in connections:
            if connection not in self._asking:
                connection.force_close()
                return True
        return False


class _OneTooMany(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).abort()


async def _expect_later(_request: web.Request) -> None:
    """A caller who waits to be asked for the body is asked when a handler reads it, see request.py."""


async def _add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(HEADERS)


def _logger() -> logging.Logger:
    """aiohttp's, without its complaints about what callers send: they are many, and quote it."""
    logger = logging.getLogger("vmafx.http.server")
    logger.addFilter(_is_ours)
    return logger


def _is_ours(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))
