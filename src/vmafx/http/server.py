"""An HTTP server for any role, on aiohttp: routes with handlers, probes, streams and uploads."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler

from vmafx.http.address import ListenAddress
from vmafx.http.errors import StatusError
from vmafx.http.hosts import HostPolicy, check_origin
from vmafx.http.limits import LIMITS, ServerLimits
from vmafx.http.problems import ProblemDetails
from vmafx.http.request import AWAITS_BODY, CONTINUE, HttpRequest, request_id
from vmafx.http.responses import AnyResponse, ProbeRoutes, Response
from vmafx.http.sending import ResponseSender, to_aiohttp
from vmafx.logs import log

CLOSING_STATUSES = {408, 413, 507}  # the rest of the request body is not read

RouteHandler = Callable[[HttpRequest], Awaitable[AnyResponse]]
ErrorTranslator = Callable[[Exception], StatusError | None]
RawHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class HttpRoute(NamedTuple):
    """In the path, `{name}` matches one segment and `{name:pattern}` a regular expression. GET includes HEAD."""

    method: str
    path: str
    handler: RouteHandler
    linkable: bool = False  # a page that links on other sites may lead to


class Site(NamedTuple):
    """The routes of a server. Probes need no credentials; handlers authorize their callers."""

    routes: Sequence[HttpRoute] = ()
    probes: ProbeRoutes = {}
    translate: ErrorTranslator = lambda _: None  # turns a role's own errors into a StatusError
    not_found: str = "no such page"
    hosts: HostPolicy | None = None  # the names that the server answers to; None: all


@asynccontextmanager
async def serve_http(
    address: ListenAddress | None, site: Site, tls: ssl.SSLContext | None = None, limits: ServerLimits = LIMITS
) -> AsyncIterator[int]:
    """Serve until the context ends; yields the port, 0 if there is no address."""
    if address is None:
        yield 0
        return
    active = _ActiveConnections()
    handlers = HandlerRunner(limits, site, active)
    runner = web.AppRunner(
        _app(site, handlers, limits), handler_cancellation=True, access_log=None, logger=_logger(),
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


def _app(site: Site, handlers: "HandlerRunner", limits: ServerLimits) -> web.Application:
    app = web.Application(client_max_size=limits.body_bytes, middlewares=[handlers.respond])
    for path, probe in site.probes.items():
        app.router.add_get(path, handlers.wrap_probe(probe), expect_handler=_expect_later)
    for route in site.routes:
        handler = handlers.wrap(route)
        app.router.add_route(route.method, route.path, handler, expect_handler=_expect_later)
        if route.method == "GET":
            app.router.add_route("HEAD", route.path, handler, expect_handler=_expect_later)
    return app


async def _expect_later(_request: web.Request) -> None:
    """`100 Continue` is sent when a handler reads the body, see request.py."""


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

    def add(self, request: web.Request) -> None:
        self._active[request.protocol] = request

    def remove(self, request: web.Request) -> None:
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


class HandlerRunner:
    """Runs handlers, and turns their errors into problems."""

    def __init__(self, limits: ServerLimits, site: Site, active: _ActiveConnections) -> None:
        self._limits, self._site, self._active = limits, site, active
        self._sender = ResponseSender(limits, self._problem)

    def cancel_streams(self) -> None:
        self._sender.cancel_streams()

    def wrap_probe(self, probe: Callable[[], Response]) -> RawHandler:
        async def run(request: web.Request) -> web.StreamResponse:
            return await self._sender.send(request, probe())

        return run

    def wrap(self, route: HttpRoute) -> RawHandler:
        async def run(raw: web.Request) -> web.StreamResponse:
            check_origin(raw.headers, tls=raw.scheme == "https", linkable=route.linkable)
            if raw.headers.get("Expect", CONTINUE).lower() != CONTINUE:
                message = f"the Expect header must be {CONTINUE}, or absent"
                raise StatusError("INVALID_ARGUMENT", message, status=417)
            async with asyncio.timeout(self._limits.answer_seconds) as deadline:
                request = HttpRequest(raw, self._limits, deadline)
                response = await route.handler(request)
            request.end_deadline()
            return await self._sender.send(raw, response)

        return run

    @web.middleware
    async def respond(self, request: web.Request, handler: RawHandler) -> web.StreamResponse:
        """Every request gets a response, errors included."""
        self._active.add(request)
        try:
            try:
                if self._site.hosts is not None:
                    self._site.hosts.check(request.headers.getall("Host", []))
                response = await handler(request)
            except ConnectionError:
                raise
            except Exception as error:  # noqa: BLE001 - one failed request must not affect the others
                response = to_aiohttp(request, self._problem(error, request).response())
                if isinstance(error, web.HTTPMethodNotAllowed):
                    response.headers["Allow"] = error.headers["Allow"]
            if response.status in CLOSING_STATUSES or (request.headers.get("Expect") and not request.content.is_eof()):
                response.force_close()  # without 100 Continue, the client may send its next request instead of the body
            await self._sender.finish(request, response)
            return response
        finally:
            self._active.remove(request)

    def _problem(self, error: Exception, request: web.Request) -> ProblemDetails:
        known = request_id(request)
        match error:
            case StatusError():
                return ProblemDetails.of(error, known)
            case web.HTTPException():
                return _routing_problem(error, self._site.not_found, known)
        if (translated := self._site.translate(error)) is not None:
            log.warn("request failed", path=request.path, request_id=known, error=str(error))
            return ProblemDetails.of(translated, known)
        if isinstance(error, TimeoutError):
            return ProblemDetails(504, "DEADLINE_EXCEEDED", "the request took too long; try again", known)
        log.error("request failed", method=request.method, path=request.path, request_id=known, trace_of=error)
        return ProblemDetails(500, "INTERNAL", "internal error; the server's log has the details", known)


def _routing_problem(error: web.HTTPException, not_found: str, request: str) -> ProblemDetails:
    """A request that reached no handler."""
    match error:
        case web.HTTPNotFound():
            return ProblemDetails(404, "NOT_FOUND", not_found, request)
        case web.HTTPMethodNotAllowed():
            allowed = ", ".join(sorted(error.allowed_methods))
            return ProblemDetails(
                405, "UNIMPLEMENTED", f"{error.method[:20]} is not allowed here; use {allowed}", request
            )
    return ProblemDetails(error.status, "INVALID_ARGUMENT", error.reason, request)
