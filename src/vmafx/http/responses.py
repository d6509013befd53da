"""The responses that a handler returns: a whole one, or a stream of JSON lines."""

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

TEXT, JSON, NDJSON = "text/plain; charset=utf-8", "application/json", "application/x-ndjson"


class Response(NamedTuple):
    """A whole response."""

    status: int
    content_type: str
    body: bytes
    headers: Mapping[str, str] = {}  # in addition to those that every response has


class JsonStream(NamedTuple):
    """A stream of JSON objects, one per line. The server always closes `objects`."""

    objects: AsyncGenerator[bytes]


ProbeRoutes = dict[str, Callable[[], Response]]  # by path; without authentication: probes, metrics, OpenAPI


def text_response(status: int, line: str, headers: Mapping[str, str] | None = None) -> Response:
    return Response(status, TEXT, f"{line}\n".encode(), headers or {})


def json_response(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(status, JSON, body, headers or {})


def probe_response(missing: Callable[[], str | None]) -> Callable[[], Response]:
    """200 `ok`, or 503 with the text that `missing` returns."""

    def respond() -> Response:
        problem = missing()
        return text_response(503, problem) if problem else text_response(200, "ok")

    return respond


def metrics_response(registry: CollectorRegistry) -> Callable[[], Response]:
    return lambda: Response(200, CONTENT_TYPE_LATEST, generate_latest(registry))
