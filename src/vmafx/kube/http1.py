"""HTTP/1.1 on asyncio: keep-alive connections for calls, response streams, and the connection pool."""

import asyncio
from abc import ABC, abstractmethod
from typing import NamedTuple, TypeVar, cast

import httptools

from vmafx.kube.connect import MAX_HEADER_BYTES, ConnectionLost, DialTarget, RequestNotSent, dial

IDLE_TIMEOUT = 30.0  # seconds; shorter than servers' own, which may close a connection just as a request is sent
MAX_RESPONSE_BYTES = 1 << 30  # of a call
MAX_UNREAD_BYTES = 1 << 20  # of a stream; beyond that, reading from the socket pauses

C = TypeVar("C", bound="_Connection")


class HttpResponse(NamedTuple):
    status: int
    retry_after: str
    body: bytes


class _Connection(asyncio.Protocol, ABC):
    """One connection: what calls and streams have in common."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self._parts: list[bytes] = []
        self._size, self._retry_after = 0, ""
        self._status, self._has_length = 0, False
        self._unparsed = 0  # bytes received since headers or a body part were complete; the parser has no limit

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    @abstractmethod
    def fail(self, error: Exception) -> None:
        """Close the connection and raise `error` in the waiting caller."""

    @abstractmethod
    def _on_response_complete(self) -> None:
        """Called when the whole response has arrived."""

    def _send(self, request: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            raise RequestNotSent("the connection was closed")
        self._status, self._has_length = 0, False  # of the previous response
        self._transport.write(request)

    def _take_body(self) -> bytes:
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts, self._size = [], 0
        return body

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._parser is None:
            return
        self._unparsed += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.fail(ConnectionLost(f"the response is not valid HTTP/1.1: {error}"))
        if self._unparsed > MAX_HEADER_BYTES:
            self.fail(ConnectionLost(f"the response headers exceed {MAX_HEADER_BYTES:,} bytes"))

    def connection_lost(self, error: Exception | None) -> None:
        if error is None and self._status >= 200 and not self._has_length:  # the body ends with the connection
            self._on_response_complete()
        self.fail(ConnectionLost(str(error) if error else "the server closed the connection"))
        self._parser = None  # breaks a reference cycle

    # Called by the parser.

    def on_message_begin(self) -> None:
        self._parts, self._size, self._retry_after = [], 0, ""
        self._status, self._has_length = 0, False

    def on_header(self, name: bytes, value: bytes) -> None:
        match name.lower():
            case b"retry-after":
                self._retry_after = value.decode("latin-1")
            case b"content-length" | b"transfer-encoding":
                self._has_length = True

    def on_headers_complete(self) -> None:
        self._unparsed = 0
        self._status = self._parser.get_status_code() if self._parser is not None else 0

    def on_message_complete(self) -> None:
        self._unparsed = 0
        if self._status >= 200:  # 1xx precedes the response
            self._on_response_complete()


class CallConnection(_Connection):
    """A keep-alive connection for calls, one at a time."""

    def __init__(self) -> None:
        super().__init__()
        self._waiter: asyncio.Future[HttpResponse] | None = None
        self._keep_alive = True
        self.idle_since = 0.0

    def usable(self) -> bool:
        recent = self._loop.time() - self.idle_since < IDLE_TIMEOUT
        return recent and self._keep_alive and self._transport is not None and not self._transport.is_closing()

    async def exchange(self, request: bytes) -> HttpResponse:
        """Send a request and wait for its response."""
        self._send(request)
        self._waiter = self._loop.create_future()
        try:
            return await self._waiter
        except BaseException:
            self._keep_alive = False  # the response may still arrive, and must not go to the next request
            self.abort()
            raise
        finally:
            self._waiter = None

    def on_body(self, part: bytes) -> None:
        self._unparsed = 0
        self._size += len(part)
        if self._size > MAX_RESPONSE_BYTES:
            self.fail(ConnectionLost(f"the response is longer than {MAX_RESPONSE_BYTES:,} bytes"))
        else:
            self._parts.append(part)

    def _on_response_complete(self) -> None:
        self._keep_alive = self._keep_alive and self._parser is not None and self._parser.should_keep_alive()
        if self._waiter is None or self._waiter.done():
            self.fail(ConnectionLost("the server sent a response without a request"))
            return
        self._waiter.set_result(HttpResponse(self._status, self._retry_after, self._take_body()))

    def fail(self, error: Exception) -> None:
        self._keep_alive = False
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)
        self.abort()


class ResponseStream(_Connection):
    """A connection for one response that is read as it arrives."""

    def __init__(self) -> None:
        super().__init__()
        self._waiter: asyncio.Future[None] | None = None
        self._complete = self._paused = False
        self._error: Exception | None = None
        self.last_data_at = self._loop.time()

    @property
    def status(self) -> int:
        return self._status

    @property
    def retry_after(self) -> str:
        return self._retry_after

    async def start(self, request: bytes) -> None:
        """Send a request and wait for the headers of its response."""
        self._send(request)
        while self._status < 200:
            await self._wait()

    async def read(self) -> bytes:
        """Wait for data and return all that has arrived; empty at the end of the body."""
        while not self._parts and not self._complete:
            await self._wait()
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return self._take_body()

    async def read_all(self) -> bytes:
        parts = []
        while part := await self.read():
            parts.append(part)
        return b"".join(parts)

    async def _wait(self) -> None:
        if self._error is not None:
            raise self._error
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def data_received(self, data: bytes) -> None:
        self.last_data_at = self._loop.time()
        super().data_received(data)

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._wake()

    def on_body(self, part: bytes) -> None:
        self._unparsed = 0
        self._parts.append(part)
        self._size += len(part)
        if self._size > MAX_UNREAD_BYTES and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def _on_response_complete(self) -> None:
        self._complete = True
        self._wake()

    def fail(self, error: Exception) -> None:
        self._error = self._error or error
        self._wake()
        self.abort()


class ConnectionPool:
    """Connections to one server. Raises OSError, such as ssl.SSLError and ConnectionLost."""

    def __init__(self, target: DialTarget) -> None:
        self._target = target
        self._idle: list[CallConnection] = []

    def take_idle(self) -> CallConnection | None:
        """The most recently used idle connection, if any; return it with `put_idle`."""
        while self._idle:
            connection = self._idle.pop()
            if connection.usable():
                return connection
            connection.abort()
        return None

    def put_idle(self, connection: CallConnection) -> None:
        """Keep a connection for the next call, or close it if it cannot be used again."""
        connection.idle_since = asyncio.get_running_loop().time()
        if connection.usable():
            self._idle.append(connection)
        else:
            connection.abort()

    async def open(self, connection_type: type[C]) -> C:
        """Dial a new connection."""
        connection = connection_type()
        await dial(self._target, connection)
        return connection

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop().abort()
