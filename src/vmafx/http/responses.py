"""What handlers return: a whole response, or a stream of JSON lines."""

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

TEXT, JSON, NDJSON = "text/plain; charset=utf-8", "application/json", "application/x-ndjson"


class Response(NamedTuple):
    """A whole answer."""

    status: int
    content_type: str
    body: bytes
    headers: Mapping[str, str] = {}  # beside those that a server sends anyway


class JsonStream(NamedTuple):
    """A stream of JSON objects, one a line. The server closes `objects`, however it ends."""

    objects: AsyncGenerator[bytes]


ProbeRoutes = dict[str, Callable[[], Response]]  # by path: probes, metrics and descriptions, open to everybody


def text_response(status: int, line: str, headers: Mapping[str, str] | None = None) -> Response:
    return Response(status, TEXT, f"{line}\n".encode(), headers or {})


def json_response(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(status, JSON, body, headers or {})


def probe_response(missing: Callable[[], str | None]) -> Callable[[], Response]:
    """200 `ok`, or 503 with what is missing."""

    def answer() -> Response:
        what = missing()
        return text_response(503, what) if what else text_response(200, "ok")

    return answer


def metrics_response(registry: CollectorRegistry) -> Callable[[], Response]:
    return lambda: Response(200, CONTENT_TYPE_LATEST, generate_latest(registry))
