"""Calls an ASGI application, as the SDK's HTTP transport is one, for a request of our HTTP server."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, MutableMapping
from typing import Any, NamedTuple

from vmafx.http.request import HttpRequest
from vmafx.http.responses import EVENTS, ByteStream, Response
from vmafx.logs import log

Message = MutableMapping[str, Any]
AsgiApp = Callable[
    [MutableMapping[str, Any], Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]
NOT_FORWARDED = {"connection", "transfer-encoding", "content-length", "server", "date"}  # our server writes its own
LEAVE_SECONDS = 5.0  # for an application whose client has left


class _Start(NamedTuple):
    status: int
    headers: dict[str, str]


async def call_asgi(
    app: AsgiApp, request: HttpRequest, body: bytes, more: Mapping[str, Any] | None = None
) -> Response | ByteStream:
    """The response of the application. Events are streamed, anything else comes as a whole.

    `more` are further keys of the scope. The application is told when the client leaves.
    """
    call = _AsgiCall(app, {**_scope(request), **(more or {})}, body)
    try:
        start = await call.started()
        if start.headers.get("Content-Type", "").startswith(EVENTS):
            return ByteStream(start.status, start.headers, call.blocks())
        content = b"".join([block async for block in call.blocks()])
    except BaseException:
        await call.leave()
        raise
    headers = {name: value for name, value in start.headers.items() if name != "Content-Type"}
    return Response(start.status, start.headers.get("Content-Type", "text/plain"), content, headers)


def _scope(request: HttpRequest) -> dict[str, Any]:
    headers = [
        (name.lower().encode("latin-1", "replace"), value.encode("latin-1", "replace"))
        for name, value in request.headers.items()
        if name.lower() != "authorization"  # it has been checked; nothing behind needs it
    ]
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": "https" if request.is_secure else "http",
        "path": request.path,
        "raw_path": request.path.encode(errors="replace"),
        "root_path": "",
        "query_string": b"",
        "headers": headers,
        "client": None,
        "server": None,
    }


class _AsgiCall:
    """One call. What the application sends is not limited here: its messages are few and small."""

    def __init__(self, app: AsgiApp, scope: dict[str, Any], body: bytes) -> None:
        self._body: bytes | None = body
        self._left = asyncio.Event()
        self._start: asyncio.Future[_Start] = asyncio.get_running_loop().create_future()
        self._blocks: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._task = asyncio.ensure_future(app(scope, self._receive, self._send))
        self._task.add_done_callback(self._ended)

    async def started(self) -> _Start:
        """The status and the headers. Raises the error of an application that fails before."""
        return await asyncio.shield(self._start)

    async def blocks(self) -> AsyncGenerator[bytes]:
        """The body, until its end; closing this tells the application that the client has left."""
        try:
            while (block := await self._blocks.get()) is not None:
                yield block
        finally:
            await self.leave()

    async def leave(self) -> None:
        """Tell the application that the client is gone, and wait for its end."""
        self._left.set()
        if not self._task.done():
            await asyncio.wait({self._task}, timeout=LEAVE_SECONDS)
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = {
                name.decode("latin-1").title(): value.decode("latin-1")
                for name, value in message.get("headers", ())
                if name.decode("latin-1").lower() not in NOT_FORWARDED
            }
            if not self._start.done():
                self._start.set_result(_Start(message["status"], headers))
        elif message["type"] == "http.response.body":
            if message.get("body"):
                self._blocks.put_nowait(message["body"])
            if not message.get("more_body", False):
                self._blocks.put_nowait(None)

    def _ended(self, task: "asyncio.Future[None]") -> None:
        self._blocks.put_nowait(None)
        error = None if task.cancelled() else task.exception()
        if not self._start.done():
            self._start.set_exception(error or RuntimeError("the application sent no response"))
            self._start.exception()  # marks it as retrieved, if nobody waits for it any more
        elif error is not None:
            log.error("a response was cut off", trace_of=error)
