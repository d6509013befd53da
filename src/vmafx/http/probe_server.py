"""Probes and metrics over HTTP: started before everything else and stopped after it."""

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

MAX_HEADER_BYTES = 8 << 10  # bytes of a request
MAX_CONNECTIONS = 256
REQUEST_TIMEOUT = 10.0  # seconds for a request, from its first byte or from the connection's start to its end
MAX_IDLE = 90.0  # seconds between requests: longer than a minute, which is how often many scrape
LINGER = 10.0  # seconds for the caller to read the last answer; closed at once, it could be lost to a reset


@asynccontextmanager
async def serve_probes(address: ListenAddress | None, pages: ProbeRoutes) -> AsyncIterator[int]:
    """Answer GET and HEAD on `pages` for as long as the context lasts; gives the port, 0 for none."""
    if address is None:
        yield 0
        return

    site = _Site(pages)
    server = await asyncio.get_running_loop().create_server(lambda: _Connection(site), address.host, address.port)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        site.close()
        await server.wait_closed()


class _Site:
    """What the connections of one server share."""

    def __init__(self, pages: ProbeRoutes) -> None:
        self._pages = pages
        self._connections: dict[_Connection, None] = {}  # who asked last comes last
        self._closed = False

    def enter(self, connection: "_Connection") -> bool:
        """Where there is no room, the one that has not asked for longest goes: nobody can keep a kubelet's probe out.

        False if it may not: one that was accepted just before the end.
        """
        if self._closed:
            return False
        if len(self._connections) >= MAX_CONNECTIONS:
            oldest = next(iter(self._connections))
            self.leave(oldest)
            oldest.abort()
        self._connections[connection] = None
        return True

    def asks(self, connection: "_Connection") -> None:
        if connection in self._connections:
            del self._connections[connection]
            self._connections[connection] = None

    def leave(self, connection: "_Connection") -> None:
        self._connections.pop(connection, None)

    def close(self) -> None:
        self._closed = True
        for connection in self._connections:
            connection.abort()

    def page(self, method: bytes, url: bytes) -> Response:
        if method not in {b"GET", b"HEAD"}:
            return text_response(405, "only GET and HEAD are answered", {"Allow": "GET, HEAD"})
        try:
            path = httptools.parse_url(url).path
        except httptools.HttpParserInvalidURLError:
            return text_response(400, "not a URL")
        answer = self._pages.get(path.decode("latin-1")) if path else None
        if answer is None:
            return text_response(404, "no such page")
        try:
            return answer()
        except Exception as error:  # noqa: BLE001 - whatever it is, the other pages and callers go on
            log.error("a page failed", path=path.decode("latin-1"), trace_of=error)
            return text_response(500, "this page failed; the log says why")


class _Connection(asyncio.Protocol):
    """One caller: a request, its answer, the next request.

    Who sends the next without waiting for the answer gets the first answer and is told that it is the last: a hundred
    requests in one packet would otherwise be a hundred pages at once.
    """

    def __init__(self, site: _Site) -> None:
        self._site, self._loop = site, asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._over = False  # the last answer is given; what else comes is of no interest
        self._reset()

    def _reset(self) -> None:
        self._size, self._url, self._method = 0, b"", b""
        self._body = self._keep = False

    def abort(self) -> None:
        self._transport.abort()

    # The loop calls these.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._site.enter(self):
            self._end_after(REQUEST_TIMEOUT)
        else:
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._site.leave(self)
        if self._timer is not None:
            self._timer.cancel()

    def pause_writing(self) -> None:
        """Answers are not read: no more of them until they are."""
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self._over:
            return
        if not self._size:
            self._end_after(REQUEST_TIMEOUT)
        room = MAX_HEADER_BYTES - self._size
        self._size += len(data)
        kept = self._size <= MAX_HEADER_BYTES
        wrong = False
        try:
            self._parser.feed_data(data[:room])
        except httptools.HttpParserUpgrade:
            kept = False  # answered as if not asked for
        except httptools.HttpParserError:
            kept, wrong = False, True
        if self._method:
            self._site.asks(self)
            no_body = text_response(413, "no request has a body here")
            page = no_body if self._body else self._site.page(self._method, self._url)
            self._answer(page, kept=kept and self._keep and not self._body)
        elif wrong:
            self._answer(text_response(400, "not HTTP"), kept=False)
        elif self._size > MAX_HEADER_BYTES:
            self._answer(text_response(431, f"a request has at most {MAX_HEADER_BYTES} bytes"), kept=False)

    # The parser calls these.

    def on_message_begin(self) -> None:
        if self._method:
            raise ValueError("the next request came before the answer")  # an HttpParserError to whom it is fed

    def on_url(self, part: bytes) -> None:
        self._url += part

    def on_header(self, name: bytes, value: bytes) -> None:
        match name.lower():
            case b"transfer-encoding":
                self._body = True
            case b"content-length" if value.strip(b"0"):
                self._body = True

    def on_headers_complete(self) -> None:
        self._method, self._keep = self._parser.get_method(), self._parser.should_keep_alive()

    def _answer(self, page: Response, *, kept: bool) -> None:
        head = [
            f"HTTP/1.1 {page.status} {HTTPStatus(page.status).phrase}",
            f"Date: {formatdate(usegmt=True)}",
            f"Content-Type: {page.content_type}",
            f"Content-Length: {len(page.body)}",
            f"Connection: {'keep-alive' if kept else 'close'}",
            *(f"{name}: {value}" for name, value in page.headers.items()),
        ]
        body = b"" if self._method == b"HEAD" else page.body
        self._transport.write("\r\n".join([*head, "", ""]).encode() + body)
        if kept:
            self._end_after(MAX_IDLE)
            self._reset()
        elif not self._transport.is_closing():
            self._over = True
            self._end_after(LINGER)
            self._transport.write_eof()

    def _end_after(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self.abort)
