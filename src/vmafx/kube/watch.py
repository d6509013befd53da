"""A watch on a collection, over as many connections as it takes.

The server may end a watch connection at any time. The watch then resumes from its last resourceVersion: at once, or
with exponential backoff if connections keep failing. It ends with an error when resuming cannot help: Expired (list
again), 401, 403 or 404, an untrusted certificate, or RETRY_LIMIT seconds of failures.
"""

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

import msgspec

from vmafx.backoff import Backoff
from vmafx.kube.decoding import UnreadableObject, unreadable_object
from vmafx.kube.errors import (
    Expired,
    KubeError,
    ServerError,
    Status,
    TooManyRequests,
    Unreachable,
    UnreadableResponse,
    Untrusted,
    error_for,
)
from vmafx.kube.resources import Resource
from vmafx.kube.transport import ApiRequest, Transport

T = TypeVar("T")
# timeoutSeconds of a connection, chosen at random so that watches do not all reconnect together.
MIN_WATCH_SECONDS, MAX_WATCH_SECONDS = 290, 580
MIN_CONNECTION_SECONDS = 1.0  # a connection that ends sooner, without an event, counts as a failure
BACKOFF = Backoff(0.05, 10.0, spread=0.5)
RETRY_LIMIT = 60.0  # seconds of failures after which the caller gets the error
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class _Event(msgspec.Struct, frozen=True, tag_field="type", gc=False):
    pass


class Added(_Event, Generic[T], frozen=True, tag="ADDED", gc=False):
    object: T


class Modified(_Event, Generic[T], frozen=True, tag="MODIFIED", gc=False):
    object: T


class Deleted(_Event, Generic[T], frozen=True, tag="DELETED", gc=False):
    """`object` is the last state before the deletion."""

    object: T


class _BookmarkMetadata(msgspec.Struct, frozen=True, gc=False):
    resourceVersion: str = ""
    annotations: dict[str, str] = {}


class _BookmarkObject(msgspec.Struct, frozen=True, gc=False):
    metadata: _BookmarkMetadata


class Bookmark(_Event, frozen=True, tag="BOOKMARK", gc=False):
    """A resourceVersion from which the watch can resume, without a change."""

    object: _BookmarkObject

    @property
    def initial_end(self) -> bool:
        """Whether all initial events have been sent."""
        return self.object.metadata.annotations.get(INITIAL_EVENTS_END) == "true"


class _Error(_Event, frozen=True, tag="ERROR", gc=False):
    object: Status


Event = Added[T] | Modified[T] | Deleted[T] | Bookmark | UnreadableObject


class _Envelope(msgspec.Struct):
    type: str
    object: msgspec.Raw


Decoder = msgspec.json.Decoder[Any]


def event_decoder(model: type[Any]) -> Decoder:
    """A decoder of watch events whose objects are of this type."""
    return msgspec.json.Decoder(
        Added[model] | Modified[model] | Deleted[model] | Bookmark | _Error  # type: ignore[valid-type]
    )


def decode_events(lines: bytes, decoder: Decoder) -> list[Any]:
    """Decode complete lines; an object that does not match its type becomes an UnreadableObject."""
    try:
        return decoder.decode_lines(lines)
    except msgspec.ValidationError:
        return [_decode_one(line, decoder) for line in lines.splitlines() if line]
    except msgspec.DecodeError as error:
        raise UnreadableResponse(f"invalid watch event: {error}") from error


def _decode_one(line: bytes, decoder: Decoder) -> Any:
    try:
        return decoder.decode(line)
    except msgspec.DecodeError as error:
        try:
            envelope = msgspec.json.decode(line, type=_Envelope)
        except msgspec.DecodeError:
            raise UnreadableResponse(f"invalid watch event: {error}") from error
        return unreadable_object(envelope.object, error, deleted=envelope.type == "DELETED")


class Watch(Generic[T]):
    """Async iterator over batches of events: those that arrived together.

    Without a resourceVersion, the watch starts with an Added event per existing object, followed by a Bookmark with
    `initial_end`. Initial events come in no order, so a connection that breaks before that Bookmark ends the watch.
    To stop early, close the connection with `aclosing(aiter(watch))`.
    """

    def __init__(self, transport: Transport, resource: Resource[T], path: str, query: dict[str, str]) -> None:
        self._transport, self._decoder = transport, event_decoder(resource.model)
        self._path, self._query = path, query
        self.version = query.get("resourceVersion", "")

    async def __aiter__(self) -> AsyncGenerator["list[Event[T]]"]:
        failures, last_success = 0, _now()
        while True:
            opened_at, events = _now(), 0
            error: KubeError | None = None
            try:
                async with aclosing(self._connect()) as batches:
                    async for batch in batches:
                        events += len(batch)
                        yield batch
            except (Unreachable, UnreadableResponse, ServerError, TooManyRequests) as failure:
                if isinstance(failure, Untrusted) or not self.version:
                    raise
                error = failure
            if not self.version:
                raise Unreachable("the watch ended before all initial events were sent", sent=True)
            failed = not events and (error is not None or _now() - opened_at < MIN_CONNECTION_SECONDS)
            failures = failures + 1 if failed else 0
            if not failures:
                last_success = _now()
            elif error is not None and _now() - last_success > RETRY_LIMIT:
                raise error
            if failures:
                await asyncio.sleep(BACKOFF.delay(failures, at_least=getattr(error, "retry_after", None) or 0.0))

    async def _connect(self) -> AsyncGenerator["list[Event[T]]"]:
        """The batches of one connection."""
        seconds = random.randint(MIN_WATCH_SECONDS, MAX_WATCH_SECONDS)  # noqa: S311 - not for security
        query = {**self._query, "watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": str(seconds)}
        if self.version:
            query["resourceVersion"] = self.version
        else:
            query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        request = ApiRequest("GET", self._path, urlencode(query), timeout=seconds + 10)
        partial = b""  # a line whose end has not arrived yet
        async with self._transport.stream(request) as stream:
            while chunk := await stream.read():
                lines, newline, tail = chunk.rpartition(b"\n")
                if not newline:
                    partial += chunk
                    continue
                batch = self._accept(decode_events(partial + lines, self._decoder))
                partial = tail
                yield batch

    def _accept(self, batch: list[Any]) -> "list[Event[T]]":
        """Advance to the resourceVersion of the last event; raise for an ERROR event."""
        for event in batch:
            if isinstance(event, _Error):
                error = error_for(event.object)
                known = isinstance(error, Expired | ServerError | TooManyRequests)
                raise error if known else ServerError(event.object)  # any other code: reconnect
            if not self.version and isinstance(event, Bookmark) and event.initial_end:
                self.version = event.object.metadata.resourceVersion
        if self.version and batch:
            self.version = _resource_version(batch[-1]) or self.version
        return batch


def _resource_version(event: "Event[Any]") -> str:
    if isinstance(event, UnreadableObject):
        return event.metadata.resourceVersion
    item = event.object
    metadata = item["metadata"] if isinstance(item, dict) else item.metadata
    version: str = metadata["resourceVersion"] if isinstance(metadata, dict) else metadata.resourceVersion
    return version


def _now() -> float:
    return asyncio.get_running_loop().time()
