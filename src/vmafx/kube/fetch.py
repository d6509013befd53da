"""One HTTP request to any URL, for occasional requests to other servers than the API server."""

import ssl
from collections.abc import Mapping

from yarl import URL

from vmafx.kube.connect import ConnectionLost, DialTarget, ServerAddress
from vmafx.kube.http1 import ConnectionPool, HttpResponse, ResponseStream

MAX_BODY_BYTES = 1 << 20  # bytes


async def fetch(
    url: str,
    *,
    trust: ssl.SSLContext | None = None,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
) -> HttpResponse:
    """The answer, whatever its status; OSError where there is none, ValueError where the URL is none.

    No redirects, no cookies, no time limit: the caller has that.
    """
    at = URL(url)
    if at.scheme not in {"http", "https"} or not at.host or not at.port:
        raise ValueError("not an http or https address")
    if at.scheme == "https" and trust is None:
        trust = ssl.create_default_context()
    stream = await ConnectionPool(
        DialTarget(ServerAddress(at.host, at.port, trust if at.scheme == "https" else None))
    ).new(ResponseStream)
    try:
        said = {
            "Host": at.host_port_subcomponent or "",
            "Connection": "close",
            "User-Agent": "vmafx",
            **(headers or {}),
        }
        if body:
            said["Content-Length"] = str(len(body))
        lines = [f"{method} {at.raw_path_qs} HTTP/1.1", *(f"{name}: {value}" for name, value in said.items())]
        if any("\n" in line or "\r" in line for line in lines):
            raise ValueError("a header has a line break in it")
        await stream.begin("\r\n".join([*lines, "", ""]).encode() + body)
        content = b""
        while part := await stream.read():
            content += part
            if len(content) > MAX_BODY_BYTES:
                raise ConnectionLost(f"its answer is longer than {MAX_BODY_BYTES:,} bytes")
        return HttpResponse(stream.status, stream.retry_after, content)
    finally:
        stream.abort()
