"""A server for any role: routes with handlers, pages, streams and uploads, on aiohttp.

Whoever reaches the port may send anything, so everything has a limit (limits.py). What a request means, and who may
send it, is for handlers to know.
"""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler

from vmafx.http.address import Address
from vmafx.http.answering import HEADERS, Answering, Handler, RawHandler, Translate
from vmafx.http.answers import Pages
from vmafx.http.limits import LIMITS, Limits


class Route(NamedTuple):
    """`{name}` in the path is a segment of it, `{name:pattern}` what the regular expression matches."""

    method: str
    path: str
    handler: Handler


class Site(NamedTuple):
    """What a server answers. Pages are open to everybody, also by HEAD; handlers say themselves who may call them."""

    routes: Sequence[Route] = ()
    pages: Pages = {}
    translate: Translate = lambda _: None  # an error that the role knows, as what the caller hears of it
    not_found: str = "no such page"


@asynccontextmanager
async def serve(
    address: Address | None, site: Site, tls: ssl.SSLContext | None = None, limits: Limits = LIMITS
) -> AsyncIterator[int]:
    """Answer for as long as the context lasts; gives the port, 0 for none."""
    if address is None:
        yield 0
        return
    answering, busy = Answering(limits, site.translate, site.not_found), _Busy()
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


def _app(site: Site, answering: Answering, busy: "_Busy", limits: Limits) -> web.Application:
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
