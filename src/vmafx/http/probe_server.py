"""Probes and metrics over HTTP on httptools, for roles that must stay small: GET and HEAD, no request bodies."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import formatdate
from http import HTTPStatus
from typing import cast

import httptools

from vmafx.http.address import ListenAddress
from vmafx.http.responses import ProbeRoutes, Response, text_response
from vmafx.logs import log

MAX_HEADER_BYTES = 8 << 10  # of a whole request
MAX_CONNECTIONS = 256
REQUEST_TIMEOUT = 10.0  # seconds until a request is complete, from its first byte or the start of the connection
MAX_IDLE = 90.0  # seconds between requests; longer than the usual scrape interval of a minute
LINGER = 10.0  # seconds for the client to read the last response, which an immediate close could discard


@asynccontextmanager
async def serve_probes(address: ListenAddress | None, routes: ProbeRoutes) -> AsyncIterator[int]:
    """Serve until the context ends; yields the port, 0 if there is no address."""
    if address is None:
        yield 0
        return

    shared = _SharedState(routes)
    server = await asyncio.get_running_loop().create_server(lambda: _Connection(shared), address.host, address.port)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        shared.close()
        await server.wait_closed()


class _SharedState:
    """The routes and the open connections of one server."""

    def __init__(self, routes: ProbeRoutes) -> None:
        self._routes = routes
        self._connections: dict[_Connection, None] = {}  # by their last request, the oldest first
        self._closed = False

    def add(self, connection: "_Connection") -> bool:
        """False if the server is closing.

        If there are too many connections, the least recently used is closed, so that idle clients cannot block the
        kubelet's probes.
        """
        if self._closed:
            return False
        if len(self._connections) >= MAX_CONNECTIONS:
            oldest = next(iter(self._connections))
            self.remove(oldest)
            oldest.abort()
        self._connections[connection] = None
        return True

    def mark_used(self, connection: "_Connection") -> None:
        if connection in self._connections:
            del self._connections[connection]
            self._connections[connection] = None

    def remove(self, connection: "_Connection") -> None:
        self._connections.pop(connection, None)

    def close(self) -> None:
        self._closed = True
        for connection in self._connections:
            connection.abort()

    def respond(self, method: bytes, url: bytes) -> Response:
        if method not in {b"GET", b"HEAD"}:
            return text_response(405, "only GET and HEAD are allowed", {"Allow": "GET, HEAD"})
        try:
            path = httptools.parse_url(url).path
        except httptools.HttpParserInvalidURLError:
            return text_response(400, "not a URL")
        route = self._routes.get(path.decode("latin-1")) if path else None
        if route is None:
            return text_response(404, "no such page")
        try:
            return route()
        except Exception as error:  # noqa: BLE001 - one failed page must not affect the others
            log.error("request failed", path=path.decode("latin-1"), trace_of=error)
            return text_response(500, "internal error; the log has the details")


class _Connection(asyncio.Protocol):
    """One client connection: requests and responses in turn.

    A client that pipelines requests gets only the first response, with `Connection: close`: a hundred requests in one
    packet would otherwise cost a hundred responses at once.
    """

    def __init__(self, shared: _SharedState) -> None:
        self._shared, self._loop = shared, asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._finished = False  # the last response was sent; further input is ignored
        self._reset()

    def _reset(self) -> None:
        self._size, self._url, self._method = 0, b"", b""
        self._has_body = self._keep_alive = False

    def abort(self) -> None:
        self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._shared.add(self):
            self._abort_after(REQUEST_TIMEOUT)
        else:
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._shared.remove(self)
        if self._timer is not None:
            self._timer.cancel()

    def pause_writing(self) -> None:
        """Stop reading requests while the client does not read responses."""
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self._finished:
            return
        if not self._size:
            self._abort_after(REQUEST_TIMEOUT)
        room = MAX_HEADER_BYTES - self._size
        self._size += len(data)
        keep_alive = self._size <= MAX_HEADER_BYTES
        malformed = False
        try:
            self._parser.feed_data(data[:room])
        except httptools.HttpParserUpgrade:
            keep_alive = False  # the upgrade is ignored
        except httptools.HttpParserError:
            keep_alive, malformed = False, True
        if self._method:
            self._shared.mark_used(self)
            if self._has_body:
                self._send(text_response(413, "requests must not have a body"), keep_alive=False)
            else:
                response = self._shared.respond(self._method, self._url)
                self._send(response, keep_alive=keep_alive and self._keep_alive)
        elif malformed:
            self._send(text_response(400, "not HTTP"), keep_alive=False)
        elif self._size > MAX_HEADER_BYTES:
            too_large = f"the request has more than {MAX_HEADER_BYTES} bytes"
            self._send(text_response(431, too_large), keep_alive=False)

    # httptools callbacks

    def on_message_begin(self) -> None:
        if self._method:
            raise ValueError("pipelined request")  # feed_data() turns it into an HttpParserError

    def on_url(self, part: bytes) -> None:
        self._url += part

    def on_header(self, name: bytes, value: bytes) -> None:
        match name.lower():
            case b"transfer-encoding":
                self._has_body = True
            case b"content-length" if value.strip(b"0"):
                self._has_body = True

    def on_headers_complete(self) -> None:
        self._method, self._keep_alive = self._parser.get_method(), self._parser.should_keep_alive()

    def _send(self, response: Response, *, keep_alive: bool) -> None:
        head = [
            f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}",
            f"Date: {formatdate(usegmt=True)}",
            f"Content-Type: {response.content_type}",
            f"Content-Length: {len(response.body)}",
            f"Connection: {'keep-alive' if keep_alive else 'close'}",
            *(f"{name}: {value}" for name, value in response.headers.items()),
        ]
        body = b"" if self._method == b"HEAD" else response.body
        self._transport.write("\r\n".join([*head, "", ""]).encode() + body)
        if keep_alive:
            self._abort_after(MAX_IDLE)
            self._reset()
        elif not self._transport.is_closing():
            self._finished = True
            self._abort_after(LINGER)
            self._transport.write_eof()

    def _abort_after(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self.abort)
