"""The request messages of gRPC calls: gRPC itself waits for them without limit."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from vmafx.auth.access import AccessControl
from vmafx.auth.credentials import CallerCredentials
from vmafx.auth.fair_limit import sharing_key
from vmafx.http.errors import StatusError
from vmafx.meters import Counters
from vmafx.runtime.metrics import Metrics

MESSAGE_TIMEOUT = 20.0  # seconds; the same as for a body over HTTP
MAX_WAITING = 8192  # calls whose message has not arrived

GrpcContext = grpc.aio.ServicerContext[Any, Any]


class MessageReader:
    """Reads the messages of calls, each of which must arrive within MESSAGE_TIMEOUT.

    When MAX_WAITING calls wait, or one caller or address has as many of them as are free, its oldest one is ended for
    the next. Nobody is refused: the message of an honest call arrives with it, and the oldest call is one without.
    """

    def __init__(self, access: AccessControl, metrics: Metrics) -> None:
        self._access = access
        ended = Counters(
            "vmafx_controller_calls_without_message",
            "gRPC calls that the controller ended because their message had not arrived, by reason (timeout, limit).",
            ["reason"],
            registry=metrics.registry,
        )
        self._timed_out, self._over_limit = ended.labels("timeout"), ended.labels("limit")
        self._waiting: dict[str, dict[asyncio.Future[None], None]] = {}  # by caller or address, the oldest first
        self._count = 0
        self._reads: set[asyncio.Task[Any]] = set()

    async def one(self, context: GrpcContext, credentials: CallerCredentials) -> Any:
        """The message of a call that has exactly one."""
        message = await self._read(context, self._key(credentials))
        if message is grpc.aio.EOF:
            raise StatusError("INVALID_ARGUMENT", "the call has no message")
        return message

    async def all(self, context: GrpcContext, credentials: CallerCredentials) -> AsyncGenerator[Any]:
        while (message := await self._read(context, self._key(credentials))) is not grpc.aio.EOF:
            yield message

    def _key(self, credentials: CallerCredentials) -> str:
        return sharing_key(self._access.known_user(credentials), credentials.peer)

    async def _read(self, context: GrpcContext, key: str) -> Any:
        loop = asyncio.get_running_loop()
        # Not cancelled if the wait ends early: gRPC would write the message to memory that is no longer there.
        # The read ends with the call.
        read = loop.create_task(context.read())
        self._reads.add(read)
        read.add_done_callback(self._reads.discard)
        read.add_done_callback(_mark_retrieved)
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
        try:
            return read.result()
        except DecodeError:
            raise StatusError("INVALID_ARGUMENT", "the message of the call is malformed") from None

    def _time_out(self, arrived: asyncio.Future[None]) -> None:
        if _fail(arrived, StatusError("DEADLINE_EXCEEDED", "the message of the call did not arrive")):
            self._timed_out.inc()

    def _make_room(self, key: str) -> None:
        own = self._waiting.get(key, {})
        if len(own) < MAX_WAITING - self._count:
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


def _fail(arrived: asyncio.Future[None], error: StatusError) -> bool:
    """End the wait with the error; False if it has ended already."""
    if arrived.done():
        return False
    arrived.set_exception(error)
    return True


def _mark_retrieved(read: asyncio.Task[Any]) -> None:
    if not read.cancelled():
        read.exception()
