"""HTTP/1.1 calls to one server over connections that are kept: what an operator does thousands of times.

aiohttp can do more, and takes half of an operator's CPU for it. This sends bytes and takes an answer of known length or
in chunks; what those look like on the wire, httptools knows (the parser of Node.js). Streams and proxies are aiohttp's.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import httptools
from aiohappyeyeballs import start_connection

KEPT_FOR = 30.0  # seconds: servers close what is idle for longer, and a call might be on its way at that moment
ANSWER_MOST = 1 << 30  # bytes

Sockets = Callable[[Any], socket.socket]  # makes one for an address


class Lost(OSError):
    """The connection ended before the answer did. The request may have been carried out."""


class Answer(NamedTuple):
    status: int
    retry_after: str
    body: bytes


class Connection(asyncio.Protocol):
    """One connection, with at most one call on its way."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[Answer] | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._parts: list[bytes] = []
        self._size, self._retry_after = 0, ""
        self._keep = True
        self.idle_since = 0.0

    def usable(self) -> bool:
        kept = self._loop.time() - self.idle_since < KEPT_FOR
        return kept and self._keep and self._transport is not None and not self._transport.is_closing()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def exchange(self, request: bytes) -> Answer:
        if self._transport is None or self._transport.is_closing():
            raise Lost("it was closed")
        self._waiter = self._loop.create_future()
        self._transport.write(request)
        try:
            return await self._waiter
        except BaseException:
            self._keep = False  # the answer may still come: nobody else shall take it for theirs
            self.abort()
            raise
        finally:
            self._waiter = None

    # The loop calls these.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(Lost(f"what came is not HTTP ({error})"))

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(Lost(str(error) if error else "the server closed it"))

    # The parser calls these.

    def on_message_begin(self) -> None:
        self._parts, self._size, self._retry_after = [], 0, ""

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"retry-after":
            self._retry_after = value.decode("latin-1")

    def on_body(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > ANSWER_MOST:
            self._fail(Lost(f"its answer is longer than {ANSWER_MOST:,} bytes"))
        else:
            self._parts.append(part)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:  # only a herald of the answer
            return
        self._keep = self._keep and self._parser.should_keep_alive()
        if self._waiter is None or self._waiter.done():
            self._fail(Lost("an answer came that nobody asked for"))
            return
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts = []
        self._waiter.set_result(Answer(status, self._retry_after, body))

    def _fail(self, error: Lost) -> None:
        self._keep = False
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)
        self.abort()


class Pool:
    """Connections to one server. Errors are the system's own (OSError, of which ssl.SSLError is one), and Lost."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None, name: str | None, sockets: Sockets) -> None:
        self._host, self._port, self._tls, self._sockets = host, port, tls, sockets
        self._name = (name or host) if tls else None
        self._idle: list[Connection] = []

    async def connection(self) -> Connection:
        """One that was used a moment ago, or a new one; give it back with `keep`."""
        while self._idle:
            connection = self._idle.pop()
            if connection.usable():
                return connection
            connection.abort()
        loop = asyncio.get_running_loop()
        addresses = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        sock = await start_connection(addresses, happy_eyeballs_delay=0.25, socket_factory=self._sockets)
        _, made = await loop.create_connection(Connection, sock=sock, ssl=self._tls, server_hostname=self._name)
        return made

    def keep(self, connection: Connection) -> None:
        connection.idle_since = asyncio.get_running_loop().time()
        if connection.usable():
            self._idle.append(connection)
        else:
            connection.abort()

    def close(self) -> None:
        while self._idle:
            self._idle.pop().abort()
