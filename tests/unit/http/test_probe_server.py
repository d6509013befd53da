"""Probes and metrics over real sockets, on asyncio's event loop and on uvloop."""

import asyncio
import io
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple

import pytest
import uvloop
from prometheus_client import CollectorRegistry, Gauge

from vmafx import logs
from vmafx.http import probe_server
from vmafx.http.address import ListenAddress
from vmafx.http.probe_server import serve_probes
from vmafx.http.responses import Response, metrics_response, probe_response

HERE = ListenAddress("127.0.0.1", 0)
GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
OK = {"/healthz": probe_response(lambda: None)}

pytestmark = pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])


class RawResponse(NamedTuple):
    status: int
    headers: dict[str, str]
    body: str


class RawClient:
    """One connection that sends raw bytes and parses responses."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> "RawClient":
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.transport.abort()
        with suppress(ConnectionError):
            await self._writer.wait_closed()

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def receive(self, *, body: bool = True) -> RawResponse:
        first, *lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().removesuffix("\r\n\r\n").split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        length = int(headers["Content-Length"]) if body else 0
        return RawResponse(int(first.split()[1]), headers, (await self._reader.readexactly(length)).decode())

    async def request(self, data: bytes = GET, *, body: bool = True) -> RawResponse:
        await self.send(data)
        return await self.receive(body=body)

    async def is_closed(self) -> bool:
        """True once the server has closed the connection gracefully and sent nothing more."""
        return await self._reader.read() == b""

    async def is_disconnected(self) -> bool:
        """True once the server has closed or reset the connection."""
        try:
            return await self.is_closed()
        except ConnectionError:
            return True


def run_on(loop: Callable[[], asyncio.AbstractEventLoop], scenario: Callable[[], Awaitable[Any]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(20):
            await scenario()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())


def test_probes_say_what_is_missing(loop: Any) -> None:
    missing: list[str | None] = ["caches not synced: jobs", None]

    async def scenario() -> None:
        async with serve_probes(HERE, {"/readyz": probe_response(missing.pop)}) as port, RawClient(port) as client:
            ask = b"GET /readyz?verbose=1 HTTP/1.1\r\nHost: x\r\n\r\n"
            ready, waiting = await client.request(ask), await client.request(ask)  # over one connection
            assert (ready.status, ready.body) == (200, "ok\n")
            assert ready.headers["Content-Type"] == "text/plain; charset=utf-8"
            assert (waiting.status, waiting.body) == (503, "caches not synced: jobs\n")

    run_on(loop, scenario)


def test_metrics_are_prometheus_text(loop: Any) -> None:
    registry = CollectorRegistry()
    Gauge("pages", "Number of pages.", registry=registry).set(2)

    async def scenario() -> None:
        async with serve_probes(HERE, {"/metrics": metrics_response(registry)}) as port, RawClient(port) as client:
            response = await client.request(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            assert response.headers["Content-Type"].startswith("text/plain; version=")
            assert response.body == "# HELP pages Number of pages.\n# TYPE pages gauge\npages 2.0\n"

    run_on(loop, scenario)


def test_without_an_address_it_does_not_listen_and_without_a_host_on_all_interfaces(loop: Any) -> None:
    async def scenario() -> None:
        async with serve_probes(None, OK) as port:
            assert port == 0
        async with serve_probes(ListenAddress(None, 0), OK) as port:
            assert port > 0

    run_on(loop, scenario)


def test_a_head_response_has_the_length_and_no_body(loop: Any) -> None:
    async def scenario() -> None:
        async with serve_probes(HERE, OK) as port, RawClient(port) as client:
            response = await client.request(b"HEAD /healthz HTTP/1.1\r\nHost: x\r\n\r\n", body=False)
            assert response.headers["Content-Length"] == "3"
            assert (await client.request()).body == "ok\n"  # no stray bytes between the two responses

    run_on(loop, scenario)


@pytest.mark.parametrize(
    ("sent", "status", "keep_alive"),
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
        (b"GET /healthz HTTP/1.1\r\nX: " + b"x" * probe_server.MAX_HEADER_BYTES + b"\r\n\r\n", 431, False),
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
def test_every_request_gets_one_response(loop: Any, sent: bytes, status: int, keep_alive: bool) -> None:
    async def scenario() -> None:
        async with serve_probes(HERE, OK) as port, RawClient(port) as client:
            response = await client.request(sent)
            assert response.status == status
            assert response.headers.get("Allow") == ("GET, HEAD" if status == 405 else None)
            assert response.headers["Connection"] == ("keep-alive" if keep_alive else "close")
            if keep_alive:
                assert (await client.request()).body == "ok\n"
            else:
                assert await client.is_closed()

    run_on(loop, scenario)


def test_a_request_can_arrive_in_parts_and_be_as_long_as_the_limit(loop: Any) -> None:
    async def scenario() -> None:
        async with serve_probes(HERE, OK) as port, RawClient(port) as client:
            start, end = b"GET /healthz HTTP/1.1\r\nX: ", b"\r\n\r\n"
            longest = start + b"x" * (probe_server.MAX_HEADER_BYTES - len(start) - len(end)) + end
            for _ in range(2):
                assert (await client.request(longest)).status == 200
            for byte in GET:
                await client.send(bytes([byte]))
                await asyncio.sleep(0)
            assert (await client.receive()).body == "ok\n"
            assert (await client.request(longest[:-4] + b"x" + end)).status == 431

    run_on(loop, scenario)


def test_a_failed_page_does_not_affect_the_others(loop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> Response:
        raise RuntimeError("broken page")

    async def scenario() -> None:
        async with serve_probes(HERE, {**OK, "/metrics": fails}) as port, RawClient(port) as client:
            response = await client.request(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            assert response.status == 500
            assert "broken page" not in response.body
            assert (await client.request()).body == "ok\n"

    out = io.StringIO()
    monkeypatch.setattr(logs._sink, "out", out)
    run_on(loop, scenario)
    assert "RuntimeError: broken page" in out.getvalue()


@pytest.mark.parametrize(
    ("sent", "limit"),
    [
        (b"", "REQUEST_TIMEOUT"),
        (b"GET /healthz HT", "REQUEST_TIMEOUT"),
        (GET, "MAX_IDLE"),
    ],
)
def test_an_idle_or_incomplete_request_times_out(
    loop: Any, sent: bytes, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        for name in ("REQUEST_TIMEOUT", "MAX_IDLE"):
            monkeypatch.setattr(probe_server, name, 3600.0)
        async with serve_probes(HERE, OK) as port, RawClient(port) as client:
            assert (await client.request()).status == 200
            monkeypatch.setattr(probe_server, limit, 0.1)
            async with RawClient(port) as slow:
                await slow.send(sent)
                if sent.startswith(GET):
                    await slow.receive()
                assert await slow.is_disconnected()
            assert (await client.request()).status == 200  # connected before the limit was lowered

    run_on(loop, scenario)


def test_a_slowly_sent_request_times_out(loop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_server, "REQUEST_TIMEOUT", 0.2)

    async def scenario() -> None:
        async with serve_probes(HERE, OK) as port, RawClient(port) as slow:

            async def drip() -> None:
                await slow.send(b"GET /healthz HTTP/1.1\r\nX: ")
                while True:
                    await slow.send(b"x")
                    await asyncio.sleep(0.01)

            dripping = asyncio.create_task(drip())
            assert await slow.is_disconnected()
            dripping.cancel()
            await asyncio.gather(dripping, return_exceptions=True)

    run_on(loop, scenario)


def test_unread_responses_do_not_accumulate(loop: Any) -> None:
    built = 0

    def big() -> Response:
        nonlocal built
        built += 1
        return Response(200, "text/plain", b"x" * (1 << 20))

    async def scenario() -> None:
        async with serve_probes(HERE, {**OK, "/big": big}) as port, RawClient(port) as unread, RawClient(port) as other:
            unread._writer.transport.pause_reading()  # type: ignore[attr-defined]
            for _ in range(100):
                unread._writer.write(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
                assert (await other.request()).status == 200
            assert 0 < built < 50  # as many as fit into the socket buffers, and one more

    run_on(loop, scenario)


def test_one_connection_too_many_closes_the_least_recently_used(loop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_server, "MAX_CONNECTIONS", 2)

    async def scenario() -> None:
        async with serve_probes(HERE, OK) as port, RawClient(port) as first:
            async with RawClient(port) as second:
                assert [(await client.request()).status for client in (first, second, first)] == [200, 200, 200]
                async with RawClient(port) as third:
                    assert (await third.request()).status == 200
                    assert await second.is_disconnected()
                    assert (await first.request()).status == 200
            async with RawClient(port) as fourth:  # replaces the third
                assert (await fourth.request()).status == 200
                assert (await first.request()).status == 200

    run_on(loop, scenario)


def test_stopping_the_server_closes_all_connections(loop: Any) -> None:
    async def scenario() -> None:
        async with serve_probes(HERE, OK) as port:
            idle, halfway = await RawClient(port).__aenter__(), await RawClient(port).__aenter__()
            await idle.request()
            await halfway.request()
            await halfway.send(b"GET /hea")
        assert await idle.is_disconnected()
        assert await halfway.is_disconnected()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        for client in (idle, halfway):
            await client.__aexit__()

    run_on(loop, scenario)
