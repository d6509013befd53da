"""A watch: the changes of a collection, from a resourceVersion on, over as many connections as it takes.

The server ends watches whenever it likes, in the middle of a burst too; each is resumed where it stood. Only a
resourceVersion that is too old ends it (Expired): then the caller lists again.
"""

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Generic, TypeVar

import msgspec

from vmafx.api.meta import MetaView
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
from vmafx.kube.transport import Request, Transport

T = TypeVar("T")
SHORTEST, LONGEST = 290, 580  # seconds that one connection lasts, spread so that watches do not end together
PAUSE_MAX = 10.0


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


class _Error(_Event, frozen=True, tag="ERROR", gc=False):
    object: Status


class Unreadable(msgspec.Struct, frozen=True):
    """An object that its type does not describe, such as one stored before a rule was made stricter."""

    metadata: MetaView
    error: str


Event = Added[T] | Modified[T] | Deleted[T] | Bookmark | Unreadable


class _Head(msgspec.Struct):
    metadata: MetaView


class _Envelope(msgspec.Struct):
    object: _Head


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
    except msgspec.ValidationError as trouble:
        try:
            return Unreadable(msgspec.json.decode(line, type=_Envelope).object.metadata, str(trouble))
        except msgspec.DecodeError as error:
            raise UnreadableAnswer(f"the watch sent something else than events: {error}") from error


class Watch(Generic[T]):
    """Iterate over it for batches of events: as many as came at once.

    A caller that stops before the task ends closes the connection with `aclosing(aiter(watch))`.
    """

    def __init__(self, transport: Transport, resource: Resource[T], path: str, query: dict[str, str]) -> None:
        self._transport, self._decoder = transport, event_decoder(resource.model)
        self._path, self._query = path, query
        self.version = query.get("resourceVersion", "")

    async def __aiter__(self) -> AsyncGenerator["list[Event[T]]"]:
        failures = 0
        while True:
            try:
                async with aclosing(self._connection()) as connection:
                    async for batch in connection:
                        failures = 0
                        yield batch
            except Untrusted:
                raise
            except (Unreachable, UnreadableAnswer, ServerError, TooManyRequests) as error:
                failures += 1
                await asyncio.sleep(_pause(error, failures))

    async def _connection(self) -> AsyncGenerator["list[Event[T]]"]:
        seconds = random.randint(SHORTEST, LONGEST)  # noqa: S311 - spreads load, guards nothing
        query = {**self._query, "watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": str(seconds)}
        if self.version:
            query["resourceVersion"] = self.version
        request = Request("GET", self._path, query, timeout=seconds + 10)
        rest = b""
        async with self._transport.stream(request) as stream:
            while chunk := await stream.readany():
                lines, newline, tail = chunk.rpartition(b"\n")
                if not newline:
                    rest += chunk
                    continue
                batch = self._accept(decode_events(rest + lines, self._decoder))
                rest = tail
                yield batch

    def _accept(self, batch: "list[Event[T] | _Error]") -> "list[Event[T]]":
        """Move on to the last event's version; an error event ends the connection, or with 410 the watch."""
        accepted: list[Event[T]] = []
        for event in batch:
            if isinstance(event, _Error):
                raise _translate(event.object)
            accepted.append(event)
        if accepted:
            self.version = _version(accepted[-1]) or self.version
        return accepted


def _version(event: "Event[Any]") -> str:
    if isinstance(event, Unreadable):
        return event.metadata.resourceVersion
    thing = event.object
    metadata = thing["metadata"] if isinstance(thing, dict) else thing.metadata
    version: str = metadata["resourceVersion"] if isinstance(metadata, dict) else metadata.resourceVersion
    return version


def _translate(status: Status) -> KubeError:
    error = error_for(status)
    if isinstance(error, Expired):
        return error
    return error if isinstance(error, ServerError | TooManyRequests) else ServerError(status)


def _pause(error: KubeError, failures: int) -> float:
    told = getattr(error, "retry_after", None)
    if told is not None:
        return float(min(told, PAUSE_MAX))
    return float(min(0.05 * 2 ** min(failures - 1, 10), PAUSE_MAX)) * (0.5 + random.random())  # noqa: S311
