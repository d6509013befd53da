"""Keep-alive connections and streams against a scripted server, on both event loops."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Self

import pytest
import uvloop

from tests.support.tcp_server import LOCAL, TcpServer
from tests.support.waiting import eventually
from vmafx.kube import http1
from vmafx.kube.connect import ConnectionLost, DialTarget, RequestNotSent, ServerAddress
from vmafx.kube.fetch import fetch
from vmafx.kube.http1 import CallConnection, ConnectionPool, HttpResponse, ResponseStream

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


class Server(TcpServer):
    """Sends the next response to each request, sent in parts split at `|`; None closes the connection."""

    def __init__(self, *responses: bytes | None) -> None:
        super().__init__()
        self._responses = iter(responses)
        self.close_after_response = False

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self.pool = ConnectionPool(DialTarget(ServerAddress(LOCAL, self.port)))
        self.url = f"http://{LOCAL}:{self.port}/path?query=1"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.pool.close()
        await super().__aexit__()

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1 << 16):
            response = next(self._responses, None)
            if response is None:
                break
            for part in response.split(b"|"):
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0)
            if self.close_after_response:
                break
        writer.close()
        await writer.wait_closed()


async def call(pool: ConnectionPool) -> HttpResponse:
    connection = pool.take_idle() or await pool.open(CallConnection)
    response = await connection.exchange(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    pool.put_idle(connection)
    return response


def run_on(loop: Callable[[], asyncio.AbstractEventLoop], work: Callable[[], Awaitable[Any]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(20):
            await work()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())


@pytest.mark.parametrize("loop", LOOPS)
def test_one_connection_serves_many_calls(loop: Any) -> None:
    async def work() -> None:
        server = Server(
            OK,
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n|2\r\nde\r\n0\r\n\r\n",
            b"HTTP/1.1 100 Continue\r\n\r\n|HTTP/1.1 429 Slow\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Len|gth: 4\r\n\r\na|bcd",
        )
        async with server:
            pool = server.pool
            responses = [await call(pool) for _ in range(4)]
        assert responses == [(200, "", b"ok"), (200, "", b"abcde"), (429, "7", b""), (200, "", b"abcd")]
        assert server.connections == 1

    run_on(loop, work)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    ("response", "error"),
    [
        (None, "the server closed the connection"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort|", "the server closed the connection"),
        (b"what?", "not valid HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n", "not valid HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n" + b"x" * 20, "longer than 10 bytes"),
        (b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nx", "not valid HTTP"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000, "headers exceed 65,536 bytes"),
    ],
)
def test_an_incomplete_or_invalid_response_fails_the_call(
    loop: Any, response: bytes | None, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http1, "MAX_RESPONSE_BYTES", 10)

    async def work() -> None:
        async with Server(response, None) as server:
            pool = server.pool
            connection = await pool.open(CallConnection)
            if response and response.endswith(b"|"):
                asyncio.get_running_loop().call_later(0.1, connection.abort)
            with pytest.raises(ConnectionLost, match=error):
                await connection.exchange(b"GET / HTTP/1.1\r\n\r\n")
            assert not connection.usable()

    run_on(loop, work)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_request_on_a_closed_connection_is_reported_as_not_sent(loop: Any) -> None:
    async def work() -> None:
        async with Server(OK) as server:
            pool = server.pool
            connection = await pool.open(CallConnection)
            connection.abort()
            with pytest.raises(RequestNotSent):
                await connection.exchange(b"GET / HTTP/1.1\r\n\r\n")

    run_on(loop, work)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_close_is_not_taken_for_the_response_to_the_next_call(loop: Any) -> None:
    async def work() -> None:
        async with Server(b"HTTP/1.1 204 No Content\r\n\r\n", None) as server:
            pool = server.pool
            assert await call(pool) == (204, "", b"")
            with pytest.raises(ConnectionLost, match="the server closed the connection"):
                await call(pool)

    run_on(loop, work)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_response_without_a_length_ends_with_its_connection(loop: Any) -> None:
    async def work() -> None:
        server = Server(b"HTTP/1.0 503 Busy\r\nConnection: close\r\n\r\nno")
        server.close_after_response = True
        async with server:
            pool = server.pool
            assert await call(pool) == (503, "", b"no")
            assert pool.take_idle() is None

    run_on(loop, work)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_connection_that_cannot_be_kept_alive_is_not_reused(loop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        closing = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"
        twice = OK + OK  # the second has no request
        server = Server(closing, OK, twice, OK, OK)
        async with server:
            pool = server.pool
            assert [(await call(pool)).body for _ in range(2)] == [b"ok", b"ok"]
            assert server.connections == 2
            assert (await call(pool)).body == b"ok"
            await eventually(
                lambda: not any(idle.usable() for idle in pool._idle), "the unrequested response arrived", every=0.001
            )
            assert (await call(pool)).body == b"ok"
            assert server.connections == 3
            monkeypatch.setattr(http1, "IDLE_TIMEOUT", 0.0)
            assert (await call(pool)).body == b"ok"
            assert server.connections == 4

    run_on(loop, work)


@pytest.mark.parametrize("loop", LOOPS)
def test_the_late_response_of_an_abandoned_call_is_not_given_to_the_next(loop: Any) -> None:
    async def work() -> None:
        server = Server(b"|", b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnext")
        async with server:
            pool = server.pool
            connection = await pool.open(CallConnection)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await connection.exchange(b"GET /slow HTTP/1.1\r\n\r\n")
            pool.put_idle(connection)
            assert (await call(pool)).body == b"next"
            assert server.connections == 2

    run_on(loop, work)


async def open_stream(pool: ConnectionPool) -> ResponseStream:
    stream = await pool.open(ResponseStream)
    await stream.start(b"GET /watch HTTP/1.1\r\n\r\n")
    return stream


@pytest.mark.parametrize("loop", LOOPS)
def test_a_stream_is_read_as_it_arrives(loop: Any) -> None:
    async def work() -> None:
        chunks = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n|3\r\nabc\r\n|2\r\nde\r\n|0\r\n\r\n"
        async with Server(chunks, None) as server:
            pool = server.pool
            stream = await open_stream(pool)
            assert stream.status == 200
            assert await stream.read_all() == b"abcde"
            assert await stream.read() == b""

    run_on(loop, work)


@pytest.mark.parametrize("loop", LOOPS)
def test_data_received_before_a_stream_fails_is_still_read(loop: Any) -> None:
    async def work() -> None:
        server = Server(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        async with server:
            pool = server.pool
            stream = await open_stream(pool)
            stream.fail(ConnectionLost("test"))
            assert await stream.read() in (b"abc", b"")
        async with Server(None) as server:
            pool = server.pool
            with pytest.raises(ConnectionLost, match="the server closed the connection"):
                await open_stream(pool)

    run_on(loop, work)


@pytest.mark.parametrize("loop", LOOPS)
def test_an_unread_stream_uses_bounded_memory(loop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1, "MAX_UNREAD_BYTES", 10_000)
    size = 32 << 20

    async def work() -> None:
        response = f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n".encode() + b"x" * size
        async with Server(response, None) as server:
            pool = server.pool
            stream = await open_stream(pool)
            await eventually(lambda: stream._paused, "reading is paused")
            first = await stream.read()
            assert 10_000 < len(first) < size
            assert len(first) + len(await stream.read_all()) == size

    run_on(loop, work)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("header", ["Content-Length: 2\r\n", "", "Connection: close\r\n"])
def test_fetch_returns_a_response_of_any_status_and_framing(loop: Any, header: str) -> None:
    async def work() -> None:
        server = Server(f"HTTP/1.1 503 Busy\r\nRetry-After: 3\r\n{header}\r\nno".encode(), None)
        server.close_after_response = True
        async with server:
            assert await fetch(server.url, headers={"X": "y"}) == (503, "3", b"no")

    run_on(loop, work)


@pytest.mark.parametrize("url", ["ftp://host/x", "nonsense", "http://", "http://x\r\nHost: y/"])
def test_fetch_rejects_anything_but_an_http_url(url: str) -> None:
    with pytest.raises((ValueError, OSError)):
        asyncio.run(fetch(url))


def test_fetch_rejects_a_line_break_in_a_header() -> None:
    async def work() -> None:
        server = Server(OK)
        async with server:
            with pytest.raises(ValueError, match="line break"):
                await fetch(server.url, headers={"X": "y\r\nZ: z"})

    run_on(asyncio.new_event_loop, work)
