"""What all responses have in common: request IDs, problems, caching, files, and checks of Host and Origin."""

import asyncio
import io
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from tests.support.problems import checked_problem
from tests.support.raw_http import raw_caller
from vmafx import logs
from vmafx.http import sending
from vmafx.http.address import ListenAddress
from vmafx.http.errors import StatusError
from vmafx.http.hosts import HostPolicy
from vmafx.http.limits import LIMITS, ServerLimits
from vmafx.http.request import HttpRequest
from vmafx.http.responses import (
    AnyResponse,
    Response,
    attachment,
    json_response,
    probe_response,
    static_response,
)
from vmafx.http.server import HttpRoute, Site, serve_http

HERE = ListenAddress("127.0.0.1", 0)
GET = b"GET /thing HTTP/1.1\r\nHost: x\r\n"


@asynccontextmanager
async def serving(
    respond: Callable[[HttpRequest], AnyResponse],
    limits: ServerLimits = LIMITS,
    **more: Any,
) -> AsyncIterator[int]:
    async def handle(request: HttpRequest) -> AnyResponse:
        return respond(request)

    linkable = more.pop("linkable", False)
    site = Site([HttpRoute("GET", "/thing", handle, linkable), HttpRoute("POST", "/thing", handle)], **more)
    async with asyncio.timeout(60), serve_http(HERE, site, limits=limits) as port:
        yield port


@asynccontextmanager
async def client(respond: Callable[[HttpRequest], AnyResponse], **more: Any) -> AsyncIterator[aiohttp.ClientSession]:
    async with serving(respond, **more) as port, aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http:
        yield http


def echo_id(request: HttpRequest) -> Response:
    return json_response(json.dumps(request.id).encode())


def raising(error: Exception) -> Callable[[HttpRequest], Response]:
    def respond(_: HttpRequest) -> Response:
        raise error

    return respond


@pytest.mark.parametrize("sent", ["a", "x" * 128, "encode-42.retry:1_b", "0"])
async def test_a_valid_request_id_is_kept(sent: str) -> None:
    async with client(echo_id) as http, http.get("/thing", headers={"X-Request-Id": sent}) as response:
        assert (response.headers["X-Request-Id"], await response.json()) == (sent, sent)


@pytest.mark.parametrize(
    "headers",
    [
        b"",
        b"X-Request-Id: \r\n",
        b"X-Request-Id: " + b"x" * 129 + b"\r\n",
        b"X-Request-Id: a b\r\n",
        b'X-Request-Id: a"b\r\n',
        b"X-Request-Id: a%0d%0aSet-Cookie: x=1\r\n",
        b"X-Request-Id: a\xc3\xbc\r\n",
        b"X-Request-Id: \xd9\xa1\r\n",  # an Arabic digit
        b"X-Request-Id: <script>\r\n",
        b"X-Request-Id: a\r\nX-Request-Id: b\r\n",
    ],
)
async def test_any_other_request_id_is_replaced(headers: bytes) -> None:
    async with serving(echo_id) as port, raw_caller(port) as caller:
        ids = set()
        for _ in range(2):
            await caller.send(GET + headers + b"\r\n")
            answer = await caller.answer()
            assert answer.headers["x-request-id"] == answer.json()
            assert "set-cookie" not in answer.headers
            ids.add(answer.json())
    assert [len(one) for one in ids] == [32, 32]


async def test_errors_and_their_log_lines_have_the_request_id(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(logs._sink, "out", out)
    headers = {"X-Request-Id": "encode-42"}
    async with client(raising(ValueError("secret"))) as http:
        async with http.get("/thing", headers=headers) as response:
            assert response.headers["X-Request-Id"] == "encode-42"
            assert (await response.json())["instance"] == "urn:request:encode-42"
        async with http.get("/nothing", headers=headers) as response:
            assert (response.status, response.headers["X-Request-Id"]) == (404, "encode-42")
    assert "encode-42" in out.getvalue()


async def test_a_problem_has_the_members_of_its_error() -> None:
    error = StatusError(
        "RESOURCE_EXHAUSTED",
        "the queue is full",
        retry_after=12.1,
        type="https://example.com/full",
        extensions={"position": 7, "limits": {"queued": 10}, "status": "not this one"},
    )
    async with client(raising(error)) as http, http.get("/thing") as response:
        assert (response.status, response.headers["Retry-After"]) == (429, "13")
        assert response.headers["Content-Type"] == "application/problem+json"
        body = await response.json()
    assert body == {
        "type": "https://example.com/full",
        "title": "Too Many Requests",
        "status": 429,
        "detail": "the queue is full",
        "instance": f"urn:request:{response.headers['X-Request-Id']}",
        "code": "RESOURCE_EXHAUSTED",
        "message": "the queue is full",
        "position": 7,
        "limits": {"queued": 10},
    }


@pytest.mark.parametrize(
    ("error", "retry_after"),
    [
        (StatusError("RESOURCE_EXHAUSTED", ""), "3"),
        (StatusError("UNAVAILABLE", ""), "3"),
        (StatusError("UNAVAILABLE", "", retry_after=0.2), "1"),
        (StatusError("UNAVAILABLE", "", retry_after=-5), "0"),
        (StatusError("NOT_FOUND", ""), None),
        (StatusError("ABORTED", "", retry_after=60), "60"),
    ],
)
async def test_retry_after_is_in_whole_seconds(error: StatusError, retry_after: str | None) -> None:
    async with client(raising(error)) as http, http.get("/thing") as response:
        assert response.headers.get("Retry-After") == retry_after


async def test_a_handler_can_replace_the_default_headers() -> None:
    headers = {"Cache-Control": "max-age=60", "Content-Security-Policy": "default-src 'self'", "Server": "other"}
    async with client(lambda _: json_response(b"{}", headers=headers)) as http, http.get("/thing") as response:
        assert response.headers.getall("Cache-Control") == ["max-age=60"]
        assert response.headers["Content-Security-Policy"] == "default-src 'self'"
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers.getall("Server") == ["vmafx"]


PAGE = static_response("text/html; charset=utf-8", b"<p>hi", "max-age=60", {"X-More": "1"})
ETAG = PAGE.headers["ETag"]


@pytest.mark.parametrize(
    ("known", "status"),
    [
        (None, 200),
        (ETAG, 304),
        (f"W/{ETAG}", 304),
        (f'"other", {ETAG}', 304),
        ("*", 304),
        ('"other"', 200),
        (ETAG.strip('"'), 200),
        ("", 200),
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_static_content_is_sent_only_if_it_has_changed(method: str, known: str | None, status: int) -> None:
    headers = {} if known is None else {"If-None-Match": known}
    probes = {"/page": lambda: PAGE}
    async with client(lambda _: PAGE, probes=probes) as http:
        for path in ("/thing", "/page"):
            async with http.request(method, path, headers=headers) as response:
                assert (response.status, response.headers["ETag"]) == (status, ETAG)
                assert (response.headers["Cache-Control"], response.headers["X-More"]) == ("max-age=60", "1")
                assert await response.read() == (b"<p>hi" if (method, status) == ("GET", 200) else b"")
                if status == 200:
                    assert response.headers["Content-Type"] == "text/html; charset=utf-8"
                    assert response.headers["Content-Length"] == "5"


async def test_a_post_and_an_error_are_sent_whatever_the_client_has() -> None:
    async with client(lambda _: PAGE) as http, http.post("/thing", headers={"If-None-Match": "*"}) as response:
        assert response.status == 200
    missing = Response(404, "text/plain", b"", {"ETag": ETAG})
    async with client(lambda _: missing) as http, http.get("/thing", headers={"If-None-Match": "*"}) as response:
        assert response.status == 404


def test_different_content_has_different_etags() -> None:
    assert static_response("text/css", b"a").headers["ETag"] != static_response("text/css", b"b").headers["ETag"]


LARGE = bytes(range(256)) * (3 * sending.BLOCK_SIZE // 256) + b"end"


async def test_a_large_body_is_sent_in_blocks() -> None:
    async with client(lambda _: Response(201, "application/x", LARGE)) as http:
        async with http.get("/thing") as response:
            assert (response.status, response.headers["Content-Length"]) == (201, str(len(LARGE)))
            assert await response.read() == LARGE
        async with http.head("/thing") as response:
            assert (response.headers["Content-Length"], await response.read()) == (str(len(LARGE)), b"")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a b.csv", "attachment; filename=\"a b.csv\"; filename*=UTF-8''a%20b.csv"),
        ('a"\\\r\nX: y', "attachment; filename=\"a____X: y\"; filename*=UTF-8''a%22%5C%0D%0AX%3A%20y"),
        ("ü.csv", "attachment; filename=\"_.csv\"; filename*=UTF-8''%C3%BC.csv"),
        ("\ud800", "attachment; filename=\"_\"; filename*=UTF-8''%3F"),
    ],
)
def test_a_file_name_cannot_change_the_header(name: str, expected: str) -> None:
    assert attachment(name) == {"Content-Disposition": expected}


async def test_only_requests_to_accepted_hosts_reach_a_handler() -> None:
    called: list[str] = []

    def respond(request: HttpRequest) -> Response:
        called.append(request.headers["Host"])
        return json_response(b"{}")

    hosts = HostPolicy(["scores.example.com"], setting="VMAFX_HOSTS")
    probes = {"/healthz": probe_response(lambda: None)}
    async with client(respond, hosts=hosts, probes=probes) as http:
        for host, status in (("scores.example.com:8080", 200), ("localhost", 200), ("evil.example", 421)):
            for path in ("/thing", "/healthz"):
                async with http.get(path, headers={"Host": host}) as response:
                    assert response.status == status
                    if status == 421:
                        problem = checked_problem(response, await response.json())
                        assert "add the name to VMAFX_HOSTS" in problem["message"]
        async with http.get("/nothing", headers={"Host": "evil.example"}) as response:
            assert response.status == 421
    assert called == ["scores.example.com:8080", "localhost"]


@pytest.mark.parametrize(
    "head",
    [
        b"GET /thing HTTP/1.0\r\n\r\n",
        b"GET /thing HTTP/1.1\r\n\r\n",
        b"GET /thing HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
        b"GET /thing HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        b"GET /thing HTTP/1.1\r\nHost: a b\r\n\r\n",
        b"GET /thing HTTP/1.1\r\nHost:\r\n\r\n",
    ],
)
async def test_a_request_without_one_valid_host_is_an_error(head: bytes) -> None:
    async with serving(echo_id, hosts=HostPolicy()) as port, raw_caller(port) as caller:
        await caller.send(head)
        assert (await caller.answer()).status == 400


async def test_without_a_policy_every_host_is_accepted() -> None:
    async with client(echo_id) as http, http.get("/thing", headers={"Host": "evil.example"}) as response:
        assert response.status == 200


async def test_pages_of_other_origins_are_rejected_but_not_at_probes() -> None:
    probes = {"/healthz": probe_response(lambda: None)}
    async with serving(echo_id, probes=probes) as port, aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http:
        own = f"http://127.0.0.1:{port}"
        for origin, status in ((own, 200), ("http://127.0.0.1:1", 403), ("https://evil.example", 403), ("null", 403)):
            for method in ("GET", "POST"):
                async with http.request(method, "/thing", headers={"Origin": origin}) as response:
                    assert response.status == status
            async with http.get("/healthz", headers={"Origin": origin}) as response:
                assert response.status == 200


async def test_a_link_on_another_site_leads_only_to_a_linkable_page() -> None:
    followed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    for linkable, status in ((True, 200), (False, 403)):
        async with client(echo_id, linkable=linkable) as http, http.get("/thing", headers=followed) as response:
            assert response.status == status
