"""JSON from the API server to objects and list pages.

An object that its type cannot hold is reported as an UnreadableObject and does not fail the others.
"""

from typing import Any, Generic, TypeVar

import msgspec

from vmafx.api.meta import MetaView
from vmafx.kube.errors import UnreadableResponse

T = TypeVar("T")


class UnreadableObject(msgspec.Struct, frozen=True):
    """An object that does not match its type, such as one stored before a validation rule was tightened."""

    metadata: MetaView
    error: str
    deleted: bool = False  # came with a DELETED watch event


class ListMeta(msgspec.Struct, frozen=True):
    """metav1.ListMeta."""

    resourceVersion: str = ""
    continue_: str = msgspec.field(name="continue", default="")
    remainingItemCount: int = 0


class ListPage(msgspec.Struct, Generic[T], frozen=True):
    """A page of a list, or the whole list; a watch continues from `metadata.resourceVersion`."""

    items: list[T]
    metadata: ListMeta = ListMeta()
    unreadable: tuple[UnreadableObject, ...] = ()


class _RawPage(msgspec.Struct):
    items: list[msgspec.Raw] | None  # null in an empty list of metadata
    metadata: ListMeta = ListMeta()


class _MetadataOnly(msgspec.Struct):
    metadata: MetaView


def decode(body: bytes, model: type[T]) -> T:
    """Decode one object."""
    try:
        return msgspec.json.decode(body, type=model)
    except msgspec.DecodeError as error:
        name = getattr(model, "__name__", model)
        raise UnreadableResponse(f"the server's response is not a {name}: {error}") from error


def decode_page(body: bytes, model: type[T]) -> ListPage[T]:
    """Decode a list page; items that do not match `model` go to `unreadable`."""
    try:
        return msgspec.json.decode(body, type=ListPage[model])  # type: ignore[valid-type]
    except msgspec.ValidationError:
        raw = decode(body, _RawPage)
    items: list[T] = []
    unreadable: list[UnreadableObject] = []
    for item in raw.items or []:
        try:
            items.append(msgspec.json.decode(item, type=model))
        except msgspec.ValidationError as error:
            unreadable.append(unreadable_object(item, error))
    return ListPage(items, raw.metadata, tuple(unreadable))


def unreadable_object(body: Any, error: Exception, *, deleted: bool = False) -> UnreadableObject:
    """Report an object that does not match its type, by its metadata."""
    return UnreadableObject(decode(body, _MetadataOnly).metadata, str(error), deleted)
