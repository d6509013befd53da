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
from vmafx.http.errors import StatusError
from vmafx.http.limits import LIMITS, ServerLimits
from vmafx.http.request import AWAITS_BODY, CONTINUE, HttpRequest
from vmafx.http.responses import NDJSON, JsonStream, ProbeRoutes, Response, json_response
from vmafx.logs import log

HEADERS = {"Server": "vmafx", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
ERROR_HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": "3"}, 503: {"Retry-After": "3"}}
CLOSING_STATUSES = {408, 413, 507}  # the rest of the request body is not read
FOREIGN_SITES = {"cross-site", "same-site"}  # values of Sec-Fetch-Site

RouteHandler = Callable[[HttpRequest], Awaitable[Response | JsonStream]]
ErrorTranslator = Callable[[Exception], StatusError | None]
RawHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class HttpRoute(NamedTuple):
    """In the path, `{name}` matches one segment and `{name:pattern}` a regular expression."""

    method: str
    path: str
    handler: RouteHandler


class Site(NamedTuple):
    """The routes of a server. Probes need no credentials and accept HEAD too; handlers authorize their callers."""

    routes: Sequence[HttpRoute] = ()
    probes: ProbeRoutes = {}
    translate: ErrorTranslator = lambda _: None  # turns a role's own errors into a StatusError
    not_found: str = "no such page"


@asynccontextmanager
async def serve_http(
    address: ListenAddress | None, site: Site, tls: ssl.SSLContext | None = None, limits: ServerLimits = LIMITS
) -> AsyncIterator[int]:
    """Serve until the context ends; yields the port, 0 if there is no address."""
    if address is None:
        yield 0
        return
    handlers, active = HandlerRunner(limits, site.translate, site.not_found), _ActiveConnections()
    runner = web.AppRunner(
        _app(site, handlers, active, limits), handler_cancellation=True, access_log=None, logger=_logger(),
        auto_decompress=False, max_line_size=limits.first_line_bytes, max_field_size=limits.header_bytes,
        max_headers=limits.headers, keepalive_timeout=limits.idle_seconds, lingering_time=limits.linger_seconds,
        shutdown_timeout=limits.stop_seconds,
    )  # fmt: skip
    await runner.setup()
    protocols = cast("web.Server", runner.server)  # set by setup()

    def accept() -> asyncio.BaseProtocol:
        has_room = len(protocols.connections) < limits.connections or active.close_idle(protocols.connections)
        return protocols() if has_room else _RejectedConnection()

    try:
        server = await asyncio.get_running_loop().create_server(
            accept, address.host, address.port, ssl=tls,
            ssl_handshake_timeout=limits.handshake_seconds if tls is not None else None,
        )  # fmt: skip
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            handlers.cancel_streams()
    finally:
        await runner.cleanup()


def _app(site: Site, handlers: "HandlerRunner", active: "_ActiveConnections", limits: ServerLimits) -> web.Application:
    app = web.Application(client_max_size=limits.body_bytes, middlewares=[active.track, handlers.respond])
    app.on_response_prepare.append(_add_headers)
    for path, probe in site.probes.items():
        app.router.add_get(path, handlers.wrap_probe(probe), expect_handler=_expect_later)
    for route in site.routes:
        app.router.add_route(route.method, route.path, handlers.wrap(route.handler), expect_handler=_expect_later)
    return app


async def _expect_later(_request: web.Request) -> None:
    """`100 Continue` is sent when a handler reads the body, see request.py."""


async def _add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(HEADERS)


def _logger() -> logging.Logger:
    """A logger for aiohttp without its errors about malformed requests, which are many and quote the request."""
    logger = logging.getLogger("vmafx.http.server")
    logger.addFilter(_is_not_malformed_request)
    return logger


def _is_not_malformed_request(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


class _ActiveConnections:
    """The connections that are serving a request, with the request."""

    def __init__(self) -> None:
        self._active: dict[object, web.Request] = {}

    @web.middleware
    async def track(self, request: web.Request, handler: RawHandler) -> web.StreamResponse:
        self._active[request.protocol] = request
        try:
            return await handler(request)
        finally:
            self._active.pop(request.protocol, None)

    def close_idle(self, connections: Iterable[RequestHandler]) -> bool:
        """Close the oldest idle connection, or if there is none, the oldest that waits for a body.

        Otherwise such clients, of whom no credentials were asked yet, could block the kubelet's probes.
        """
        waiting: RequestHandler | None = None
        for connection in connections:
            request = self._active.get(connection)
            if request is None:
                connection.force_close()
                return True
            if waiting is None and request.get(AWAITS_BODY):
                waiting = connection
        if waiting is not None:
            waiting.force_close()
        return waiting is not None


class _RejectedConnection(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).abort()


class _Failure(NamedTuple):
    status: int
    code: str
    message: str

    def body(self) -> bytes:
        return json.dumps({"code": self.code, "message": self.message}).encode()

    def response(self) -> Response:
        return json_response(self.body(), self.status, ERROR_HEADERS.get(self.status))


class HandlerRunner:
    """Runs handlers and sends their responses."""

    def __init__(self, limits: ServerLimits, translate: ErrorTranslator, not_found: str) -> None:
        self._limits, self._translate, self._not_found = limits, translate, not_found
        self._streams: set[asyncio.Task[Any]] = set()

    def cancel_streams(self) -> None:
        """Streams do not end on their own."""
        for task in self._streams:
            task.cancel()

    def wrap_probe(self, probe: Callable[[], Response]) -> RawHandler:
        async def run(_: web.Request) -> web.StreamResponse:
            return _to_aiohttp(probe())

        return run

    def wrap(self, handler: RouteHandler) -> RawHandler:
        async def run(raw: web.Request) -> web.StreamResponse:
            _check_headers(raw)
            async with asyncio.timeout(self._limits.answer_seconds) as deadline:
                request = HttpRequest(raw, self._limits, deadline)
                response = await handler(request)
            request.end_deadline()
            return await self._stream(raw, response) if isinstance(response, JsonStream) else _to_aiohttp(response)

        return run

    @web.middleware
    async def respond(self, request: web.Request, handler: RawHandler) -> web.StreamResponse:
        """Every request gets a response, errors included; a client that does not read it is disconnected."""
        try:
            response = await handler(request)
        except ConnectionError:
            raise
        except Exception as error:  # noqa: BLE001 - one failed request must not affect the others
            response = _to_aiohttp(self._failure(error, request).response())
            if isinstance(error, web.HTTPMethodNotAllowed):
                response.headers["Allow"] = error.headers["Allow"]
        if response.status in CLOSING_STATUSES or (request.headers.get("Expect") and not request.content.is_eof()):
            response.force_close()  # without 100 Continue, the client may send its next request instead of the body
        async with self._write_timeout(request):
            await response.prepare(request)
            await response.write_eof()
        return response

    async def _stream(self, request: web.Request, stream: JsonStream) -> web.StreamResponse:
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._streams.add(task)
        try:
            async with aclosing(stream.objects) as objects:
                return await self._send_lines(request, objects)
        finally:
            self._streams.discard(task)

    async def _send_lines(self, request: web.Request, objects: AsyncGenerator[bytes]) -> web.StreamResponse:
        """An error before the first object becomes the response's status; a later one is sent as the last line."""
        response = web.StreamResponse(headers={"Content-Type": NDJSON})
        first = asyncio.create_task(_next(objects))
        try:
            await asyncio.wait({first}, timeout=self._limits.first_object_seconds)
            if first.done():
                first.result()  # raises while the status can still be set
            await response.prepare(request)
            try:
                line = await first
                while line is not None:
                    async with self._write_timeout(request):
                        await response.write(line + b"\n")
                    line = await _next(objects)
            except ConnectionError:
                raise
            except Exception as error:  # noqa: BLE001 - as in `respond`
                last = self._failure(error, request).body()
                async with self._write_timeout(request):
                    await response.write(last + b"\n")
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
                "client does not read the response; closing the connection", path=request.path, peer=request.remote
            )
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError("the client does not read the response") from None

    def _failure(self, error: Exception, request: web.Request) -> _Failure:
        match error:
            case StatusError():
                return _Failure(error.status, error.code, error.message)
            case web.HTTPException():
                return _routing_failure(error, self._not_found)
        if (translated := self._translate(error)) is not None:
            log.warn("request failed", path=request.path, error=str(error))
            return self._failure(translated, request)
        if isinstance(error, TimeoutError):
            return _Failure(504, "DEADLINE_EXCEEDED", "the request took too long; try again")
        log.error("request failed", method=request.method, path=request.path, trace_of=error)
        return _Failure(500, "INTERNAL", "internal error; the server's log has the details")


def _routing_failure(error: web.HTTPException, not_found: str) -> _Failure:
    """A request that reached no handler."""
    match error:
        case web.HTTPNotFound():
            return _Failure(404, "NOT_FOUND", not_found)
        case web.HTTPMethodNotAllowed():
            allowed = ", ".join(sorted(error.allowed_methods))
            return _Failure(405, "UNIMPLEMENTED", f"{error.method[:20]} is not allowed here; use {allowed}")
    return _Failure(error.status, "INVALID_ARGUMENT", error.reason)


def _check_headers(request: web.Request) -> None:
    if request.headers.get("Sec-Fetch-Site", "") in FOREIGN_SITES:
        raise StatusError("PERMISSION_DENIED", "requests from web pages of other sites are not allowed")
    if request.headers.get("Expect", CONTINUE).lower() != CONTINUE:
        raise StatusError("INVALID_ARGUMENT", f"the Expect header must be {CONTINUE}, or absent", status=417)


def _to_aiohttp(response: Response) -> web.Response:
    headers = {"Content-Type": response.content_type, **response.headers}
    return web.Response(status=response.status, body=response.body, headers=headers)


async def _next(objects: AsyncGenerator[bytes]) -> bytes | None:
    return await anext(objects, None)
