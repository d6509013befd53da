"""Probes and metrics by real sockets, on both event loops: what callers may expect, and what none can do to us."""

import asyncio
import io
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple

import pytest
import uvloop
from prometheus_client import CollectorRegistry, Gauge

from vmafx import logs
from vmafx.http import probe_server as server
from vmafx.http.address import ListenAddress
from vmafx.http.probe_server import serve_probes
from vmafx.http.responses import Response, metrics_response, probe_response

HERE = ListenAddress("127.0.0.1", 0)
GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
OK = {"/healthz": probe_response(lambda: None)}

pytestmark = pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: str


class Caller:
    """Says bytes and reads answers. Leaves no connection behind."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> "Caller":
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.transport.abort()
        with suppress(ConnectionError):
            await self._writer.wait_closed()

    async def says(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def hears(self, *, body: bool = True) -> Answer:
        first, *lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().removesuffix("\r\n\r\n").split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        length = int(headers["Content-Length"]) if body else 0
        return Answer(int(first.split()[1]), headers, (await self._reader.readexactly(length)).decode())

    async def asks(self, data: bytes = GET, *, body: bool = True) -> Answer:
        await self.says(data)
        return await self.hears(body=body)

    async def ended(self) -> bool:
        """True once the server ended it in good order, without another word."""
        return await self._reader.read() == b""

    async def cut_off(self) -> bool:
        """The same, in whatever order."""
        try:
            return await self.ended()
        except ConnectionError:
            return True


def on(loop: Callable[[], asyncio.AbstractEventLoop], work: Callable[[], Awaitable[Any]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(20):
            await work()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())


def test_probes_say_what_is_missing(loop: Any) -> None:
    missing: list[str | None] = ["caches not synced: jobs", None]

    async def work() -> None:
        async with serve_probes(HERE, {"/readyz": probe_response(missing.pop)}) as port, Caller(port) as caller:
            ask = b"GET /readyz?verbose=1 HTTP/1.1\r\nHost: x\r\n\r\n"
            ready, waiting = await caller.asks(ask), await caller.asks(ask)  # over one connection
            assert (ready.status, ready.body) == (200, "ok\n")
            assert ready.headers["Content-Type"] == "text/plain; charset=utf-8"
            assert (waiting.status, waiting.body) == (503, "caches not synced: jobs\n")

    on(loop, work)


def test_metrics_are_prometheus_text(loop: Any) -> None:
    registry = CollectorRegistry()
    Gauge("pages", "Pages there are.", registry=registry).set(2)

    async def work() -> None:
        async with serve_probes(HERE, {"/metrics": metrics_response(registry)}) as port, Caller(port) as caller:
            answer = await caller.asks(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            assert answer.headers["Content-Type"].startswith("text/plain; version=")
            assert answer.body == "# HELP pages Pages there are.\n# TYPE pages gauge\npages 2.0\n"

    on(loop, work)


def test_nowhere_and_everywhere(loop: Any) -> None:
    async def work() -> None:
        async with serve_probes(None, OK) as port:
            assert port == 0
        async with serve_probes(ListenAddress(None, 0), OK) as port:
            assert port > 0

    on(loop, work)


def test_head_has_the_length_and_no_body(loop: Any) -> None:
    async def work() -> None:
        async with serve_probes(HERE, OK) as port, Caller(port) as caller:
            answer = await caller.asks(b"HEAD /healthz HTTP/1.1\r\nHost: x\r\n\r\n", body=False)
            assert answer.headers["Content-Length"] == "3"
            assert (await caller.asks()).body == "ok\n"  # nothing lies between the two answers

    on(loop, work)


@pytest.mark.parametrize(
    ("asked", "status", "kept"),
    [
        (b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n", 404, True),
        (b"GET http://x/healthz HTTP/1.1\r\nHost: x\r\n\r\n", 200, True),
        (b"GET http://x HTTP/1.1\r\nHost: x\r\n\r\n", 404, True),
        (b"GET /healthz HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 200, True),
        (b"GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 200, True),
        (b"GET /healthz HTTP/1.0\r\n\r\n", 200, False),
        (b"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n", 200, False),
        (b"GET /healthz HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n", 200, False),
        (b"DELETE /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 405, True),
        (b"POST /healthz HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi", 413, False),
        (b"POST /healthz HTTP/1.1\r\nContent-Length: 999999999\r\n\r\n" + b"x" * 99_999, 413, False),
        (b"GET /healthz HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", 413, False),
        (b"GET /healthz HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", 400, False),
        (b"CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n", 405, False),
        (b"GET /healthz HTTP/1.1\r\nX: " + b"x" * server.MAX_HEADER_BYTES + b"\r\n\r\n", 431, False),
        (b"GET /" + b"x" * 999_999, 431, False),
        (b"\r\n" * 9_999, 431, False),
        (b"\x16\x03\x01\x02\x00\x01\x00", 400, False),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, False),
        (b"what?\r\n", 400, False),
        (b"GET /healthz HTTP/1.1\r\nno header\r\n\r\n", 400, False),
        (GET + GET, 200, False),
        (GET * 9_999, 200, False),
        (GET + b"\x00", 200, False),
    ],
)  # fmt: skip
def test_every_request_gets_one_answer(loop: Any, asked: bytes, status: int, kept: bool) -> None:
    async def work() -> None:
        async with serve_probes(HERE, OK) as port, Caller(port) as caller:
            answer = await caller.asks(asked)
            assert answer.status == status
            assert answer.headers.get("Allow") == ("GET, HEAD" if status == 405 else None)
            assert answer.headers["Connection"] == ("keep-alive" if kept else "close")
            if kept:
                assert (await caller.asks()).body == "ok\n"
            else:
                assert await caller.ended()

    on(loop, work)


def test_a_request_may_come_in_parts_and_be_as_long_as_allowed(loop: Any) -> None:
    async def work() -> None:
        async with serve_probes(HERE, OK) as port, Caller(port) as caller:
            start, end = b"GET /healthz HTTP/1.1\r\nX: ", b"\r\n\r\n"
            longest = start + b"x" * (server.MAX_HEADER_BYTES - len(start) - len(end)) + end
            for _ in range(2):
                assert (await caller.asks(longest)).status == 200
            for byte in GET:
                await caller.says(bytes([byte]))
                await asyncio.sleep(0)
            assert (await caller.hears()).body == "ok\n"
            assert (await caller.asks(longest[:-4] + b"x" + end)).status == 431

    on(loop, work)


def test_a_page_that_fails_does_not_take_the_others_with_it(loop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> Response:
        raise RuntimeError("of all things")

    async def work() -> None:
        async with serve_probes(HERE, {**OK, "/metrics": fails}) as port, Caller(port) as caller:
            answer = await caller.asks(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            assert answer.status == 500
            assert "of all things" not in answer.body
            assert (await caller.asks()).body == "ok\n"

    said = io.StringIO()
    monkeypatch.setattr(logs._sink, "out", said)
    on(loop, work)
    assert "RuntimeError: of all things" in said.getvalue()


@pytest.mark.parametrize(
    ("said", "limit"),
    [
        (b"", "REQUEST_TIMEOUT"),
        (b"GET /healthz HT", "REQUEST_TIMEOUT"),
        (GET, "MAX_IDLE"),
    ],
)
def test_who_says_nothing_or_not_all_is_hung_up_on(
    loop: Any, said: bytes, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        for name in ("REQUEST_TIMEOUT", "MAX_IDLE"):
            monkeypatch.setattr(server, name, 3600.0)
        async with serve_probes(HERE, OK) as port, Caller(port) as caller:
            assert (await caller.asks()).status == 200
            monkeypatch.setattr(server, limit, 0.1)
            async with Caller(port) as slow:
                await slow.says(said)
                if said.startswith(GET):
                    await slow.hears()
                assert await slow.cut_off()
            assert (await caller.asks()).status == 200  # came before the limit did

    on(loop, work)


def test_dripping_a_request_does_not_buy_time(loop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_TIMEOUT", 0.2)

    async def work() -> None:
        async with serve_probes(HERE, OK) as port, Caller(port) as slow:

            async def drip() -> None:
                await slow.says(b"GET /healthz HTTP/1.1\r\nX: ")
                while True:
                    await slow.says(b"x")
                    await asyncio.sleep(0.01)

            dripping = asyncio.create_task(drip())
            assert await slow.cut_off()
            dripping.cancel()
            await asyncio.gather(dripping, return_exceptions=True)

    on(loop, work)


def test_answers_that_nobody_reads_do_not_pile_up(loop: Any) -> None:
    made = 0

    def big() -> Response:
        nonlocal made
        made += 1
        return Response(200, "text/plain", b"x" * (1 << 20))

    async def work() -> None:
        async with serve_probes(HERE, {**OK, "/big": big}) as port, Caller(port) as deaf, Caller(port) as other:
            deaf._writer.transport.pause_reading()  # type: ignore[attr-defined]
            for _ in range(100):
                deaf._writer.write(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
                assert (await other.asks()).status == 200
            assert 0 < made < 50  # what the sockets hold, and one more

    on(loop, work)


def test_one_caller_too_many_takes_the_place_of_the_quietest(loop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 2)

    async def work() -> None:
        async with serve_probes(HERE, OK) as port, Caller(port) as first:
            async with Caller(port) as second:
                assert [(await caller.asks()).status for caller in (first, second, first)] == [200, 200, 200]
                async with Caller(port) as third:
                    assert (await third.asks()).status == 200
                    assert await second.cut_off()
                    assert (await first.asks()).status == 200
            async with Caller(port) as fourth:  # in the third's place
                assert (await fourth.asks()).status == 200
                assert (await first.asks()).status == 200

    on(loop, work)


def test_the_end_ends_all_connections_at_once(loop: Any) -> None:
    async def work() -> None:
        async with serve_probes(HERE, OK) as port:
            idle, halfway = await Caller(port).__aenter__(), await Caller(port).__aenter__()
            await idle.asks()
            await halfway.asks()
            await halfway.says(b"GET /hea")
        assert await idle.cut_off()
        assert await halfway.cut_off()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        for caller in (idle, halfway):
            await caller.__aexit__()

    on(loop, work)
