"""Calls over kept connections and streams, against a server that says what it is told to; on both event loops."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from tests.support.waiting import eventually, turns
from vmafx.kube import http1
from vmafx.kube.connect import ConnectionLost, DialTarget, RequestNotSent
from vmafx.kube.connect import ServerAddress as Address
from vmafx.kube.fetch import fetch
from vmafx.kube.http1 import CallConnection, ConnectionPool, HttpResponse, ResponseStream

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


class Server:
    """Answers each request with the next of its answers; None hangs up."""

    def __init__(self, *answers: bytes | None) -> None:
        self._answers = iter(answers)
        self._serving: set[asyncio.Task[None]] = set()
        self.connections = 0
        self.hang_up = False  # after each answer

    async def __aenter__(self) -> ConnectionPool:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.pool = ConnectionPool(DialTarget(Address("127.0.0.1", port)))
        self.url = f"http://127.0.0.1:{port}/well?so=1"
        return self.pool

    async def __aexit__(self, *_: object) -> None:
        self.pool.close()
        self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await self._server.wait_closed()
        await turns()  # both ends close what they aborted

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._serving.add(asyncio.ensure_future(self._answer(reader, writer)))

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._answer_all(reader, writer)
        finally:
            writer.transport.abort()

    async def _answer_all(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1 << 16):
            answer = next(self._answers, None)
            if answer is None:
                break
            for part in answer.split(b"|"):
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0)
            if self.hang_up:
                break
        writer.close()
        await writer.wait_closed()


async def ask(pool: ConnectionPool) -> HttpResponse:
    connection = pool.idle() or await pool.new(CallConnection)
    answer = await connection.exchange(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    pool.keep(connection)
    return answer


def on(loop: Callable[[], asyncio.AbstractEventLoop], work: Callable[[], Awaitable[Any]]) -> None:
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
        async with server as pool:
            answers = [await ask(pool) for _ in range(4)]
        assert answers == [(200, "", b"ok"), (200, "", b"abcde"), (429, "7", b""), (200, "", b"abcd")]
        assert server.connections == 1

    on(loop, work)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (None, "the server closed it"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort|", "the server closed it"),
        (b"what?", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n" + b"x" * 20, "longer than 10 bytes"),
        (b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nx", "not HTTP as we speak it"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000, "that are none"),
    ],
)
def test_what_is_no_answer(loop: Any, answer: bytes | None, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1, "MAX_RESPONSE_BYTES", 10)

    async def work() -> None:
        async with Server(answer, None) as pool:
            connection = await pool.new(CallConnection)
            if answer and answer.endswith(b"|"):
                asyncio.get_running_loop().call_later(0.1, connection.abort)
            with pytest.raises(ConnectionLost, match=why):
                await connection.exchange(b"GET / HTTP/1.1\r\n\r\n")
            assert not connection.usable()

    on(loop, work)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_request_that_was_not_sent_says_so(loop: Any) -> None:
    async def work() -> None:
        async with Server(OK) as pool:
            connection = await pool.new(CallConnection)
            connection.abort()
            with pytest.raises(RequestNotSent):
                await connection.exchange(b"GET / HTTP/1.1\r\n\r\n")

    on(loop, work)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_connection_that_closes_is_no_answer_to_the_next_call(loop: Any) -> None:
    async def work() -> None:
        async with Server(b"HTTP/1.1 204 No Content\r\n\r\n", None) as pool:
            assert await ask(pool) == (204, "", b"")
            with pytest.raises(ConnectionLost, match="the server closed it"):
                await ask(pool)

    on(loop, work)


@pytest.mark.parametrize("loop", LOOPS)
def test_an_answer_may_end_with_its_connection(loop: Any) -> None:
    async def work() -> None:
        server = Server(b"HTTP/1.0 503 Busy\r\nConnection: close\r\n\r\nno")
        server.hang_up = True
        async with server as pool:
            assert await ask(pool) == (503, "", b"no")
            assert pool.idle() is None

    on(loop, work)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_connection_that_is_not_kept_is_not_used_again(loop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        closing = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"
        twice = OK + OK  # the second was never asked for
        server = Server(closing, OK, twice, OK, OK)
        async with server as pool:
            assert [(await ask(pool)).body for _ in range(2)] == [b"ok", b"ok"]
            assert server.connections == 2
            assert (await ask(pool)).body == b"ok"
            await eventually(lambda: not any(one.usable() for one in pool._idle), "the second has come", every=0.001)
            assert (await ask(pool)).body == b"ok"
            assert server.connections == 3
            monkeypatch.setattr(http1, "IDLE_TIMEOUT", 0.0)
            assert (await ask(pool)).body == b"ok"
            assert server.connections == 4

    on(loop, work)


@pytest.mark.parametrize("loop", LOOPS)
def test_who_gives_up_leaves_no_answer_for_the_next(loop: Any) -> None:
    async def work() -> None:
        server = Server(b"|", b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnext")
        async with server as pool:
            connection = await pool.new(CallConnection)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await connection.exchange(b"GET /slow HTTP/1.1\r\n\r\n")
            pool.keep(connection)
            assert (await ask(pool)).body == b"next"
            assert server.connections == 2

    on(loop, work)


async def open_stream(pool: ConnectionPool) -> ResponseStream:
    stream = await pool.new(ResponseStream)
    await stream.begin(b"GET /watch HTTP/1.1\r\n\r\n")
    return stream


@pytest.mark.parametrize("loop", LOOPS)
def test_a_stream_is_read_as_it_comes(loop: Any) -> None:
    async def work() -> None:
        chunks = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n|3\r\nabc\r\n|2\r\nde\r\n|0\r\n\r\n"
        async with Server(chunks, None) as pool:
            stream = await open_stream(pool)
            assert stream.status == 200
            assert await stream.read_all() == b"abcde"
            assert await stream.read() == b""

    on(loop, work)


@pytest.mark.parametrize("loop", LOOPS)
def test_what_came_of_a_stream_that_breaks_is_still_read(loop: Any) -> None:
    async def work() -> None:
        server = Server(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        async with server as pool:
            stream = await open_stream(pool)
            stream.fail(ConnectionLost("we say so"))
            assert await stream.read() in (b"abc", b"")
        async with Server(None) as pool:
            with pytest.raises(ConnectionLost, match="the server closed it"):
                await open_stream(pool)

    on(loop, work)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_stream_that_nobody_reads_does_not_fill_the_memory(loop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1, "MAX_UNREAD_BYTES", 10_000)
    size = 32 << 20

    async def work() -> None:
        answer = f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n".encode() + b"x" * size
        async with Server(answer, None) as pool:
            stream = await open_stream(pool)
            await eventually(lambda: stream._paused, "nothing more is read")
            first = await stream.read()
            assert 10_000 < len(first) < size
            assert len(first) + len(await stream.read_all()) == size

    on(loop, work)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("size", ["Content-Length: 2\r\n", "", "Connection: close\r\n"])
def test_an_answer_of_any_server_is_fetched(loop: Any, size: str) -> None:
    async def work() -> None:
        server = Server(f"HTTP/1.1 503 Busy\r\nRetry-After: 3\r\n{size}\r\nno".encode(), None)
        server.hang_up = True
        async with server:
            assert await fetch(server.url, headers={"X": "y"}) == (503, "3", b"no")

    on(loop, work)


@pytest.mark.parametrize("url", ["ftp://host/x", "nonsense", "http://", "http://x\r\nHost: y/"])
def test_only_http_is_fetched(url: str) -> None:
    with pytest.raises((ValueError, OSError)):
        asyncio.run(fetch(url))


def test_headers_of_what_is_fetched_have_no_line_breaks() -> None:
    async def work() -> None:
        server = Server(OK)
        async with server:
            with pytest.raises(ValueError, match="line break"):
                await fetch(server.url, headers={"X": "y\r\nZ: z"})

    on(asyncio.new_event_loop, work)
