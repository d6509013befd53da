"""A watch: the changes of a collection, over as many connections as it takes.

The server ends watches whenever it likes, in the middle of a burst too; each is resumed where it stood, at once, or
after a growing pause where that keeps failing. What resuming cannot help ends it: a version that is too old (Expired:
list again), a no (401, 403, 404), a server that is not to be trusted, or failures for a minute.
"""

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

import msgspec

from vmafx.backoff import Backoff
from vmafx.kube.decoding import UnreadableObject, unreadable
from vmafx.kube.errors import (
    Expired,
    KubeError,
    ServerError,
    Status,
    TooManyRequests,
    Unreachable,
    UnreadableAnswer,
    Untrusted,
    error_for,
)
from vmafx.kube.resources import Resource
from vmafx.kube.transport import ApiRequest, Transport

T = TypeVar("T")
MIN_WATCH_SECONDS, MAX_WATCH_SECONDS = (
    290,
    580,
)  # seconds that one connection lasts, spread so that watches do not end together
TOO_SHORT = 1.0  # a connection that ends sooner, and without an event, is no good
BACKOFF = Backoff(0.05, 10.0, spread=0.5)
RETRY_LIMIT = 60.0  # seconds of failures; then whoever watches is to know that they see nothing
INITIAL_END = "k8s.io/initial-events-end"


class _Event(msgspec.Struct, frozen=True, tag_field="type", gc=False):
    pass


class Added(_Event, Generic[T], frozen=True, tag="ADDED", gc=False):
    object: T


class Modified(_Event, Generic[T], frozen=True, tag="MODIFIED", gc=False):
    object: T


class Deleted(_Event, Generic[T], frozen=True, tag="DELETED", gc=False):
    """`object` is the last state before the deletion."""

    object: T


class _Position(msgspec.Struct, frozen=True, gc=False):
    resourceVersion: str = ""
    annotations: dict[str, str] = {}


class _Marked(msgspec.Struct, frozen=True, gc=False):
    metadata: _Position


class Bookmark(_Event, frozen=True, tag="BOOKMARK", gc=False):
    """Nothing changed; the watch has come as far as this resourceVersion."""

    object: _Marked

    @property
    def initial_end(self) -> bool:
        """Whether all that was there at the beginning has been sent."""
        return self.object.metadata.annotations.get(INITIAL_END) == "true"


class _Error(_Event, frozen=True, tag="ERROR", gc=False):
    object: Status


Event = Added[T] | Modified[T] | Deleted[T] | Bookmark | UnreadableObject


class _Envelope(msgspec.Struct):
    type: str
    object: msgspec.Raw


Decoder = msgspec.json.Decoder[Any]


def event_decoder(model: type[Any]) -> Decoder:
    """Decodes watch events whose objects are of this type."""
    return msgspec.json.Decoder(
        Added[model] | Modified[model] | Deleted[model] | Bookmark | _Error  # type: ignore[valid-type]
    )


def decode_events(lines: bytes, decoder: Decoder) -> list[Any]:
    """Whole lines of a watch as events; an object that cannot be read spoils only itself."""
    try:
        return decoder.decode_lines(lines)
    except msgspec.ValidationError:
        return [_decode_one(line, decoder) for line in lines.splitlines() if line]
    except msgspec.DecodeError as error:
        raise UnreadableAnswer(f"the watch sent something else than events: {error}") from error


def _decode_one(line: bytes, decoder: Decoder) -> Any:
    try:
        return decoder.decode(line)
    except msgspec.DecodeError as error:  # a ValidationError is one
        try:
            envelope = msgspec.json.decode(line, type=_Envelope)
        except msgspec.DecodeError:
            raise UnreadableAnswer(f"the watch sent something else than events: {error}") from error
        return unreadable(envelope.object, error, deleted=envelope.type == "DELETED")


class Watch(Generic[T]):
    """Iterate over it for batches of events: as many as came at once.

    Without a version it begins with all that is there, as Added events, and then a Bookmark that says `initial_end`;
    these have no order, so until then a broken connection cannot be resumed, and ends the watch.
    A caller that stops before the task ends closes the connection with `aclosing(aiter(watch))`.
    """

    def __init__(self, transport: Transport, resource: Resource[T], path: str, query: dict[str, str]) -> None:
        self._transport, self._decoder = transport, event_decoder(resource.model)
        self._path, self._query = path, query
        self.version = query.get("resourceVersion", "")

    async def __aiter__(self) -> AsyncGenerator["list[Event[T]]"]:
        failures, good = 0, _now()  # when it last was
        while True:
            opened, events = _now(), 0
            error: KubeError | None = None
            try:
                async with aclosing(self._connection()) as connection:
                    async for batch in connection:
                        events += len(batch)
                        yield batch
            except (Unreachable, UnreadableAnswer, ServerError, TooManyRequests) as broken:
                if isinstance(broken, Untrusted) or not self.version:
                    raise
                error = broken
            if not self.version:
                raise Unreachable("the watch ended before all that was there had been sent", sent=True)
            failures = failures + 1 if not events and (error or _now() - opened < TOO_SHORT) else 0
            if not failures:
                good = _now()
            elif error is not None and _now() - good > RETRY_LIMIT:
                raise error
            if failures:
                await asyncio.sleep(BACKOFF.delay(failures, at_least=getattr(error, "retry_after", None) or 0.0))

    async def _connection(self) -> AsyncGenerator["list[Event[T]]"]:
        seconds = random.randint(MIN_WATCH_SECONDS, MAX_WATCH_SECONDS)  # noqa: S311 - spreads load, guards nothing
        query = {**self._query, "watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": str(seconds)}
        if self.version:
            query["resourceVersion"] = self.version
        else:
            query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        request = ApiRequest("GET", self._path, urlencode(query), timeout=seconds + 10)
        rest = b""
        async with self._transport.stream(request) as stream:
            while chunk := await stream.read():
                lines, newline, tail = chunk.rpartition(b"\n")
                if not newline:
                    rest += chunk
                    continue
                batch = self._accept(decode_events(rest + lines, self._decoder))
                rest = tail
                yield batch

    def _accept(self, batch: list[Any]) -> "list[Event[T]]":
        """Move on to the last event's version; an error event ends the connection, or with 410 the watch."""
        for event in batch:
            if isinstance(event, _Error):
                raise _translate(event.object)
            if not self.version and isinstance(event, Bookmark) and event.initial_end:
                self.version = event.object.metadata.resourceVersion
        if self.version and batch:
            self.version = _version(batch[-1]) or self.version
        return batch


def _version(event: "Event[Any]") -> str:
    if isinstance(event, UnreadableObject):
        return event.metadata.resourceVersion
    thing = event.object
    metadata = thing["metadata"] if isinstance(thing, dict) else thing.metadata
    version: str = metadata["resourceVersion"] if isinstance(metadata, dict) else metadata.resourceVersion
    return version


def _translate(status: Status) -> KubeError:
    error = error_for(status)
    return error if isinstance(error, Expired | ServerError | TooManyRequests) else ServerError(status)


def _now() -> float:
    return asyncio.get_running_loop().time()
