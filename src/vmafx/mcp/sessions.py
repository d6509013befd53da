"""Sessions: those of protocol versions with a handshake, each with its transport, its owner and its recent messages.

A client that has lost a stream continues it with Last-Event-ID. Sessions are in memory: after a restart, clients open
new ones, and find their jobs by ID.
"""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from uuid import uuid4

import anyio
from mcp.server.lowlevel import Server
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore, StreamableHTTPServerTransport
from mcp_types import JSONRPCMessage

from vmafx.auth.callers import ServedCaller
from vmafx.http.errors import StatusError
from vmafx.logs import log

MAX_SESSIONS, MAX_OF_CALLER = 512, 32
IDLE_SECONDS = 1800.0  # without a request
MAX_EVENTS, MAX_EVENT_BYTES = 1024, 2 << 20  # of one session, to be sent again


class SessionEvents(EventStore):
    """The latest messages of one session, in order. Older ones are forgotten: streams before them cannot continue."""

    def __init__(self, count: int = MAX_EVENTS, size: int = MAX_EVENT_BYTES) -> None:
        self._limits, self._last, self._size = (count, size), 0, 0
        self._events: deque[_Event] = deque()

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        self._last += 1
        size = 0 if message is None else len(message.model_dump_json(by_alias=True, exclude_unset=True))
        self._events.append(_Event(self._last, stream_id, message, size))
        self._size += size
        while len(self._events) > self._limits[0] or self._size > self._limits[1]:
            self._size -= self._events.popleft().size
        return str(self._last)

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        known = next((event for event in self._events if str(event.number) == last_event_id), None)
        if known is None:
            return None
        for event in list(self._events):
            if event.number > known.number and event.stream == known.stream and event.message is not None:
                await send_callback(EventMessage(event.message, str(event.number)))
        return known.stream


class _Event(NamedTuple):
    number: int
    stream: str
    message: JSONRPCMessage | None
    size: int


class McpSession:
    """One client. `caller` is who opened it."""

    def __init__(self, caller: ServedCaller) -> None:
        self.id, self.caller = uuid4().hex, caller
        self.in_flight = 0  # requests, that which opens it included
        self.transport = StreamableHTTPServerTransport(
            mcp_session_id=self.id, event_store=SessionEvents(), idle_timeout=IDLE_SECONDS
        )
        self.task: asyncio.Task[None] | None = None


class McpSessions:
    """All sessions; the least recently used first."""

    def __init__(self, server: Server[Any]) -> None:
        self._server = server
        self._sessions: OrderedDict[str, McpSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    @asynccontextmanager
    async def using(self, session_id: str, caller: ServedCaller) -> AsyncIterator[McpSession]:
        """A session of this caller. Raises StatusError if there is none, also for that of another caller."""
        session = self._sessions.get(session_id)
        if session is None or session.caller.owner != caller.owner:
            raise StatusError("NOT_FOUND", "there is no such session, or it has ended; open a new one")
        self._sessions.move_to_end(session_id)
        session.in_flight += 1
        try:
            yield session
        finally:
            session.in_flight -= 1
            if session.transport.is_terminated:
                self._sessions.pop(session_id, None)

    async def open(self, caller: ServedCaller) -> McpSession:
        """A new session. If there are too many, the least recently used one without a request ends.

        That is one of the caller if it has too many, otherwise one of the caller who has most.
        """
        displaced = self._displaced(caller)
        session = McpSession(caller)
        self._sessions[session.id] = session
        ready = asyncio.Event()
        session.task = asyncio.create_task(self._serve(session, ready))
        session.in_flight += 1
        try:
            if displaced is not None:
                await self.end(displaced)
            await ready.wait()
        finally:
            session.in_flight -= 1
        return session

    def _displaced(self, caller: ServedCaller) -> McpSession | None:
        """The session that ends for a new one; None if there is room. Raises StatusError if all are in use."""
        count = Counter(session.caller.share for session in self._sessions.values())
        if count[caller.share] >= MAX_OF_CALLER:
            share = caller.share
        elif len(self._sessions) >= MAX_SESSIONS:
            ((share, _),) = count.most_common(1)
        else:
            return None
        idle = (one for one in self._sessions.values() if one.caller.share == share and not one.in_flight)
        if (found := next(idle, None)) is None:
            message = f"too many sessions are open; end some of yours, of which {MAX_OF_CALLER} may be"
            raise StatusError("RESOURCE_EXHAUSTED", message, caller=caller.share)
        return found

    async def end(self, session: McpSession) -> None:
        self._sessions.pop(session.id, None)
        if not session.transport.is_terminated:
            await session.transport.terminate()
        if session.task is not None:
            session.task.cancel()
            await asyncio.wait({session.task})

    async def close(self) -> None:
        for session in list(self._sessions.values()):
            await self.end(session)

    async def _serve(self, session: McpSession, ready: asyncio.Event) -> None:
        try:
            async with session.transport.connect() as (read, write):
                ready.set()
                with session.transport.idle_scope or anyio.CancelScope():
                    await self._server.run(read, write, self._server.create_initialization_options())
        except Exception as error:  # noqa: BLE001 - one session must not affect the others
            log.error("a session failed", session=session.id[:8], trace_of=error)
        finally:
            ready.set()
            self._sessions.pop(session.id, None)
            if not session.transport.is_terminated:
                with anyio.CancelScope(shield=True):
                    await session.transport.terminate()
