"""A request as handlers see it: what it says, who sent it, and its body, read within limits."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import HttpVersion11, StreamReader, web

from vmafx.clock import loop_time
from vmafx.http import strict_json
from vmafx.http.errors import CallRefused
from vmafx.http.limits import ServerLimits
from vmafx.http.responses import JSON

CONTINUE = "100-continue"


class HttpRequest:
    """Made by the server, one for each call of a handler."""

    def __init__(self, request: web.Request, limits: ServerLimits, deadline: asyncio.Timeout) -> None:
        self._request, self._limits = request, limits
        self._deadline: asyncio.Timeout | None = deadline
        self.method, self.path = request.method, request.path
        self.parameters: Mapping[str, str] = request.match_info
        self.query, self.headers = request.query, request.headers
        self.length = request.content_length  # of the body, as far as its headers say
        self.peer = request.remote or ""  # the address at the other end, which may be a proxy's

    @property
    def subject(self) -> list[tuple[str, str]]:
        """The names in the client's certificate, such as commonName; none if it was not verified."""
        transport = self._request.transport
        certificate = transport.get_extra_info("peercert") if transport is not None else None
        return [pair for entry in (certificate or {}).get("subject", ()) for pair in entry]

    def extend_deadline(self, seconds: float) -> None:
        """The caller asked to wait this long for news: the handler has as much more time, within the limits."""
        self._set_deadline(self._limits.answer_seconds + min(max(seconds, 0), self._limits.wait_seconds))

    def end_deadline(self) -> None:
        """The handler has answered. A stream may go on, and read the body, for as long as it takes."""
        self._deadline = None

    async def json(self) -> dict[str, Any]:
        """The JSON object in the body; an empty one if there is no body."""
        if not self._request.body_exists:
            return {}
        self._refuse_compressed()
        if self._request.content_type != JSON or (self._request.charset or "utf-8").lower() != "utf-8":
            said = self.headers.get("Content-Type", "")[:100]
            message = f"Content-Type must be application/json, in UTF-8, not {said!r}; send that header with the body"
            raise CallRefused("INVALID_ARGUMENT", message, status=415)
        too_large = CallRefused(
            "INVALID_ARGUMENT",
            f"the body has more than {self._limits.body_bytes:,} bytes, the most that is accepted",
            status=413,
        )
        if (self.length or 0) > self._limits.body_bytes:
            raise too_large
        within = self._limits.body_seconds
        async with self.body():
            try:
                async with asyncio.timeout(within):
                    body = await self._request.read()  # of body_bytes at most
            except TimeoutError:
                raise CallRefused(
                    "INVALID_ARGUMENT",
                    f"the body did not arrive within {within:.0f} s; send it faster, or try again",
                    status=408,
                ) from None
            except web.HTTPRequestEntityTooLarge:
                raise too_large from None
        return strict_json.loads(body) if body else {}

    @asynccontextmanager
    async def body(self) -> AsyncIterator[StreamReader]:
        """The body as it comes, for whoever limits its size and its pace; the deadline counts from its end."""
        self._refuse_compressed()
        self._set_deadline(None)
        try:
            await self._ask_for_body()
            yield self._request.content
        except web.RequestPayloadError:
            raise CallRefused(
                "INVALID_ARGUMENT", "the body does not match Content-Length or Transfer-Encoding"
            ) from None
        finally:
            self._set_deadline(self._limits.answer_seconds)

    def _set_deadline(self, seconds: float | None) -> None:
        if self._deadline is not None:
            self._deadline.reschedule(None if seconds is None else loop_time() + seconds)

    def _refuse_compressed(self) -> None:
        if self.headers.get("Content-Encoding", "identity") != "identity":
            raise CallRefused("INVALID_ARGUMENT", "the body is compressed; send it as it is", status=415)

    async def _ask_for_body(self) -> None:
        """Only now, and not with the headers: a caller who is refused need not send gigabytes for it."""
        expects = self.headers.get("Expect", "").lower() == CONTINUE
        if expects and self._request.version == HttpVersion11 and not self._request.content.total_bytes:
            writer = self._request.writer
            await writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            writer.output_size = 0  # aiohttp takes what was written for the start of the answer
            await writer.drain()
