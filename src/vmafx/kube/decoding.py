"""The server's bytes as objects; what is not what it should be is named, and spoils nothing beside it."""

from typing import Any, Generic, TypeVar

import msgspec

from vmafx.api.meta import MetaView
from vmafx.kube.errors import UnreadableAnswer

T = TypeVar("T")


class UnreadableObject(msgspec.Struct, frozen=True):
    """An object that its type does not describe, such as one stored before a rule was made stricter."""

    metadata: MetaView
    error: str
    deleted: bool = False  # in a watch: it is gone


class ListMeta(msgspec.Struct, frozen=True):
    resourceVersion: str = ""
    continue_: str = msgspec.field(name="continue", default="")
    remainingItemCount: int = 0


class ListPage(msgspec.Struct, Generic[T], frozen=True):
    """A part of a list, or all of it; `metadata.resourceVersion` is where a watch goes on from."""

    items: list[T]
    metadata: ListMeta = ListMeta()
    unreadable: tuple[UnreadableObject, ...] = ()


class _RawPage(msgspec.Struct):
    items: list[msgspec.Raw]
    metadata: ListMeta = ListMeta()


class _Head(msgspec.Struct):
    metadata: MetaView


def decode(body: bytes, model: type[T]) -> T:
    """One object."""
    try:
        return msgspec.json.decode(body, type=model)
    except msgspec.DecodeError as error:
        raise UnreadableAnswer(f"the server's answer is no {getattr(model, '__name__', model)}: {error}") from error


def decode_page(body: bytes, model: type[T]) -> ListPage[T]:
    """A part of a list. Objects that cannot be read are set aside; the others are not worse for them."""
    try:
        return msgspec.json.decode(body, type=ListPage[model])  # type: ignore[valid-type]
    except msgspec.ValidationError:
        raw = decode(body, _RawPage)
    items: list[T] = []
    aside: list[UnreadableObject] = []
    for one in raw.items:
        try:
            items.append(msgspec.json.decode(one, type=model))
        except msgspec.ValidationError as error:
            aside.append(unreadable(one, error))
    return ListPage(items, raw.metadata, tuple(aside))


def unreadable(body: Any, error: Exception, *, deleted: bool = False) -> UnreadableObject:
    """What can be said of an object that cannot be read."""
    return UnreadableObject(decode(body, _Head).metadata, str(error), deleted)
