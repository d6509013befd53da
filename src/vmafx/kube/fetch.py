"""A single HTTP request to any URL, for occasional requests to servers other than the API server."""

import ssl
from collections.abc import Mapping

from yarl import URL

from vmafx.kube.connect import ConnectionLost, DialTarget, ServerAddress
from vmafx.kube.http1 import ConnectionPool, HttpResponse, ResponseStream
from vmafx.kube.lookup import NameLookups

MAX_BODY_BYTES = 1 << 20
# Apart from those of the API server, which must not wait for names of other servers that cannot be resolved.
LOOKUPS = NameLookups(8)


async def fetch(
    url: str,
    *,
    trust: ssl.SSLContext | None = None,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    lookups: NameLookups = LOOKUPS,
) -> HttpResponse:
    """Send a request and return the response, whatever its status.

    Raises OSError if there is no response, and ValueError for an invalid URL or header. Follows no redirects, keeps
    no cookies and sets no timeout.
    """
    target = URL(url)
    if target.scheme not in {"http", "https"} or not target.host or not target.port:
        raise ValueError("not an http or https URL")
    if target.scheme == "https" and trust is None:
        trust = ssl.create_default_context()
    address = ServerAddress(target.host, target.port, trust if target.scheme == "https" else None)
    stream = await ConnectionPool(DialTarget(address, lookups=lookups)).open(ResponseStream)
    try:
        fields = {
            "Host": target.host_port_subcomponent or "",
            "Connection": "close",
            "User-Agent": "vmafx",
            **(headers or {}),
        }
        if body:
            fields["Content-Length"] = str(len(body))
        lines = [f"{method} {target.raw_path_qs} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
        if any("\n" in line or "\r" in line for line in lines):
            raise ValueError("a header contains a line break")
        await stream.start("\r\n".join([*lines, "", ""]).encode() + body)
        content = b""
        while part := await stream.read():
            content += part
            if len(content) > MAX_BODY_BYTES:
                raise ConnectionLost(f"the response is longer than {MAX_BODY_BYTES:,} bytes")
        return HttpResponse(stream.status, stream.retry_after, content)
    finally:
        stream.abort()
