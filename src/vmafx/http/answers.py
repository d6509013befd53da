"""What handlers answer with: a page, which both servers send, or a stream."""

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

TEXT, JSON, NDJSON = "text/plain; charset=utf-8", "application/json", "application/x-ndjson"


class Page(NamedTuple):
    """A whole answer."""

    status: int
    content_type: str
    body: bytes
    headers: Mapping[str, str] = {}  # beside those that a server sends anyway


class Lines(NamedTuple):
    """A stream of JSON objects, one a line. The server closes `objects`, however it ends."""

    objects: AsyncGenerator[bytes]


Pages = dict[str, Callable[[], Page]]  # by path: probes, metrics and descriptions, open to everybody


def text_page(status: int, line: str, headers: Mapping[str, str] | None = None) -> Page:
    return Page(status, TEXT, f"{line}\n".encode(), headers or {})


def json_page(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Page:
    return Page(status, JSON, body, headers or {})


def probe(missing: Callable[[], str | None]) -> Callable[[], Page]:
    """200 `ok`, or 503 with what is missing."""

    def answer() -> Page:
        what = missing()
        return text_page(503, what) if what else text_page(200, "ok")

    return answer


def metrics(registry: CollectorRegistry) -> Callable[[], Page]:
    return lambda: Page(200, CONTENT_TYPE_LATEST, generate_latest(registry))
