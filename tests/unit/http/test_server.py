"""The HTTP server over real sockets: routes, probes, streams, errors, deadlines.

tests/integration/controller/test_http_limits.py tests clients that send too much, too slowly, or malformed HTTP.
"""

import asyncio
import io
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from tests.support.problems import checked_members, checked_problem
from tests.support.raw_http import raw_caller
from vmafx import logs
from vmafx.http.address import ListenAddress
from vmafx.http.errors import StatusError
from vmafx.http.limits import ServerLimits
from vmafx.http.request import HttpRequest
from vmafx.http.responses import JsonStream, Response, json_response, probe_response, text_response
from vmafx.http.server import HttpRoute, RouteHandler, Site, serve_http

HERE = ListenAddress("127.0.0.1", 0)
POST = b"POST /things HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


async def echo(request: HttpRequest) -> Response:
    reply = {
        "method": request.method, "path": request.path, "parameters": dict(request.parameters),
        "query": request.query.getall("q", []), "x": request.headers.get("X-Thing"), "peer": request.peer,
        "subject": request.subject, "length": request.length, "body": await request.json(),
    }  # fmt: skip
    return json_response(json.dumps(reply).encode())


@asynccontextmanager
async def serving(*routes: HttpRoute, limits: ServerLimits = ServerLimits(), **more: Any) -> AsyncIterator[int]:  # noqa: B008
    async with asyncio.timeout(60), serve_http(HERE, Site(routes, **more), limits=limits) as port:
        yield port


@asynccontextmanager
async def client(*routes: HttpRoute, **more: Any) -> AsyncIterator[aiohttp.ClientSession]:
    async with serving(*routes, **more) as port, aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http:
        yield http


def post_route(handler: RouteHandler) -> HttpRoute:
    return HttpRoute("POST", "/things", handler)


def responding(response: Callable[[], Response]) -> RouteHandler:
    async def handle(_: HttpRequest) -> Response:
        return response()

    return handle


async def reply_of(response: aiohttp.ClientResponse) -> tuple[int, Any]:
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Cache-Control"] == "no-store"
    reply = json.loads(await response.read())
    if response.status >= 400:
        return response.status, checked_problem(response, reply)
    assert response.headers["Content-Type"] == "application/json"
    return response.status, reply


async def test_a_handler_gets_the_whole_request() -> None:
    route = HttpRoute("PUT", r"/things/{name}/{rest:.+}", echo)
    async with client(route) as http:
        sent = http.put("/things/a%20b/c/d?q=1&q=2", json={"n": [1, {}]}, headers={"X-Thing": "y"})
        async with sent as response:
            status, reply = await reply_of(response)
    assert status == 200
    assert reply == {
        "method": "PUT", "path": "/things/a b/c/d", "parameters": {"name": "a b", "rest": "c/d"}, "query": ["1", "2"],
        "x": "y", "peer": "127.0.0.1", "subject": [], "length": 14, "body": {"n": [1, {}]},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"", 200, ""),
        (b'{"a": 1, "a": 2}', 400, "duplicate name"),
        (b'{"a": Infinity}', 400, "Infinity is not valid"),
        (b'{"a": ' + b"[" * 15 + b"]" * 15 + b"}", 200, ""),
        (b'{"a": ' + b"[" * 16 + b"]" * 16 + b"}", 400, "deeper than 16"),
        (b"[1]", 400, "must be a JSON object"),
        (b'{"a": "' + b"x" * (100 - 9) + b'"}', 200, ""),
        (b'{"a": "' + b"x" * (101 - 9) + b'"}', 413, "more than 100 bytes"),
    ],
)
@pytest.mark.parametrize("chunked", [False, True])
async def test_json_bodies_are_parsed_strictly(body: bytes, status: int, message: str, *, chunked: bool) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield body

    json_type = {"Content-Type": "application/json"}
    async with (
        client(post_route(echo), limits=ServerLimits(body_bytes=100)) as http,
        http.post("/things", data=chunks() if chunked else body, headers=json_type) as response,
    ):
        got, reply = await reply_of(response)
    assert got == status
    if message:
        assert message in reply["message"]


async def test_probes_need_no_credentials_and_keep_their_headers() -> None:
    probes = {"/readyz": probe_response(lambda: "no cache"), "/x": lambda: text_response(200, "hi", {"X-More": "1"})}
    async with client(probes=probes) as http:
        async with http.get("/readyz", headers={"Sec-Fetch-Site": "cross-site"}) as response:
            assert (response.status, await response.text()) == (503, "no cache\n")
        async with http.head("/x") as response:
            assert (response.status, response.headers["Content-Length"], response.headers["X-More"]) == (200, "3", "1")
            assert response.headers["Server"] == "vmafx"


async def test_a_response_has_its_status_and_headers() -> None:
    create = responding(lambda: json_response(b"{}", 201, {"Location": "/things/1"}))
    async with client(post_route(create)) as http, http.post("/things") as response:
        assert await reply_of(response) == (201, {})
        assert response.headers["Location"] == "/things/1"


async def test_an_unknown_path_is_404_and_an_unknown_method_405() -> None:
    async with client(post_route(echo), not_found="look elsewhere") as http:
        async with http.get("/nothing") as response:
            assert await reply_of(response) == (404, {"code": "NOT_FOUND", "message": "look elsewhere"})
        async with http.get("/things") as response:
            assert (await reply_of(response))[1]["code"] == "UNIMPLEMENTED"
            assert (response.status, response.headers["Allow"]) == (405, "POST")


class BackendDown(Exception):
    """An error that the site translates."""


def failing(error: Exception) -> RouteHandler:
    async def handle(_: HttpRequest) -> Response:
        raise error

    return handle


@pytest.mark.parametrize(
    ("error", "status", "code", "message"),
    [
        (StatusError("NOT_FOUND", "no such thing"), 404, "NOT_FOUND", "no such thing"),
        (StatusError("INVALID_ARGUMENT", "a teapot", status=418), 418, "INVALID_ARGUMENT", "a teapot"),
        (BackendDown("secret"), 503, "UNAVAILABLE", "the backend is down"),
        (ValueError("secret"), 500, "INTERNAL", "internal error; the server's log has the details"),
        (TimeoutError("secret"), 504, "DEADLINE_EXCEEDED", "the request took too long; try again"),
    ],
)
async def test_an_error_becomes_a_status_and_a_message(
    error: Exception, status: int, code: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def translate(error: Exception) -> StatusError | None:
        return StatusError("UNAVAILABLE", "the backend is down") if isinstance(error, BackendDown) else None

    out = io.StringIO()
    monkeypatch.setattr(logs._sink, "out", out)
    async with client(post_route(failing(error)), translate=translate) as http, http.post("/things") as response:
        assert await reply_of(response) == (status, {"code": code, "message": message})
    assert ("secret" in out.getvalue()) == (status in {500, 503})  # details are in the log, not in the response


async def test_requests_from_other_sites_are_rejected() -> None:
    async with client(post_route(echo)) as http:
        async with http.post("/things", headers={"Sec-Fetch-Site": "same-site"}) as response:
            assert (await reply_of(response))[0] == 403
        async with http.post("/things", headers={"Sec-Fetch-Site": "same-origin"}) as response:
            assert response.status == 200


def streamed(objects: Callable[[], AsyncGenerator[bytes]]) -> HttpRoute:
    async def handle(_: HttpRequest) -> JsonStream:
        return JsonStream(objects())

    return HttpRoute("GET", "/lines", handle)


@pytest.mark.parametrize(
    ("error", "last"),
    [(None, []), (StatusError("ABORTED", "so"), [{"code": "ABORTED", "message": "so"}])],
)
async def test_a_stream_sends_one_object_per_line_and_an_error_as_the_last(
    error: Exception | None, last: list[Any]
) -> None:
    async def objects() -> AsyncGenerator[bytes]:
        yield b'{"n":1}'
        yield b'{"n":2}'
        if error is not None:
            raise error

    async with client(streamed(objects)) as http, http.get("/lines") as response:
        assert (response.status, response.headers["Content-Type"]) == (200, "application/x-ndjson")
        first, second, *others = [json.loads(line) async for line in response.content]
        assert (first, second, [checked_members(other) for other in others]) == ({"n": 1}, {"n": 2}, last)


async def test_a_stream_outlives_the_deadline_of_its_handler() -> None:
    resume = asyncio.Event()

    async def objects() -> AsyncGenerator[bytes]:
        yield b"{}"
        await resume.wait()
        yield b"{}"

    async with (
        client(streamed(objects), limits=ServerLimits(answer_seconds=0.05)) as http,
        http.get("/lines") as response,
    ):
        assert await response.content.readline() == b"{}\n"
        await asyncio.sleep(0.2)
        resume.set()
        assert await response.content.read() == b"{}\n"


async def test_the_deadline_starts_when_the_body_has_arrived() -> None:
    async with serving(post_route(echo), limits=ServerLimits(answer_seconds=0.05)) as port, raw_caller(port) as caller:
        await caller.send(POST + b"Content-Length: 2\r\n\r\n{")
        await asyncio.sleep(0.2)
        await caller.send(b"}")
        assert (await caller.answer()).status == 200


async def test_a_handler_that_takes_too_long_is_cancelled() -> None:
    cancelled = asyncio.Event()

    async def forever(request: HttpRequest) -> Response:
        request.extend_deadline(9999)  # capped by wait_seconds
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        raise AssertionError

    limits = ServerLimits(answer_seconds=0.05, wait_seconds=0.05)
    async with client(post_route(forever), limits=limits) as http, http.post("/things") as response:
        assert await reply_of(response) == (
            504,
            {"code": "DEADLINE_EXCEEDED", "message": "the request took too long; try again"},
        )
    assert cancelled.is_set()


EXPECT = POST + b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n"


async def test_continue_is_sent_when_a_handler_reads_the_body() -> None:
    async with serving(post_route(echo)) as port, raw_caller(port) as caller:
        for _ in range(2):
            await caller.send(EXPECT)
            assert (await caller.answer()).status == 100
            await caller.send(b"{}")
            assert (await caller.answer()).status == 200


async def test_a_rejected_request_gets_no_continue() -> None:
    rejecting = post_route(failing(StatusError("UNAUTHENTICATED", "who?")))
    async with serving(rejecting, limits=ServerLimits(linger_seconds=0.1)) as port, raw_caller(port) as caller:
        await caller.send(EXPECT)
        response = await caller.answer()
        assert (response.status, response.headers["connection"]) == (401, "close")
        assert await caller.is_closed()


async def test_an_unknown_expectation_is_rejected() -> None:
    async with client(post_route(echo)) as http, http.post("/things", headers={"Expect": "tea"}) as response:
        assert (await reply_of(response))[0] == 417
