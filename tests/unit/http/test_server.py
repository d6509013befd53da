"""The server for any role, by real sockets: routes, pages, streams, errors, deadlines.

What it does to callers who send too much, too slowly or nothing that is HTTP is tested with the controller's calls, in
tests/integration/controller/test_http_limits.py.
"""

import asyncio
import io
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from tests.support.raw_http import raw_caller
from vmafx import logs
from vmafx.http.address import ListenAddress
from vmafx.http.errors import CallRefused
from vmafx.http.limits import ServerLimits
from vmafx.http.request import HttpRequest
from vmafx.http.responses import JsonStream, Response, json_response, probe_response, text_response
from vmafx.http.server import HttpRoute, RouteHandler, Site, serve_http

HERE = ListenAddress("127.0.0.1", 0)
POST = b"POST /things HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


async def echo(request: HttpRequest) -> Response:
    said = {
        "method": request.method, "path": request.path, "parameters": dict(request.parameters),
        "query": request.query.getall("q", []), "x": request.headers.get("X-Thing"), "peer": request.peer,
        "subject": request.subject, "length": request.length, "body": await request.json(),
    }  # fmt: skip
    return json_response(json.dumps(said).encode())


@asynccontextmanager
async def serving(*routes: HttpRoute, limits: ServerLimits = ServerLimits(), **more: Any) -> AsyncIterator[int]:  # noqa: B008
    async with asyncio.timeout(60), serve_http(HERE, Site(routes, **more), limits=limits) as port:
        yield port


@asynccontextmanager
async def client(*routes: HttpRoute, **more: Any) -> AsyncIterator[aiohttp.ClientSession]:
    async with serving(*routes, **more) as port, aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http:
        yield http


def posted(handler: RouteHandler) -> HttpRoute:
    return HttpRoute("POST", "/things", handler)


def answers(answer: Callable[[], Response]) -> RouteHandler:
    async def handle(_: HttpRequest) -> Response:
        return answer()

    return handle


async def told(answer: aiohttp.ClientResponse) -> tuple[int, Any]:
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cache-Control"] == "no-store"
    return answer.status, json.loads(await answer.read())


async def test_a_handler_gets_what_was_asked_and_by_whom() -> None:
    route = HttpRoute("PUT", r"/things/{name}/{rest:.+}", echo)
    async with client(route) as http:
        sent = http.put("/things/a%20b/c/d?q=1&q=2", json={"n": [1, {}]}, headers={"X-Thing": "y"})
        async with sent as answer:
            status, said = await told(answer)
    assert status == 200
    assert said == {
        "method": "PUT", "path": "/things/a b/c/d", "parameters": {"name": "a b", "rest": "c/d"}, "query": ["1", "2"],
        "x": "y", "peer": "127.0.0.1", "subject": [], "length": 14, "body": {"n": [1, {}]},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"", 200, ""),
        (b'{"a": 1, "a": 2}', 400, "stands twice"),
        (b'{"a": Infinity}', 400, "Infinity is no JSON"),
        (b'{"a": ' + b"[" * 15 + b"]" * 15 + b"}", 200, ""),
        (b'{"a": ' + b"[" * 16 + b"]" * 16 + b"}", 400, "deeper than 16"),
        (b"[1]", 400, "not a JSON object"),
        (b'{"a": "' + b"x" * (100 - 9) + b'"}', 200, ""),
        (b'{"a": "' + b"x" * (101 - 9) + b'"}', 413, "more than 100 bytes"),
    ],
)
async def test_bodies_are_strict_json(body: bytes, status: int, message: str) -> None:
    json_type = {"Content-Type": "application/json"}
    async with (
        client(posted(echo), limits=ServerLimits(body_bytes=100)) as http,
        http.post("/things", data=body, headers=json_type) as answer,
    ):
        got, said = await told(answer)
    assert got == status
    if message:
        assert message in said["message"]


async def test_pages_are_open_and_have_their_headers() -> None:
    pages = {"/readyz": probe_response(lambda: "no cache"), "/x": lambda: text_response(200, "hi", {"X-More": "1"})}
    async with client(pages=pages) as http:
        async with http.get("/readyz", headers={"Sec-Fetch-Site": "cross-site"}) as answer:
            assert (answer.status, await answer.text()) == (503, "no cache\n")
        async with http.head("/x") as answer:
            assert (answer.status, answer.headers["Content-Length"], answer.headers["X-More"]) == (200, "3", "1")
            assert answer.headers["Server"] == "vmafx"


async def test_an_answer_has_its_status_and_headers() -> None:
    made = answers(lambda: json_response(b"{}", 201, {"Location": "/things/1"}))
    async with client(posted(made)) as http, http.post("/things") as answer:
        assert await told(answer) == (201, {})
        assert answer.headers["Location"] == "/things/1"


async def test_what_is_not_there() -> None:
    async with client(posted(echo), not_found="look elsewhere") as http:
        async with http.get("/nothing") as answer:
            assert await told(answer) == (404, {"code": "NOT_FOUND", "message": "look elsewhere"})
        async with http.get("/things") as answer:
            assert (await told(answer))[1]["code"] == "UNIMPLEMENTED"
            assert (answer.status, answer.headers["Allow"]) == (405, "POST")


class Away(Exception):
    """An error that a role knows."""


def failing(error: Exception) -> RouteHandler:
    async def handle(_: HttpRequest) -> Response:
        raise error

    return handle


@pytest.mark.parametrize(
    ("error", "status", "code", "message"),
    [
        (CallRefused("NOT_FOUND", "no such thing"), 404, "NOT_FOUND", "no such thing"),
        (CallRefused("INVALID_ARGUMENT", "a teapot", status=418), 418, "INVALID_ARGUMENT", "a teapot"),
        (Away("secret"), 503, "UNAVAILABLE", "it is away"),
        (ValueError("secret"), 500, "INTERNAL", "internal error; the server's log has the details"),
        (TimeoutError("secret"), 504, "DEADLINE_EXCEEDED", "the request took too long; try again"),
    ],
)
async def test_errors(error: Exception, status: int, code: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def translate(error: Exception) -> CallRefused | None:
        return CallRefused("UNAVAILABLE", "it is away") if isinstance(error, Away) else None

    said = io.StringIO()
    monkeypatch.setattr(logs._sink, "out", said)
    async with client(posted(failing(error)), translate=translate) as http, http.post("/things") as answer:
        assert await told(answer) == (status, {"code": code, "message": message})
    assert ("secret" in said.getvalue()) == (status in {500, 503})  # the log says what the caller must not know


async def test_a_page_of_another_site_may_not_call() -> None:
    async with client(posted(echo)) as http:
        async with http.post("/things", headers={"Sec-Fetch-Site": "same-site"}) as answer:
            assert (await told(answer))[0] == 403
        async with http.post("/things", headers={"Sec-Fetch-Site": "same-origin"}) as answer:
            assert answer.status == 200


def streamed(objects: Callable[[], AsyncGenerator[bytes]]) -> HttpRoute:
    async def handle(_: HttpRequest) -> JsonStream:
        return JsonStream(objects())

    return HttpRoute("GET", "/lines", handle)


@pytest.mark.parametrize(
    ("error", "last"),
    [(None, []), (CallRefused("ABORTED", "so"), [{"code": "ABORTED", "message": "so"}])],
)
async def test_a_stream_is_an_object_a_line_and_an_error_the_last(error: Exception | None, last: list[Any]) -> None:
    async def objects() -> AsyncGenerator[bytes]:
        yield b'{"n":1}'
        yield b'{"n":2}'
        if error is not None:
            raise error

    async with client(streamed(objects)) as http, http.get("/lines") as answer:
        assert (answer.status, answer.headers["Content-Type"]) == (200, "application/x-ndjson")
        assert [json.loads(line) async for line in answer.content] == [{"n": 1}, {"n": 2}, *last]


async def test_a_stream_outlives_the_deadline_of_its_handler() -> None:
    go_on = asyncio.Event()

    async def objects() -> AsyncGenerator[bytes]:
        yield b"{}"
        await go_on.wait()
        yield b"{}"

    async with (
        client(streamed(objects), limits=ServerLimits(answer_seconds=0.05)) as http,
        http.get("/lines") as answer,
    ):
        assert await answer.content.readline() == b"{}\n"
        await asyncio.sleep(0.2)
        go_on.set()
        assert await answer.content.read() == b"{}\n"


async def test_the_deadline_counts_from_when_the_body_is_there() -> None:
    async with serving(posted(echo), limits=ServerLimits(answer_seconds=0.05)) as port, raw_caller(port) as caller:
        await caller.send(POST + b"Content-Length: 2\r\n\r\n{")
        await asyncio.sleep(0.2)
        await caller.send(b"}")
        assert (await caller.answer()).status == 200


async def test_a_handler_that_takes_too_long_is_cancelled() -> None:
    cancelled = asyncio.Event()

    async def forever(request: HttpRequest) -> Response:
        request.extend_deadline(9999)  # of which it gets what the limits say
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        raise AssertionError

    limits = ServerLimits(answer_seconds=0.05, wait_seconds=0.05)
    async with client(posted(forever), limits=limits) as http, http.post("/things") as answer:
        assert await told(answer) == (
            504,
            {"code": "DEADLINE_EXCEEDED", "message": "the request took too long; try again"},
        )
    assert cancelled.is_set()


EXPECT = POST + b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n"


async def test_who_waits_to_be_asked_for_the_body_is_asked_when_it_is_read() -> None:
    async with serving(posted(echo)) as port, raw_caller(port) as caller:
        for _ in range(2):
            await caller.send(EXPECT)
            assert (await caller.answer()).status == 100
            await caller.send(b"{}")
            assert (await caller.answer()).status == 200


async def test_who_is_refused_is_not_asked_for_the_body() -> None:
    refusing = posted(failing(CallRefused("UNAUTHENTICATED", "who?")))
    async with serving(refusing, limits=ServerLimits(linger_seconds=0.1)) as port, raw_caller(port) as caller:
        await caller.send(EXPECT)
        answer = await caller.answer()
        assert (answer.status, answer.headers["connection"]) == (401, "close")
        assert await caller.is_closed()


async def test_other_expectations_are_refused() -> None:
    async with client(posted(echo)) as http, http.post("/things", headers={"Expect": "tea"}) as answer:
        assert (await told(answer))[0] == 417
