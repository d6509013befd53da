"""The request messages of gRPC calls: gRPC itself waits for them without limit."""

import asyncio
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from prometheus_client import CollectorRegistry

from vmafx.auth.access import AccessControl
from vmafx.auth.credentials import CallerCredentials
from vmafx.auth.fair_limit import sharing_key
from vmafx.clock import loop_time
from vmafx.http.errors import StatusError
from vmafx.meters import Counters
from vmafx.rpc.service import RpcService

MESSAGE_TIMEOUT = 20.0  # seconds; the same as for a body over HTTP

GrpcContext = grpc.aio.ServicerContext[Any, Any]


class MessageReader:
    """Reads the messages of calls, the first of which must arrive within MESSAGE_TIMEOUT.

    When `waiting_calls` wait for it, or one caller or address has as many of them as are free, its oldest one is ended
    for the next. Nobody is refused: the message of an honest call arrives with it, and the oldest call is one without.
    """

    def __init__(self, service: RpcService, access: AccessControl, registry: CollectorRegistry) -> None:
        self._access, self._limits = access, service.limits
        ended = Counters(
            f"{service.metrics_prefix}_calls_without_message",
            f"gRPC calls that the {service.name} ended because their message had not arrived, "
            "by reason (timeout, limit).",
            ["reason"],
            registry=registry,
        )
        self.timed_out, self._over_limit = ended.labels("timeout"), ended.labels("limit")
        self._waiting: dict[str, dict[asyncio.Future[None], None]] = {}  # by caller or address, the oldest first
        self._count = 0
        self._reads: set[asyncio.Task[Any]] = set()

    async def one(self, context: GrpcContext, credentials: CallerCredentials) -> Any:
        """The message of a call that has exactly one."""
        message = await self._first(context, credentials)
        if message is grpc.aio.EOF:
            raise StatusError("INVALID_ARGUMENT", "the call has no message")
        return message

    async def stream(self, context: GrpcContext, credentials: CallerCredentials) -> "RequestStream":
        """The messages of a call that the client streams, after the first one, or the end, has arrived."""
        return RequestStream(self, context, await self._first(context, credentials), self._limits.idle_seconds)

    def start_read(self, context: GrpcContext) -> asyncio.Task[Any]:
        # Never cancelled, also if nobody waits for it any longer: gRPC would write the message to memory that is no
        # longer there. The read ends with the call.
        read = asyncio.get_running_loop().create_task(context.read())
        self._reads.add(read)
        read.add_done_callback(self._reads.discard)
        read.add_done_callback(_mark_retrieved)
        return read

    async def _first(self, context: GrpcContext, credentials: CallerCredentials) -> Any:
        key = sharing_key(self._access.known_user(credentials), credentials.peer)
        loop = asyncio.get_running_loop()
        read = self.start_read(context)
        arrived: asyncio.Future[None] = loop.create_future()
        read.add_done_callback(lambda _: None if arrived.done() else arrived.set_result(None))
        timer = loop.call_later(MESSAGE_TIMEOUT, self._time_out, arrived)
        self._make_room(key)
        self._add(key, arrived)
        try:
            await arrived
        finally:
            timer.cancel()
            self._remove(key, arrived)
        return _message_of(read)

    def _time_out(self, arrived: asyncio.Future[None]) -> None:
        if _fail(arrived, StatusError("DEADLINE_EXCEEDED", "the message of the call did not arrive")):
            self.timed_out.inc()

    def _make_room(self, key: str) -> None:
        own = self._waiting.get(key, {})
        if len(own) < self._limits.waiting_calls - self._count:
            return
        owner = key if own else max(self._waiting, key=lambda one: len(self._waiting[one]))
        oldest = next(iter(self._waiting[owner]))
        self._remove(owner, oldest)
        if _fail(oldest, StatusError("RESOURCE_EXHAUSTED", "too many calls without a message; send it with the call")):
            self._over_limit.inc()

    def _add(self, key: str, arrived: asyncio.Future[None]) -> None:
        self._waiting.setdefault(key, {})[arrived] = None
        self._count += 1

    def _remove(self, key: str, arrived: asyncio.Future[None]) -> None:
        own = self._waiting.get(key, {})
        if arrived in own:
            del own[arrived]
            self._count -= 1
            if not own:
                del self._waiting[key]


class RequestStream:
    """The messages of a call that the client streams.

    A message is read when it is asked for, and no sooner: HTTP/2 flow control stops a client that sends faster. It must
    arrive within `idle_seconds`. A wait for a message may be cancelled; the next wait continues it. One task at a time
    may wait. Its calls are not among those that wait for their first message: the servicer limits how many there are.
    """

    def __init__(self, reader: MessageReader, context: GrpcContext, first: Any, idle_seconds: float) -> None:
        self._reader, self._context, self._idle_seconds = reader, context, idle_seconds
        self._first, self._ended = first, first is grpc.aio.EOF
        self._read: asyncio.Task[Any] | None = None
        self._due = 0.0

    def __aiter__(self) -> "RequestStream":
        return self

    async def __anext__(self) -> Any:
        if self._ended:
            raise StopAsyncIteration
        if self._first is not None:
            first, self._first = self._first, None
            return first
        message = await self._next()
        if message is grpc.aio.EOF:
            self._ended = True
            raise StopAsyncIteration
        return message

    async def _next(self) -> Any:
        if self._read is None:
            self._read, self._due = self._reader.start_read(self._context), loop_time() + self._idle_seconds
        read = self._read
        await asyncio.wait({read}, timeout=max(self._due - loop_time(), 0.0))
        if not read.done():
            self._reader.timed_out.inc()
            raise StatusError("DEADLINE_EXCEEDED", f"the next message did not arrive within {self._idle_seconds:g} s")
        self._read = None
        return _message_of(read)


def _message_of(read: asyncio.Task[Any]) -> Any:
    try:
        return read.result()
    except DecodeError:
        raise StatusError("INVALID_ARGUMENT", "the message of the call is malformed") from None


def _fail(arrived: asyncio.Future[None], error: StatusError) -> bool:
    """End the wait with the error; False if it has ended already."""
    if arrived.done():
        return False
    arrived.set_exception(error)
    return True


def _mark_retrieved(read: asyncio.Task[Any]) -> None:
    if not read.cancelled():
        read.exception()
