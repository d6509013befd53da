"""The request that a handler gets: parameters, headers, peer, and the body, read within limits."""

import asyncio
import itertools
import re
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import HttpVersion11, StreamReader, web
from multidict import MultiMapping

from vmafx.clock import loop_time
from vmafx.http import strict_json
from vmafx.http.errors import StatusError
from vmafx.http.limits import ServerLimits
from vmafx.http.responses import JSON

CONTINUE = "100-continue"
AWAITS_BODY = web.RequestKey("awaits_body", bool)  # whether the whole body of a request is being read
ID_HEADER = "X-Request-Id"
_ID = web.RequestKey("id", str)
_PROCESS, _COUNT = secrets.token_hex(10), itertools.count(1)  # together an ID that no other process has
_VALID_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


def request_id(request: web.Request) -> str:
    """The ID of a request, for logs and responses: the caller's own if it sent one, else a new one."""
    if _ID not in request:
        sent = request.headers.getall(ID_HEADER, [])
        request[_ID] = sent[0] if len(sent) == 1 and _VALID_ID.fullmatch(sent[0]) else f"{_PROCESS}{next(_COUNT):012x}"
    return request[_ID]


class HttpRequest:
    """An aiohttp request with the limits and the deadline of its handler."""

    def __init__(self, request: web.Request, limits: ServerLimits, deadline: asyncio.Timeout) -> None:
        self._request, self._limits = request, limits
        self._deadline: asyncio.Timeout | None = deadline
        self.method, self.path, self.headers = request.method, request.path, request.headers
        self.parameters: Mapping[str, str] = request.match_info
        self.peer = request.remote or ""  # the address of the connection, which may be a proxy's

    @property
    def id(self) -> str:
        return request_id(self._request)

    @property
    def query(self) -> MultiMapping[str]:
        return self._request.query

    @property
    def length(self) -> int | None:
        """Bytes of the body; None if the headers do not have it."""
        return self._request.content_length

    @property
    def is_secure(self) -> bool:
        """Whether the connection has TLS."""
        return self._request.secure

    @property
    def cookies(self) -> Mapping[str, str]:
        return self._request.cookies

    @property
    def subject(self) -> list[tuple[str, str]]:
        """The subject of the verified client certificate, such as ("commonName", "alice"); empty without one."""
        transport = self._request.transport
        certificate = transport.get_extra_info("peercert") if transport is not None else None
        return [pair for entry in (certificate or {}).get("subject", ()) for pair in entry]

    def extend_deadline(self, seconds: float) -> None:
        """Give the handler this much more time, up to `wait_seconds`: for long polls."""
        self._set_deadline(self._limits.answer_seconds + min(max(seconds, 0), self._limits.wait_seconds))

    def end_deadline(self) -> None:
        """Called when the handler has returned: a stream has no deadline."""
        self._deadline = None

    async def json(self) -> dict[str, Any]:
        """The JSON object in the body; an empty one if there is no body."""
        content = await self.json_body()
        return strict_json.loads(content) if content else {}

    async def json_body(self) -> bytes:
        """The body, which must be declared as JSON; none if there is no body."""
        if not self._request.body_exists:
            return b""
        if self._request.content_type != JSON or (self._request.charset or "utf-8").lower() != "utf-8":
            content_type = self.headers.get("Content-Type", "")[:100]
            message = f"Content-Type must be application/json, in UTF-8, not {content_type!r}"
            raise StatusError("INVALID_ARGUMENT", message, status=415)
        return await self.content()

    async def content(self) -> bytes:
        """The whole body, of any type."""
        if (self.length or 0) > self._limits.body_bytes:
            raise self._too_large()
        try:
            if self._request.content.is_eof():  # it came with the headers
                self._check_encoding()
                return await self._request.read()  # aiohttp enforces body_bytes
            async with self.body():
                return await self._read_in_time()
        except web.HTTPRequestEntityTooLarge:
            raise self._too_large() from None

    async def _read_in_time(self) -> bytes:
        timeout = self._limits.body_seconds
        self._request[AWAITS_BODY] = True
        try:
            async with asyncio.timeout(timeout):
                return await self._request.read()
        except TimeoutError:
            raise StatusError(
                "INVALID_ARGUMENT",
                f"the body did not arrive within {timeout:.0f} s; send it faster, or try again",
                status=408,
            ) from None
        finally:
            self._request[AWAITS_BODY] = False

    def _too_large(self) -> StatusError:
        limit = f"{self._limits.body_bytes:,} bytes, which is the limit"
        return StatusError("INVALID_ARGUMENT", f"the body has more than {limit}", status=413)

    @asynccontextmanager
    async def body(self) -> AsyncIterator[StreamReader]:
        """The body as a stream; the caller limits its size and rate. The deadline starts again when it was read."""
        self._check_encoding()
        self._set_deadline(None)
        try:
            await self._send_continue()
            yield self._request.content
        except web.RequestPayloadError:
            raise StatusError(
                "INVALID_ARGUMENT", "the body does not match Content-Length or Transfer-Encoding"
            ) from None
        finally:
            self._set_deadline(self._limits.answer_seconds)

    def _set_deadline(self, seconds: float | None) -> None:
        if self._deadline is not None:
            self._deadline.reschedule(None if seconds is None else loop_time() + seconds)

    def _check_encoding(self) -> None:
        if self.headers.get("Content-Encoding", "identity") != "identity":
            raise StatusError("INVALID_ARGUMENT", "the body is compressed; send it uncompressed", status=415)

    async def _send_continue(self) -> None:
        """Send `100 Continue` only when a handler reads the body: a rejected client need not send gigabytes."""
        expects = self.headers.get("Expect", "").lower() == CONTINUE
        if expects and self._request.version == HttpVersion11 and not self._request.content.total_bytes:
            writer = self._request.writer
            await writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            writer.output_size = 0  # aiohttp would otherwise count it as the start of the response
            await writer.drain()
