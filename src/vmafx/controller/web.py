"""HTTP on 8080: probes, metrics, and the calls of the wire as a JSON API. What they mean is not known here.

Who reaches the port may send anything: all has a limit.
"""

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing, asynccontextmanager
from typing import Any, cast
from urllib.parse import quote

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler
from google.protobuf.message import Message

from vmafx.controller import jsonform, openapi
from vmafx.controller.asking import asked_of, presented_by
from vmafx.controller.routes import PATTERNS, ROUTES, Calls, Route
from vmafx.http.address import Address
from vmafx.http.errors import Code, Refused, refusal
from vmafx.http.pages import Page, Routes
from vmafx.kube.errors import KubeError
from vmafx.logs import log

BODY_MOST = 1 << 20  # bytes
LINE_MOST = 8 << 10  # bytes of the first line
FIELD_MOST = 9 << 10  # bytes of a header: a token, and what stands before it
FIELDS_MOST = 64
CONNECTIONS_MOST = 1024
IDLE_MOST = 90.0  # seconds without a request, and for one's headers
HANDSHAKE_WITHIN = 10.0  # seconds, of TLS
ANSWER_WITHIN = 30.0  # seconds for a call, beside what it was asked to wait
POLL_MOST = 60  # seconds that a call is asked to wait
FIRST_WITHIN = 5.0  # seconds for a stream's first word; then its head is sent, since there may be nothing to say
WRITE_WITHIN = 30.0  # seconds for a reader to take what there is for it
STOP_WITHIN = 5.0  # seconds for calls in hand, at the end

STATUS: dict[Code, int] = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "ABORTED": 409,
    "RESOURCE_EXHAUSTED": 429,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
}
HEADERS = {"Server": "vmafx", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
MORE_HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": "3"}, 503: {"Retry-After": "3"}}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serve(
    address: Address | None, calls: Calls, pages: Routes, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Answer for as long as the context lasts; gives the port, 0 for none. `pages` are open to all: probes, metrics."""
    if address is None:
        yield 0
        return
    site = _Site(calls, pages)
    runner = web.AppRunner(
        site.app(), handler_cancellation=True, access_log=None, logger=_logger(), auto_decompress=False,
        max_line_size=LINE_MOST, max_field_size=FIELD_MOST, max_headers=FIELDS_MOST,
        keepalive_timeout=IDLE_MOST, lingering_time=2.0, shutdown_timeout=STOP_WITHIN,
    )  # fmt: skip
    await runner.setup()
    handlers = cast("web.Server", runner.server)  # there since setup

    def connection() -> asyncio.BaseProtocol:
        has_room = len(handlers.connections) < CONNECTIONS_MOST or site.makes_room(handlers.connections)
        return handlers() if has_room else _OneTooMany()

    loop = asyncio.get_running_loop()
    try:
        handshake = HANDSHAKE_WITHIN if tls is not None else None
        server = await loop.create_server(
            connection, address.host, address.port, ssl=tls, ssl_handshake_timeout=handshake
        )
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            site.hang_up()
    finally:
        await runner.cleanup()


class _OneTooMany(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).abort()


class _Site:
    def __init__(self, calls: Calls, pages: Routes) -> None:
        self._calls, self._pages = calls, dict(pages)
        self._streams: set[asyncio.Task[Any]] = set()
        self._asking: set[object] = set()  # the connections with a request in hand

    def makes_room(self, connections: Iterable[RequestHandler]) -> bool:
        """The oldest that asks nothing goes: nobody can keep a kubelet's probe out by saying nothing."""
        for connection in connections:
            if connection not in self._asking:
                connection.force_close()
                return True
        return False

    @web.middleware
    async def _in_hand(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self._asking.add(request.protocol)
        try:
            return await handler(request)
        finally:
            self._asking.discard(request.protocol)

    def app(self) -> web.Application:
        app = web.Application(client_max_size=BODY_MOST, middlewares=[self._in_hand, _answered])
        app.on_response_prepare.append(_add_headers)
        description = Page(200, openapi.JSON, json.dumps(openapi.document()).encode())
        self._pages["/openapi.json"] = lambda: description
        for path in self._pages:
            app.router.add_get(path, self._page)
        for route in ROUTES:
            path = route.path
            for name, pattern in PATTERNS.items():
                path = path.replace(f"{{{name}}}", f"{{{name}:{pattern}}}")
            app.router.add_route(route.method, path, self._handler(route))
        return app

    def hang_up(self) -> None:
        """Streams have no end of their own."""
        for task in self._streams:
            task.cancel()

    async def _page(self, request: web.Request) -> web.Response:
        page = self._pages[request.path]()
        return web.Response(status=page.status, body=page.body, headers={"Content-Type": page.content_type})

    def _handler(self, route: Route) -> Handler:
        call = getattr(self._calls, route.call)

        async def answer(request: web.Request) -> web.StreamResponse:
            shown, asked = presented_by(request), await asked_of(route, request)
            async with asyncio.timeout(ANSWER_WITHIN + min(max(getattr(asked, "wait_seconds", 0), 0), POLL_MOST)):
                told: Message = await call(asked, shown)
            answer = _json(jsonform.dumps(told), route.status)
            if route.location:
                fields = {
                    field.name: quote(str(getattr(told, field.name)), safe="") for field in told.DESCRIPTOR.fields
                }
                answer.headers["Location"] = route.location.format_map(fields)
            return answer

        async def stream(request: web.Request) -> web.StreamResponse:
            shown, asked = presented_by(request), await asked_of(route, request)
            task = cast("asyncio.Task[Any]", asyncio.current_task())
            self._streams.add(task)
            try:
                async with aclosing(call(asked, shown)) as messages:
                    return await _tell_all(request, messages)
            finally:
                self._streams.discard(task)

        return stream if route.descriptor.server_streaming else answer


async def _tell_all(request: web.Request, messages: AsyncGenerator[Message]) -> web.StreamResponse:
    """One line each. What goes wrong later than with the first can no longer be a status: it is the last line."""
    response = web.StreamResponse(headers={"Content-Type": openapi.LINES})
    first = asyncio.create_task(_next(messages))
    try:
        await asyncio.wait({first}, timeout=FIRST_WITHIN)
        if first.done():
            first.result()  # or the error, while it can be a status
        await response.prepare(request)
        try:
            message = await first
            while message is not None:
                async with _within_reason(request):
                    await response.write(jsonform.dumps(message) + b"\n")
                message = await _next(messages)
        except ConnectionError:
            raise
        except Exception as error:  # noqa: BLE001 - as for any call
            _, code, why = _explained(error, request)
            async with _within_reason(request):
                await response.write(_error_body(code, why) + b"\n")
        return response
    finally:
        first.cancel()  # or it would be in the way of the generator's end
        await asyncio.wait({first})


async def _next(messages: AsyncGenerator[Message]) -> Message | None:
    return await anext(messages, None)


@asynccontextmanager
async def _within_reason(request: web.Request) -> AsyncIterator[None]:
    """To write waits while more is under way than the connection's buffers hold; who does not read on is cut off."""
    try:
        async with asyncio.timeout(WRITE_WITHIN):
            yield
    except TimeoutError:
        log.info("an answer is not read", path=request.path, peer=request.remote)
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError("the answer is not read") from None


@web.middleware
async def _answered(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Whatever happens, the answer is JSON, and tells nothing that is not the caller's business."""
    try:
        answer = await handler(request)
    except ConnectionError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, the other callers go on
        answer = _error(*_explained(error, request))
        if isinstance(error, web.HTTPMethodNotAllowed):
            answer.headers["Allow"] = error.headers["Allow"]
    async with _within_reason(request):
        await answer.prepare(request)
        await answer.write_eof()
    return answer


def _explained(error: Exception, request: web.Request) -> tuple[int, str, str]:
    """The status, the code and the message that an error has for the caller."""
    match error:
        case Refused():
            return STATUS[error.code], error.code, error.message
        case web.HTTPNotFound():
            return 404, "NOT_FOUND", "no such page; /openapi.json describes those there are"
        case web.HTTPException():
            return error.status, "UNIMPLEMENTED" if error.status == 405 else "INVALID_ARGUMENT", error.reason
        case KubeError():
            log.warn("a call failed", path=request.path, error=str(error))
            return _explained(refusal(error), request)
        case TimeoutError():
            return 504, "DEADLINE_EXCEEDED", "it took too long"
    log.error("a call failed", method=request.method, path=request.path, trace_of=error)
    return 500, "INTERNAL", "this failed; the log says why"


def _json(body: bytes, status: int = 200) -> web.Response:
    return web.Response(status=status, body=body, headers={"Content-Type": openapi.JSON})


def _error(status: int, code: str, message: str) -> web.Response:
    answer = _json(_error_body(code, message), status)
    answer.headers.update(MORE_HEADERS.get(status, {}))
    if status in {408, 413}:
        answer.force_close()  # the rest of what was sent is of no interest
    return answer


def _error_body(code: str, message: str) -> bytes:
    return json.dumps({"code": code, "message": message}).encode()


async def _add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(HEADERS)


def _logger() -> logging.Logger:
    """aiohttp's, without its complaints about what callers send: they are many, and quote it."""
    logger = logging.getLogger("vmafx.controller.web")
    logger.addFilter(_theirs)
    return logger


def _theirs(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))
