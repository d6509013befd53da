"""ASGI applications behind our HTTP server: whole answers, streams, errors, and clients that leave."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from tests.support.waiting import eventually
from vmafx.http.address import ListenAddress
from vmafx.http.request import HttpRequest
from vmafx.http.responses import AnyResponse
from vmafx.http.server import HttpRoute, Site, serve_http
from vmafx.mcp.asgi import AsgiApp, call_asgi

EVENTS = [(b"content-type", b"text/event-stream"), (b"connection", b"close"), (b"mcp-session-id", b"1")]


@asynccontextmanager
async def serving(app: AsgiApp) -> AsyncIterator[aiohttp.ClientSession]:
    async def answer(request: HttpRequest) -> AnyResponse:
        return await call_asgi(app, request, await request.json_body(), {"more": 1})

    site = Site([HttpRoute("POST", "/", answer)])
    async with (
        serve_http(ListenAddress("127.0.0.1", 0), site) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
    ):
        yield session


async def test_a_whole_answer_with_its_status_headers_and_the_body_of_the_request() -> None:
    async def app(scope, receive, send) -> None:  # type: ignore[no-untyped-def]
        headers = dict(scope["headers"])
        assert (scope["method"], scope["path"], scope["more"], headers[b"x-own"]) == ("POST", "/", 1, b"2")
        assert b"authorization" not in headers
        message = await receive()
        await send({"type": "http.response.start", "status": 418, "headers": [(b"content-type", b"text/x")]})
        await send({"type": "http.response.body", "body": message["body"][:1], "more_body": True})
        await send({"type": "http.response.body", "body": message["body"][1:]})

    async with serving(app) as session:
        sent = {"X-Own": "2", "Authorization": "Bearer secret"}
        async with session.post("/", json=[1], headers=sent) as reply:
            assert (reply.status, reply.content_type, await reply.read()) == (418, "text/x", b"[1]")
            assert reply.headers["X-Content-Type-Options"] == "nosniff"


async def test_events_are_sent_as_they_come_and_the_application_learns_that_the_client_left() -> None:
    go, left = asyncio.Event(), asyncio.Event()

    async def app(scope, receive, send) -> None:  # type: ignore[no-untyped-def]
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": EVENTS})
        await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
        await go.wait()
        await send({"type": "http.response.body", "body": b"data: 2\n\n", "more_body": True})
        assert (await receive())["type"] == "http.disconnect"
        left.set()

    async with serving(app) as session:
        async with session.post("/", json=[]) as reply:
            assert (reply.status, reply.headers["Mcp-Session-Id"]) == (200, "1")
            assert await reply.content.readuntil(b"\n\n") == b"data: 1\n\n"
            go.set()
            assert await reply.content.readuntil(b"\n\n") == b"data: 2\n\n"
            reply.close()
        await asyncio.wait_for(left.wait(), 60)


async def test_headers_of_a_stream_are_sent_before_its_first_event() -> None:
    async def app(scope, receive, send) -> None:  # type: ignore[no-untyped-def]
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": EVENTS})
        await receive()

    async with serving(app) as session, session.post("/", json=[]) as reply:
        assert reply.status == 200


async def test_an_application_that_fails_is_an_internal_error_and_one_that_hangs_is_ended() -> None:
    ended = asyncio.Event()

    async def failing(scope, receive, send) -> None:  # type: ignore[no-untyped-def]
        raise RuntimeError("broken")

    async def silent(scope, receive, send) -> None:  # type: ignore[no-untyped-def]
        await receive()

    async def waiting(scope, receive, send) -> None:  # type: ignore[no-untyped-def]
        await receive()
        try:
            await receive()
        finally:
            ended.set()

    for app in (failing, silent):
        async with serving(app) as session, session.post("/", json=[]) as reply:
            assert reply.status == 500
            assert "broken" not in await reply.text()
    async with serving(waiting) as session:
        calling = asyncio.create_task(session.post("/", json=[]).__aenter__())
        await eventually(lambda: session.connector is not None and session.connector._acquired, "it is connected")
        await asyncio.sleep(0)
        calling.cancel()
        await asyncio.wait({calling})
        await eventually(ended.is_set, "the application has learned it", every=0.01)
