"""Server-sent events: their bytes, and streams of them over real sockets."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import virtual
from tests.support.problems import checked_members, checked_problem
from tests.support.raw_http import raw_caller
from tests.support.waiting import eventually
from vmafx.http.address import ListenAddress
from vmafx.http.errors import StatusError
from vmafx.http.events import COMMENT, encode_event, encoded_events
from vmafx.http.limits import ServerLimits
from vmafx.http.request import HttpRequest
from vmafx.http.responses import EventStream, ServerEvent
from vmafx.http.server import HttpRoute, Site, serve_http

GET = b"GET /events HTTP/1.1\r\nHost: x\r\n\r\n"


def parse(text: str) -> list[tuple[str, str, str]]:
    """The events of a stream as (type, ID, data), by the rules of the HTML standard."""
    events, kind, last_id, data = [], "message", "", list[str]()
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "" if not line and data:
                events.append((kind, last_id, "\n".join(data)))
                kind, data = "message", []
            case "event":
                kind = value
            case "id":
                last_id = value
            case "data":
                data.append(value)
    return events


def test_an_event_has_its_fields_on_lines() -> None:
    assert encode_event(ServerEvent(b'{"n":1}', "progress", "7")) == b'event: progress\nid: 7\ndata: {"n":1}\n\n'
    assert encode_event(ServerEvent(b"")) == b"data: \n\n"


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_no_data_can_start_another_event(texts: list[str]) -> None:
    sent = b"".join(encode_event(ServerEvent(text.encode(), "e")) for text in texts)
    normal = [text.replace("\r\n", "\n").replace("\r", "\n") for text in texts]
    assert parse(sent.decode()) == [("e", "", text) for text in normal]


@pytest.mark.parametrize("text", ["a\nb", "a\r", "\ndata: evil\n\n", "\x00", "a\u2028b"])
def test_the_type_and_the_id_of_an_event_are_one_line(text: str) -> None:
    for event in (ServerEvent(b"", event=text), ServerEvent(b"", id=text)):
        with pytest.raises(ValueError, match="printable"):
            encode_event(event)


def test_a_comment_is_sent_after_each_interval_without_events() -> None:
    closed: list[bool] = []

    async def events() -> AsyncGenerator[ServerEvent]:
        try:
            yield ServerEvent(b"1")
            await asyncio.sleep(40)
            yield ServerEvent(b"2")
            await asyncio.sleep(14)
            yield ServerEvent(b"3")
            await asyncio.Event().wait()
        finally:
            closed.append(True)

    async def run() -> list[tuple[float, bytes]]:
        loop, start, seen = asyncio.get_running_loop(), asyncio.get_running_loop().time(), []
        frames = encoded_events(events(), 15)
        for _ in range(6):
            frame = await anext(frames)
            seen.append((loop.time() - start, frame))
        await frames.aclose()
        return seen

    assert virtual.run(run()) == [
        (0, b"data: 1\n\n"),
        (15, COMMENT),
        (30, COMMENT),
        (40, b"data: 2\n\n"),
        (54, b"data: 3\n\n"),
        (69, COMMENT),
    ]
    assert closed == [True]


class Source:
    """Events for one stream, and whether the server has closed it."""

    def __init__(self, events: Callable[[], AsyncGenerator[ServerEvent]]) -> None:
        self._events = events
        self.closed = asyncio.Event()

    async def handle(self, _: HttpRequest) -> EventStream:
        return EventStream(self._generate())

    async def _generate(self) -> AsyncGenerator[ServerEvent]:
        try:
            async for event in self._events():
                yield event
        finally:
            self.closed.set()


@asynccontextmanager
async def serving(source: Source, limits: ServerLimits = ServerLimits()) -> AsyncIterator[int]:  # noqa: B008
    site = Site([HttpRoute("GET", "/events", source.handle)])
    async with asyncio.timeout(60), serve_http(ListenAddress("127.0.0.1", 0), site, limits=limits) as port:
        yield port


@asynccontextmanager
async def opened(port: int) -> AsyncIterator[aiohttp.ClientResponse]:
    async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{port}/events") as response:
        yield response


async def two_lines() -> AsyncGenerator[ServerEvent]:
    yield ServerEvent(b"a\nb\r\n\r\ndata: c", "log", "1")
    yield ServerEvent("ü".encode())


async def test_a_stream_sends_events_as_they_come() -> None:
    source = Source(two_lines)
    async with serving(source) as port, opened(port) as response:
        assert (response.status, response.headers["Content-Type"]) == (200, "text/event-stream")
        assert response.headers["Cache-Control"] == "no-store"
        assert response.headers["X-Request-Id"]
        assert parse(await response.text()) == [("log", "1", "a\nb\n\ndata: c"), ("message", "1", "ü")]
    assert source.closed.is_set()


async def test_an_error_before_the_first_event_is_the_status() -> None:
    missing: StatusError | None = StatusError("NOT_FOUND", "no such job")

    async def events() -> AsyncGenerator[ServerEvent]:
        if missing is not None:
            raise missing
        yield ServerEvent(b"")

    async with serving(Source(events)) as port, opened(port) as response:
        assert response.status == 404
        problem = checked_problem(response, json.loads(await response.read()))
        assert problem == {"code": "NOT_FOUND", "message": "no such job"}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StatusError("ABORTED", "the job\nwas deleted"), "ABORTED"),
        (ValueError("secret"), "INTERNAL"),
    ],
)
async def test_a_later_error_is_the_last_event(error: Exception, code: str) -> None:
    async def events() -> AsyncGenerator[ServerEvent]:
        yield ServerEvent(b"1")
        raise error

    async with serving(Source(events)) as port, opened(port) as response:
        first, last = parse(await response.text())
        assert (first, last[0]) == (("message", "", "1"), "error")
        problem = checked_members(json.loads(last[2]))
        assert problem["code"] == code
        assert "secret" not in problem["message"]


async def one_then_silence() -> AsyncGenerator[ServerEvent]:
    yield ServerEvent(b"1")
    await asyncio.Event().wait()


async def test_a_stream_without_events_sends_comments_and_ends_with_its_client() -> None:
    source = Source(one_then_silence)
    async with serving(source, ServerLimits(idle_event_seconds=0.05)) as port, raw_caller(port) as caller:
        await caller.send(GET)
        assert (await caller.answer(body=False)).status == 200
        for _ in range(3):
            await caller.reader.readuntil(b":\n\n")
        await caller.hang_up()
        await source.closed.wait()


async def test_a_stream_whose_first_event_is_late_sends_its_headers() -> None:
    resume = asyncio.Event()

    async def events() -> AsyncGenerator[ServerEvent]:
        await resume.wait()
        yield ServerEvent(b"late")

    async with serving(Source(events), ServerLimits(first_object_seconds=0.05)) as port, opened(port) as response:
        assert response.status == 200
        resume.set()
        assert parse(await response.text()) == [("message", "", "late")]


async def test_a_client_that_does_not_read_is_disconnected_and_its_events_are_not_buffered() -> None:
    sent = 0

    async def endless() -> AsyncGenerator[ServerEvent]:
        nonlocal sent
        while True:
            sent += 1
            yield ServerEvent(b"x" * 10_000)

    source = Source(endless)
    async with serving(source, ServerLimits(write_seconds=0.5)) as port, raw_caller(port) as caller:
        caller.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await caller.send(GET)
        await source.closed.wait()
        assert sent < 5000  # 50 MB, which is more than the socket buffers hold


async def test_stopping_the_server_ends_streams() -> None:
    source = Source(one_then_silence)
    async with raw_stream(source) as reader:
        await reader.readuntil(b"data: 1")
    await eventually(source.closed.is_set, "the stream is closed")


@asynccontextmanager
async def raw_stream(source: Source) -> AsyncIterator[asyncio.StreamReader]:
    """A stream that is open when the server stops."""
    async with serving(source, ServerLimits(stop_seconds=3600)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET)
        yield reader
    writer.transport.abort()


async def test_head_sends_the_headers_only() -> None:
    source = Source(one_then_silence)
    async with serving(source) as port, raw_caller(port) as caller:
        for _ in range(2):  # on the same connection: no byte of a body was sent
            await caller.send(GET.replace(b"GET", b"HEAD"))
            answer = await caller.answer(body=False)
            assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
            assert "transfer-encoding" not in answer.headers
    assert source.closed.is_set()
