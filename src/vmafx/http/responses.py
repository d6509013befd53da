"""The responses that a handler returns: a whole one, or a stream of JSON lines or of events."""

from collections.abc import AsyncGenerator, Callable, Mapping
from hashlib import sha256
from typing import NamedTuple, TypeAlias
from urllib.parse import quote

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

TEXT, JSON, NDJSON = "text/plain; charset=utf-8", "application/json", "application/x-ndjson"
PROBLEM, EVENTS = "application/problem+json", "text/event-stream"
REVALIDATE = "no-cache"  # a cache may keep the response, and asks before each use whether it has changed


class Response(NamedTuple):
    """A whole response. To a request that has the same ETag in If-None-Match, the server sends 304 instead."""

    status: int
    content_type: str
    body: bytes
    # These replace the defaults that every response has, such as Cache-Control, if they are written like these.
    headers: Mapping[str, str] = {}


class JsonStream(NamedTuple):
    """A stream of JSON objects, one per line. The server always closes `objects`."""

    objects: AsyncGenerator[bytes]


class ServerEvent(NamedTuple):
    """An event of a stream. `data` is UTF-8 and may have several lines; `event` and `id` are printable text."""

    data: bytes
    event: str = ""  # its type; browsers call an event without one `message`
    id: str = ""  # what a client that reconnects sends in Last-Event-ID


class EventStream(NamedTuple):
    """A stream of server-sent events; an error ends it with an event `error`. The server always closes `events`."""

    events: AsyncGenerator[ServerEvent]


class ByteStream(NamedTuple):
    """A stream as another library has encoded it; an error ends it. The server always closes `blocks`."""

    status: int
    headers: Mapping[str, str]  # with Content-Type
    blocks: AsyncGenerator[bytes]


AnyResponse: TypeAlias = Response | JsonStream | EventStream | ByteStream
ProbeRoutes = dict[str, Callable[[], Response]]  # by path; without authentication: probes, metrics, OpenAPI


def text_response(status: int, line: str, headers: Mapping[str, str] | None = None) -> Response:
    return Response(status, TEXT, f"{line}\n".encode(), headers or {})


def json_response(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(status, JSON, body, headers or {})


def static_response(
    content_type: str, body: bytes, cache_control: str = REVALIDATE, headers: Mapping[str, str] | None = None
) -> Response:
    """Content that seldom changes, with an ETag; make it once, not for every request."""
    etag = f'"{sha256(body).hexdigest()[:32]}"'
    return Response(200, content_type, body, {**(headers or {}), "Cache-Control": cache_control, "ETag": etag})


def attachment(filename: str) -> dict[str, str]:
    """The header with which a browser saves a response as `filename` instead of displaying it."""
    plain = "".join(char if char.isascii() and char.isprintable() and char not in '"\\%' else "_" for char in filename)
    encoded = quote(filename.encode(errors="replace"), safe="")
    return {"Content-Disposition": f"attachment; filename=\"{plain}\"; filename*=UTF-8''{encoded}"}


def probe_response(missing: Callable[[], str | None]) -> Callable[[], Response]:
    """200 `ok`, or 503 with the text that `missing` returns."""

    def respond() -> Response:
        problem = missing()
        return text_response(503, problem) if problem else text_response(200, "ok")

    return respond


def metrics_response(registry: CollectorRegistry) -> Callable[[], Response]:
    return lambda: Response(200, CONTENT_TYPE_LATEST, generate_latest(registry))
