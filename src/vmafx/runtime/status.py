"""Writes the status of one kind: only the fields that changed, and only if nothing else changed the object.

StatusWriter remembers each write until the cache shows it: a reconciler that decided on the older object would repeat
the write (`must_wait`). The watch event of a write that leaves nothing to do need not requeue its object
(`ignore_echo`).
"""

from collections.abc import Mapping
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from vmafx.kube import Client, ObjectKey
from vmafx.kube.errors import Conflict, NotFound
from vmafx.runtime.informer import Informer
from vmafx.runtime.store import ObjectChange


class _Meta(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def resourceVersion(self) -> str: ...  # noqa: N802 - its name on the wire


class Versioned(Protocol):
    @property
    def metadata(self) -> _Meta: ...


T = TypeVar("T", bound=Versioned)


class _Write(msgspec.Struct):
    """A write of ours that the cache does not show yet, as far as we know."""

    version: int
    quiet: bool = False  # there is nothing to do when it comes back


class StatusWriter(Generic[T]):
    """The one writer of a kind's status in this process."""

    def __init__(self, client: Client, informer: Informer[T]) -> None:
        self._client, self._informer = client, informer
        self._writes: dict[ObjectKey, _Write] = {}
        informer.on_change(self._forget_gone)

    def _forget_gone(self, change: ObjectChange[T]) -> None:
        if self._informer.store.get(change.key) is None:
            self._writes.pop(change.key, None)

    async def write(self, about: T, changes: Mapping[str, Any]) -> T | None:
        """Write if nobody wrote since `about`; None if somebody did, or it is gone: the watch brings us back.

        Gives the object as it is now, which is `about` itself where there is nothing to change.
        """
        if not changes:
            return about
        key = ObjectKey(about.metadata.namespace, about.metadata.name)
        version = about.metadata.resourceVersion
        try:
            new = await self._client.patch_status(self._informer.resource, key, changes, version=version)
        except (Conflict, NotFound):
            return None
        cached = self._informer.store.get(key)
        if cached is not None and _version(cached) < _version(new):  # the watch may well be faster than the answer
            self._writes[key] = _Write(_version(new))
        return new

    def is_stale(self, key: ObjectKey, about: T) -> bool:
        """Whether this is from before our last write: deciding on it would decide the same again."""
        mine = self._writes.get(key)
        return mine is not None and _version(about) < mine.version

    def must_wait(self, key: ObjectKey, about: T) -> bool:
        """For a reconciler, first of all: True if it is to leave this alone until the cache shows our last write.

        Whatever brought it here then waits for that write's echo, which is news again, however quiet it was to be.
        """
        if self.is_stale(key, about):
            self._writes[key].quiet = False
            return True
        self._writes.pop(key, None)
        return False

    def ignore_echo(self, key: ObjectKey) -> None:
        """What followed from our last write is done: its echo is no news."""
        if (mine := self._writes.get(key)) is not None:
            mine.quiet = True

    def needs_reconcile(self, change: ObjectChange[T]) -> bool:
        """For `ReconcileLoop.watches(when=...)`: whether a change is more than the echo of a quiet write."""
        mine = self._writes.get(change.key)
        if mine is None or change.new is None or not mine.quiet:
            return True
        mine.quiet = False
        return _version(change.new) != mine.version


def changed_fields(status: object, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Of the fields that a status should have, those that it has not."""
    return {name: value for name, value in wanted.items() if getattr(status, name) != value}


def _version(about: Versioned) -> int:
    return int(about.metadata.resourceVersion or 0)
