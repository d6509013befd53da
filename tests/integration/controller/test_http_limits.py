"""The limits of the controller's HTTP server: requests that are too large, too slow, too many, or malformed."""

import asyncio
import io
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

import aiohttp
import pytest

from tests.conftest import Logged
from tests.support import virtual
from tests.support.scripted_controller import ScriptedController
from tests.support.waiting import eventually
from vmafx import logs
from vmafx.controller import http_server
from vmafx.http.address import ListenAddress
from vmafx.http.limits import ServerLimits
from vmafx.http.responses import ProbeRoutes, Response, probe_response
from vmafx.http.server import serve_http
from vmafx.wire import controller_pb2 as wire

HERE = ListenAddress("127.0.0.1", 0)
LIMITS = ServerLimits()
PROBES: ProbeRoutes = {"/healthz": probe_response(lambda: None)}
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


class Site(NamedTuple):
    calls: ScriptedController
    port: int

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def exchange(self, data: bytes, seconds: float = 20) -> bytes:
        """Send raw bytes and return the response, headers only if the connection stays open; empty if it is closed."""
        reader, writer = await self.connect()
        try:
            writer.write(data)
            async with asyncio.timeout(seconds):
                head = await reader.readuntil(b"\r\n\r\n")
                return head + await reader.read() if b"Connection: close" in head else head
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""
        finally:
            writer.transport.abort()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def is_healthy(self) -> bool:
        return b" 200 OK" in await self.exchange(HEALTH)


@asynccontextmanager
async def serving(limits: ServerLimits, probes: ProbeRoutes = PROBES) -> AsyncIterator[Site]:
    calls = ScriptedController()
    async with serve_http(HERE, http_server.site(calls, probes), limits=limits) as port:  # type: ignore[arg-type]
        yield Site(calls, port)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with serving(ServerLimits()) as site:
        yield site


def status(response: bytes) -> int:
    return int(response.split()[1]) if response else 0


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (POST + b"Content-Length: 1048576\r\n\r\n" + b" " * (1 << 20), 400),  # within the limit, but not JSON
        (POST + b"Content-Length: 1048577\r\n\r\n", 413),
        (POST + b"Content-Length: 99999999999999999999\r\n\r\n", 400),
        (POST + b"Content-Length: -1\r\n\r\n", 400),
        (POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400),
        (POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 201),
        (POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"10000\r\n%s\r\n" % (b" " * 65536) * 17 + b"0\r\n\r\n", 413),
        (b"GET /" + b"x" * 9_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 10_000 + b"\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"X: x\r\n" * 100 + b"\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + b"x" * 8192 + b"\r\n\r\n", 200),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n", 200),
        (b"\x16\x03\x01\x02\x00\x01\x00", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"what?\r\n\r\n", 400),
        (b"GET http://elsewhere/healthz HTTP/1.1\r\nHost: x\r\n\r\n", 200),
    ],
)
async def test_every_malformed_or_large_request_gets_a_response(site: Site, data: bytes, expected: int) -> None:
    assert status(await site.exchange(data)) == expected
    assert await site.is_healthy()


async def test_a_body_that_does_not_arrive_times_out() -> None:
    async with serving(ServerLimits(body_seconds=0.1)) as site:
        response = await site.exchange(POST + b"Content-Length: 10\r\n\r\n{")
    assert status(response) == 408
    assert b"Connection: close" in response


async def test_an_idle_or_incomplete_request_times_out() -> None:
    async with serving(ServerLimits(idle_seconds=0.2)) as site:
        assert await site.exchange(b"") == b""
        assert await site.exchange(b"GET /healthz HT") == b""
        await eventually(site.is_healthy, "a complete request gets a response")


async def test_a_call_that_takes_too_long_is_cancelled() -> None:
    cancelled = asyncio.Event()

    async def forever() -> wire.Job:
        try:
            await asyncio.sleep(3600)
        finally:
            cancelled.set()
        return wire.Job()

    async with serving(ServerLimits(answer_seconds=0.1)) as site:
        site.calls.answers["GetJob"] = forever
        assert status(await site.exchange(b"GET /v1/jobs/x HTTP/1.1\r\nHost: x\r\n\r\n")) == 504
    assert cancelled.is_set()


@pytest.mark.parametrize(
    ("takes", "wait_seconds", "expected"),
    [
        (LIMITS.answer_seconds - 1, 0, 200),
        (LIMITS.answer_seconds + 1, 0, 504),
        (LIMITS.answer_seconds + 1, -9, 504),
        (LIMITS.answer_seconds + 9, 10, 200),
        (LIMITS.answer_seconds + 11, 10, 504),
        (LIMITS.answer_seconds + LIMITS.wait_seconds - 1, 99999, 200),
        (LIMITS.answer_seconds + LIMITS.wait_seconds + 1, 99999, 504),  # the wait is capped
    ],
)
def test_a_long_poll_extends_the_deadline(takes: float, wait_seconds: int, expected: int) -> None:
    async def late() -> wire.PullWorkResponse:
        await asyncio.sleep(takes)
        return wire.PullWorkResponse()

    async def pull() -> bytes:
        body = b'{"waitSeconds": %d}' % wait_seconds
        head = POST.replace(b"jobs", b"nodes/a/b/pull") + b"Content-Length: %d\r\n\r\n" % len(body)
        async with serving(LIMITS) as site:
            site.calls.answers["PullWork"] = late
            return await site.exchange(head + body, seconds=3600)

    assert status(virtual.run(pull())) == expected


async def test_a_call_is_cancelled_when_its_caller_disconnects(site: Site) -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def forever() -> wire.PullWorkResponse:
        started.set()
        try:
            await asyncio.sleep(3600)
        finally:
            cancelled.set()
        return wire.PullWorkResponse()

    site.calls.answers["PullWork"] = forever
    _, writer = await site.connect()
    writer.write(POST.replace(b"jobs", b"nodes/a/b/pull") + b"Content-Length: 2\r\n\r\n{}")
    await started.wait()
    writer.transport.abort()
    async with asyncio.timeout(20):
        await cancelled.wait()


async def test_one_connection_too_many_closes_the_oldest_idle_one() -> None:
    async with serving(ServerLimits(connections=2)) as site:
        held = [await site.connect() for _ in range(2)]
        for reader, writer in held:
            writer.write(HEALTH)
            await reader.readuntil(b"\r\n\r\n")
            await reader.readline()
        await eventually(site.is_healthy, "there is room")
        assert await held[0][0].read() == b""  # the oldest
        for _, writer in held:
            writer.transport.abort()


async def test_one_connection_too_many_closes_the_oldest_that_does_not_send_its_body() -> None:
    """Bodies are read before callers are authenticated."""
    async with serving(ServerLimits(connections=2, body_seconds=3600)) as site:
        held = [await site.connect() for _ in range(2)]
        for reader, writer in held:
            writer.write(POST + b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n")
            assert b" 100 Continue" in await reader.readuntil(b"\r\n\r\n")  # the server waits for the body
        assert await site.is_healthy()
        assert await held[0][0].read() == b""  # the oldest
        held[1][1].write(b"{}")
        assert b" 201 Created" in await held[1][0].readuntil(b"\r\n\r\n")
        for _, writer in held:
            writer.transport.abort()


async def test_one_connection_too_many_is_closed_if_no_other_is_idle() -> None:
    started = asyncio.Semaphore(0)

    async def hangs() -> wire.Job:
        started.release()
        await asyncio.sleep(3600)
        return wire.Job()

    async with serving(ServerLimits(connections=2)) as site:
        site.calls.answers["GetJob"] = hangs
        held = [await site.connect() for _ in range(2)]
        for _, writer in held:
            writer.write(b"GET /v1/jobs/x HTTP/1.1\r\nHost: x\r\n\r\n")
            await started.acquire()
        assert await site.exchange(HEALTH) == b""  # both connections are busy
        held[0][1].transport.abort()
        await eventually(site.is_healthy, "there is room again")
        held[1][1].transport.abort()


async def test_a_client_that_does_not_read_the_response_is_disconnected() -> None:
    big: ProbeRoutes = {"/metrics": lambda: Response(200, "text/plain", b"x" * (50 << 20))}
    async with serving(ServerLimits(write_seconds=0.2, connections=1), PROBES | big) as site:
        reader, writer = await site.connect()
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await eventually(site.is_healthy, "its connection is closed")
        writer.transport.abort()


async def test_a_client_that_sends_requests_and_reads_no_small_response_is_disconnected(logged: Logged) -> None:
    small: ProbeRoutes = {"/metrics": lambda: Response(200, "text/plain", b"x" * (8 << 10))}
    async with serving(ServerLimits(write_seconds=0.2), PROBES | small) as site:
        _, writer = await site.connect()
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 5000)  # 40 MB of responses
        await eventually(lambda: bool(logged("path", "/metrics")), "it is noticed")
        ((message, _),) = logged("path", "/metrics")
        assert message == "client does not read the response; closing the connection"
        writer.transport.abort()


def endless_jobs(sent: list[int]) -> Callable[[], AsyncGenerator[wire.Job]]:
    async def jobs() -> AsyncGenerator[wire.Job]:
        while True:
            sent.append(1)
            yield wire.Job(id="x" * 10_000)

    return jobs


async def test_a_stream_that_is_not_read_is_not_buffered_and_ends() -> None:
    sent: list[int] = []
    async with serving(ServerLimits(write_seconds=0.5)) as site:
        site.calls.jobs = endless_jobs(sent)
        _, writer = await site.connect()
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(b"GET /v1/jobs HTTP/1.1\r\nHost: x\r\n\r\n")
        await eventually(lambda: site.calls.closed, "the stream is closed")
        assert len(sent) < 5000  # 50 MB, which is more than the socket buffers hold
        assert await site.is_healthy()
        writer.transport.abort()


async def test_a_stream_is_closed_when_its_client_disconnects(site: Site) -> None:
    async def one_and_wait() -> AsyncGenerator[wire.Job]:
        yield wire.Job(id="one")
        await asyncio.sleep(3600)

    site.calls.jobs = one_and_wait
    reader, writer = await site.connect()
    writer.write(b"GET /v1/jobs HTTP/1.1\r\nHost: x\r\n\r\n")
    await reader.readuntil(b'"one"')
    writer.transport.abort()
    await eventually(lambda: site.calls.closed, "the stream is closed")


async def test_a_stream_without_jobs_sends_its_headers() -> None:
    async def nothing() -> AsyncGenerator[wire.Job]:
        await asyncio.sleep(3600)
        yield wire.Job()

    async with serving(ServerLimits(first_object_seconds=0.1)) as site:
        site.calls.jobs = nothing
        reader, writer = await site.connect()
        writer.write(b"GET /v1/jobs HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(20):
            assert b" 200 OK" in await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()
        await eventually(lambda: site.calls.closed, "the stream is closed")


async def test_stopping_the_server_ends_streams_and_lets_calls_finish() -> None:
    calls, started = ScriptedController(), asyncio.Event()

    async def slow_call() -> wire.Job:
        started.set()
        await eventually(lambda: calls.closed, "the stream is closed")
        return wire.Job(id="done")

    async def one_and_wait() -> AsyncGenerator[wire.Job]:
        yield wire.Job(id="one")
        await asyncio.sleep(3600)

    calls.answers["GetJob"], calls.jobs = slow_call, one_and_wait
    async with asyncio.timeout(20), aiohttp.ClientSession() as http:
        site = http_server.site(calls, PROBES)  # type: ignore[arg-type]
        async with serve_http(HERE, site, limits=ServerLimits(stop_seconds=3600.0)) as port:
            url = f"http://127.0.0.1:{port}/v1/jobs"
            stream = await http.get(url)
            await stream.content.readline()
            call = asyncio.create_task(http.get(f"{url}/x"))
            await started.wait()
        async with await call as response:
            assert (await response.json())["id"] == "done"
        with pytest.raises(aiohttp.ClientPayloadError):  # cut off, so that the client requests it again
            await stream.content.readline()
        stream.close()
        assert calls.closed == 1
        with pytest.raises(aiohttp.ClientConnectionError):
            await http.get(url)


async def test_without_an_address_it_does_not_listen() -> None:
    async with serve_http(None, http_server.site(ScriptedController(), PROBES)) as port:  # type: ignore[arg-type]
        assert port == 0


async def test_the_content_of_requests_is_not_logged(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logs._sink, "out", out)
        patch.setattr(logs._sink, "rank", 0)
        caplog.set_level(logging.DEBUG)
        await site.exchange(b"GET /healthz HTTP/1.1\r\nAuthorization\x00: Bearer secret\r\n\r\n")
        await site.exchange(b"GET /v1/jobs/x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret\r\n\r\n")
        await site.exchange(POST + b'Content-Length: 27\r\n\r\n{"session_token": "secret",')
    assert "secret" not in out.getvalue() + caplog.text
