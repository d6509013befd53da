"""What nobody can do to the controller's HTTP side: too much, too slowly, too many, or something that is no HTTP."""

import asyncio
import io
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

import aiohttp
import pytest

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
PAGES: ProbeRoutes = {"/healthz": probe_response(lambda: None)}
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


class Site(NamedTuple):
    calls: ScriptedController
    port: int

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def says(self, data: bytes, within: float = 20) -> bytes:
        """All that comes back until the server hangs up, or the first answer if it does not."""
        reader, writer = await self.connect()
        try:
            writer.write(data)
            async with asyncio.timeout(within):
                head = await reader.readuntil(b"\r\n\r\n")
                return head + await reader.read() if b"Connection: close" in head else head
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""
        finally:
            writer.transport.abort()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def healthy(self) -> bool:
        return b" 200 OK" in await self.says(HEALTH)


@asynccontextmanager
async def serving(limits: ServerLimits, pages: ProbeRoutes = PAGES) -> AsyncIterator[Site]:
    calls = ScriptedController()
    async with serve_http(HERE, http_server.site(calls, pages), limits=limits) as port:  # type: ignore[arg-type]
        yield Site(calls, port)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with serving(ServerLimits()) as made:
        yield made


def status(answer: bytes) -> int:
    return int(answer.split()[1]) if answer else 0


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (POST + b"Content-Length: 1048576\r\n\r\n" + b" " * (1 << 20), 400),  # not too large, but no JSON
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
async def test_every_request_gets_an_answer_or_the_end(site: Site, data: bytes, wanted: int) -> None:
    assert status(await site.says(data)) == wanted
    assert await site.healthy()


async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    async with serving(ServerLimits(body_seconds=0.1)) as site:
        answer = await site.says(POST + b"Content-Length: 10\r\n\r\n{")
    assert status(answer) == 408
    assert b"Connection: close" in answer


async def test_who_says_nothing_or_not_all_is_hung_up_on() -> None:
    async with serving(ServerLimits(idle_seconds=0.2)) as site:
        assert await site.says(b"") == b""
        assert await site.says(b"GET /healthz HT") == b""
        await eventually(site.healthy, "who asks in time is answered")


async def test_a_call_that_takes_too_long_is_given_up() -> None:
    cancelled = asyncio.Event()

    async def forever() -> wire.Job:
        try:
            await asyncio.sleep(3600)
        finally:
            cancelled.set()
        return wire.Job()

    async with serving(ServerLimits(answer_seconds=0.1)) as site:
        site.calls.answers["GetJob"] = forever
        assert status(await site.says(b"GET /v1/jobs/x HTTP/1.1\r\nHost: x\r\n\r\n")) == 504
    assert cancelled.is_set()


@pytest.mark.parametrize(
    ("takes", "asks_for", "wanted"),
    [
        (LIMITS.answer_seconds - 1, 0, 200),
        (LIMITS.answer_seconds + 1, 0, 504),
        (LIMITS.answer_seconds + 1, -9, 504),
        (LIMITS.answer_seconds + 9, 10, 200),
        (LIMITS.answer_seconds + 11, 10, 504),
        (LIMITS.answer_seconds + LIMITS.wait_seconds - 1, 99999, 200),
        (LIMITS.answer_seconds + LIMITS.wait_seconds + 1, 99999, 504),  # and no more
    ],
)
def test_a_poll_has_the_time_that_it_asks_for(takes: float, asks_for: int, wanted: int) -> None:
    async def late() -> wire.PullWorkResponse:
        await asyncio.sleep(takes)
        return wire.PullWorkResponse()

    async def pull() -> bytes:
        body = b'{"waitSeconds": %d}' % asks_for
        head = POST.replace(b"jobs", b"nodes/a/b/pull") + b"Content-Length: %d\r\n\r\n" % len(body)
        async with serving(LIMITS) as site:
            site.calls.answers["PullWork"] = late
            return await site.says(head + body, within=3600)

    assert status(virtual.run(pull())) == wanted


async def test_a_call_whose_caller_left_is_dropped(site: Site) -> None:
    begun, dropped = asyncio.Event(), asyncio.Event()

    async def forever() -> wire.PullWorkResponse:
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            dropped.set()
        return wire.PullWorkResponse()

    site.calls.answers["PullWork"] = forever
    _, writer = await site.connect()
    writer.write(POST.replace(b"jobs", b"nodes/a/b/pull") + b"Content-Length: 2\r\n\r\n{}")
    await begun.wait()
    writer.transport.abort()
    async with asyncio.timeout(20):
        await dropped.wait()


async def test_one_connection_too_many_takes_the_place_of_one_that_asks_nothing() -> None:
    async with serving(ServerLimits(connections=2)) as site:
        held = [await site.connect() for _ in range(2)]
        for reader, writer in held:
            writer.write(HEALTH)
            await reader.readuntil(b"\r\n\r\n")
            await reader.readline()
        await eventually(site.healthy, "there is room")
        assert await held[0][0].read() == b""  # the oldest
        for _, writer in held:
            writer.transport.abort()


async def test_one_connection_too_many_is_hung_up_on() -> None:
    begun = asyncio.Semaphore(0)

    async def hangs() -> wire.Job:
        begun.release()
        await asyncio.sleep(3600)
        return wire.Job()

    async with serving(ServerLimits(connections=2)) as site:
        site.calls.answers["GetJob"] = hangs
        held = [await site.connect() for _ in range(2)]
        for _, writer in held:
            writer.write(b"GET /v1/jobs/x HTTP/1.1\r\nHost: x\r\n\r\n")
            await begun.acquire()
        assert await site.says(HEALTH) == b""  # both have a request in hand
        held[0][1].transport.abort()
        await eventually(site.healthy, "there is room again")
        held[1][1].transport.abort()


async def test_who_does_not_read_the_answer_is_hung_up_on() -> None:
    big: ProbeRoutes = {"/metrics": lambda: Response(200, "text/plain", b"x" * (50 << 20))}
    async with serving(ServerLimits(write_seconds=0.2, connections=1), PAGES | big) as site:
        reader, writer = await site.connect()
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await eventually(site.healthy, "its place is free again")
        writer.transport.abort()


def endless(made: list[int]) -> Callable[[], AsyncGenerator[wire.Job]]:
    async def jobs() -> AsyncGenerator[wire.Job]:
        while True:
            made.append(1)
            yield wire.Job(id="x" * 10_000)

    return jobs


async def test_a_stream_does_not_pile_up_and_ends_with_its_reader() -> None:
    made: list[int] = []
    async with serving(ServerLimits(write_seconds=0.5)) as site:
        site.calls.jobs = endless(made)
        _, writer = await site.connect()
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(b"GET /v1/jobs HTTP/1.1\r\nHost: x\r\n\r\n")
        await eventually(lambda: site.calls.closed, "who does not read is cut off")
        assert len(made) < 5000  # what the sockets hold; 50 MB would be more than that
        assert await site.healthy()
        writer.transport.abort()


async def test_a_stream_whose_reader_left_is_closed(site: Site) -> None:
    async def one_and_wait() -> AsyncGenerator[wire.Job]:
        yield wire.Job(id="one")
        await asyncio.sleep(3600)

    site.calls.jobs = one_and_wait
    reader, writer = await site.connect()
    writer.write(b"GET /v1/jobs HTTP/1.1\r\nHost: x\r\n\r\n")
    await reader.readuntil(b'"one"')
    writer.transport.abort()
    await eventually(lambda: site.calls.closed, "the stream is closed")


async def test_a_stream_with_nothing_to_say_begins_all_the_same() -> None:
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


async def test_the_end_ends_streams_and_lets_calls_finish() -> None:
    calls, begun = ScriptedController(), asyncio.Event()

    async def in_hand() -> wire.Job:
        begun.set()
        await eventually(lambda: calls.closed, "the end has come to the stream")
        return wire.Job(id="done")

    async def one_and_wait() -> AsyncGenerator[wire.Job]:
        yield wire.Job(id="one")
        await asyncio.sleep(3600)

    calls.answers["GetJob"], calls.jobs = in_hand, one_and_wait
    async with asyncio.timeout(20), aiohttp.ClientSession() as http:
        made = http_server.site(calls, PAGES)  # type: ignore[arg-type]
        async with serve_http(HERE, made, limits=ServerLimits(stop_seconds=3600.0)) as port:
            where = f"http://127.0.0.1:{port}/v1/jobs"
            stream = await http.get(where)
            await stream.content.readline()
            asked = asyncio.create_task(http.get(f"{where}/x"))
            await begun.wait()
        async with await asked as answer:
            assert (await answer.json())["id"] == "done"
        with pytest.raises(aiohttp.ClientPayloadError):  # not an end in good order: ask again
            await stream.content.readline()
        stream.close()
        assert calls.closed == 1
        with pytest.raises(aiohttp.ClientConnectionError):
            await http.get(where)


async def test_nowhere() -> None:
    async with serve_http(None, http_server.site(ScriptedController(), PAGES)) as port:  # type: ignore[arg-type]
        assert port == 0


async def test_what_callers_send_is_not_logged(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logs._sink, "out", said)
        patch.setattr(logs._sink, "rank", 0)
        caplog.set_level(logging.DEBUG)
        await site.says(b"GET /healthz HTTP/1.1\r\nAuthorization\x00: Bearer secret\r\n\r\n")
        await site.says(b"GET /v1/jobs/x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret\r\n\r\n")
        await site.says(POST + b'Content-Length: 27\r\n\r\n{"session_token": "secret",')
    assert "secret" not in said.getvalue() + caplog.text
