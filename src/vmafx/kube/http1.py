"""HTTP/1.1 on asyncio: pooled connections for calls, and streams."""

import asyncio
from abc import ABC, abstractmethod
from typing import NamedTuple, TypeVar, cast

import httptools

from vmafx.kube.connect import ConnectionLost, DialTarget, RequestNotSent, dial

IDLE_TIMEOUT = 30.0  # seconds: servers close what is idle for longer, and a call might be on its way at that moment
MAX_RESPONSE_BYTES = 1 << 30  # bytes
MAX_HEADER_BYTES = 1 << 16  # bytes
MAX_UNREAD_BYTES = 1 << 20  # bytes of a stream; the server waits with more until they are read

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
        self._status, self._sized = 0, False
        self._unsorted = 0  # bytes since something came of them: a head has no end of its own

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    @abstractmethod
    def fail(self, error: Exception) -> None:
        """End it; who waits for something from it gets this error."""

    @abstractmethod
    def _complete(self) -> None:
        """The whole answer is there."""

    def _send(self, request: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            raise RequestNotSent("it was closed")
        self._status, self._sized = 0, False  # of the answer before
        self._transport.write(request)

    def _take(self) -> bytes:
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts, self._size = [], 0
        return body

    # The loop calls these.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._parser is None:
            return
        self._unsorted += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.fail(ConnectionLost(f"what came is not HTTP as we speak it ({error})"))
        if self._unsorted > MAX_HEADER_BYTES:
            self.fail(ConnectionLost(f"its answer begins with more than {MAX_HEADER_BYTES:,} bytes that are none"))

    def connection_lost(self, error: Exception | None) -> None:
        if error is None and self._status >= 200 and not self._sized:  # its end is how such an answer ends
            self._complete()
        self.fail(ConnectionLost(str(error) if error else "the server closed it"))
        self._parser = None  # it holds us as we hold it

    # The parser calls these.

    def on_message_begin(self) -> None:
        self._parts, self._size, self._retry_after = [], 0, ""
        self._status, self._sized = 0, False

    def on_header(self, name: bytes, value: bytes) -> None:
        match name.lower():
            case b"retry-after":
                self._retry_after = value.decode("latin-1")
            case b"content-length" | b"transfer-encoding":
                self._sized = True

    def on_headers_complete(self) -> None:
        self._unsorted = 0
        self._status = self._parser.get_status_code() if self._parser is not None else 0

    def on_message_complete(self) -> None:
        self._unsorted = 0
        if self._status >= 200:  # else only a herald of the answer
            self._complete()


class CallConnection(_Connection):
    """For calls, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self._waiter: asyncio.Future[HttpResponse] | None = None
        self._keep = True
        self.idle_since = 0.0

    def usable(self) -> bool:
        kept = self._loop.time() - self.idle_since < IDLE_TIMEOUT
        return kept and self._keep and self._transport is not None and not self._transport.is_closing()

    async def exchange(self, request: bytes) -> HttpResponse:
        self._send(request)
        self._waiter = self._loop.create_future()
        try:
            return await self._waiter
        except BaseException:
            self._keep = False  # the answer may still come: nobody else shall take it for theirs
            self.abort()
            raise
        finally:
            self._waiter = None

    def on_body(self, part: bytes) -> None:
        self._unsorted = 0
        self._size += len(part)
        if self._size > MAX_RESPONSE_BYTES:
            self.fail(ConnectionLost(f"its answer is longer than {MAX_RESPONSE_BYTES:,} bytes"))
        else:
            self._parts.append(part)

    def _complete(self) -> None:
        self._keep = self._keep and self._parser is not None and self._parser.should_keep_alive()
        if self._waiter is None or self._waiter.done():
            self.fail(ConnectionLost("an answer came that nobody asked for"))
            return
        self._waiter.set_result(HttpResponse(self._status, self._retry_after, self._take()))

    def fail(self, error: Exception) -> None:
        self._keep = False
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)
        self.abort()


class ResponseStream(_Connection):
    """For one answer that is read as it comes."""

    def __init__(self) -> None:
        super().__init__()
        self._news: asyncio.Future[None] | None = None
        self._over = self._paused = False
        self._error: Exception | None = None
        self.heard = self._loop.time()  # when something came last

    @property
    def status(self) -> int:
        return self._status

    @property
    def retry_after(self) -> str:
        return self._retry_after

    async def begin(self, request: bytes) -> None:
        """Send, and wait until `status` is known."""
        self._send(request)
        while self._status < 200:
            await self._wait()

    async def read(self) -> bytes:
        """What has come since the last time, as soon as there is something; nothing when it is over."""
        while not self._parts and not self._over:
            await self._wait()
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return self._take()

    async def read_all(self) -> bytes:
        parts = []
        while part := await self.read():
            parts.append(part)
        return b"".join(parts)

    async def _wait(self) -> None:
        if self._error is not None:
            raise self._error
        self._news = self._loop.create_future()
        try:
            await self._news
        finally:
            self._news = None

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def data_received(self, data: bytes) -> None:
        self.heard = self._loop.time()
        super().data_received(data)

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._wake()

    def on_body(self, part: bytes) -> None:
        self._unsorted = 0
        self._parts.append(part)
        self._size += len(part)
        if self._size > MAX_UNREAD_BYTES and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def _complete(self) -> None:
        self._over = True
        self._wake()

    def fail(self, error: Exception) -> None:
        self._error = self._error or error
        self._wake()
        self.abort()


class ConnectionPool:
    """Connections to one server. Errors are the system's own (OSError, of which ssl.SSLError is one), and Lost."""

    def __init__(self, route: DialTarget) -> None:
        self._route = route
        self._idle: list[CallConnection] = []

    def idle(self) -> CallConnection | None:
        """One that was used a moment ago, if there is one; give it back with `keep`."""
        while self._idle:
            connection = self._idle.pop()
            if connection.usable():
                return connection
            connection.abort()
        return None

    async def new(self, kind: type[C]) -> C:
        made = kind()
        await dial(self._route, made)
        return made

    def keep(self, connection: CallConnection) -> None:
        connection.idle_since = asyncio.get_running_loop().time()
        if connection.usable():
            self._idle.append(connection)
        else:
            connection.abort()

    def close(self) -> None:
        while self._idle:
            self._idle.pop().abort()
