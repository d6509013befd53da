"""McpSite: the route /mcp. It authenticates callers, and hands requests to their session, or answers them on their own.

Protocol versions with a handshake have sessions. Since 2026-07-28 a request stands alone; the SDK answers it.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from mcp.server.lowlevel import Server
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from vmafx.auth.callers import Callers, ServedCaller
from vmafx.auth.credentials import from_http
from vmafx.http.errors import StatusError
from vmafx.http.request import HttpRequest
from vmafx.http.responses import AnyResponse, ByteStream, Response
from vmafx.http.server import HttpRoute
from vmafx.mcp.asgi import call_asgi
from vmafx.mcp.server import CALLER
from vmafx.mcp.sessions import McpSession, McpSessions

PATH = "/mcp"
METHODS = ("GET", "POST", "DELETE")


class _Message(msgspec.Struct):
    method: str = ""


class McpSite:
    """The endpoint for MCP clients."""

    def __init__(self, server: Server[Any], callers: Callers) -> None:
        self._callers = callers
        self.sessions = McpSessions(server)
        self._alone = StreamableHTTPSessionManager(server)

    def routes(self) -> list[HttpRoute]:
        return [HttpRoute(method, PATH, self._answer) for method in METHODS]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self._alone.run():
            try:
                yield
            finally:
                await self.sessions.close()

    async def _answer(self, request: HttpRequest) -> AnyResponse:
        caller = await self._callers.identify(from_http(request), f"{request.method} {PATH}")
        body = await request.json_body() if request.method == "POST" else b""
        more = {CALLER: caller}
        version = request.headers.get(MCP_PROTOCOL_VERSION_HEADER)
        if version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS:
            return await call_asgi(self._alone.asgi_app, request, body, more)
        session_id = request.headers.get(MCP_SESSION_ID_HEADER)
        if session_id is not None:
            return await self._answer_in(session_id, caller, request, body)
        if request.method != "POST" or not _is_initialize(body):
            raise StatusError("INVALID_ARGUMENT", "the request has no session; send initialize first, without one")
        session = await self.sessions.open(caller)
        try:
            response = await self._answer_in(session.id, caller, request, body)
        except BaseException:  # no client has its ID
            await self.sessions.end(session)
            raise
        if response.status >= 400:
            await self.sessions.end(session)
        return response

    async def _answer_in(
        self, session_id: str, caller: ServedCaller, request: HttpRequest, body: bytes
    ) -> Response | ByteStream:
        async with self.sessions.using(session_id, caller) as session:
            response = await call_asgi(session.transport.handle_request, request, body, {CALLER: caller})
        return response if isinstance(response, Response) else response._replace(blocks=_held(session, response))


async def _held(session: McpSession, response: ByteStream) -> AsyncGenerator[bytes]:
    """The blocks of a stream, during which its session is in use."""
    session.in_flight += 1
    try:
        async for block in response.blocks:
            yield block
    finally:
        session.in_flight -= 1
        await response.blocks.aclose()


def _is_initialize(body: bytes) -> bool:
    try:
        return msgspec.json.decode(body, type=_Message).method == "initialize"
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
