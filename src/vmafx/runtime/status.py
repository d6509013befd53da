"""Writes the status of one kind: only the fields that changed, and only if nothing else changed the object.

StatusWriter remembers each write until the cache shows it: a reconciler that decided on the older object would repeat
the write (`must_wait`). The watch event of a write that leaves nothing to do need not requeue its object: the
reconciler says so after the write (`ignore_echo`) or, since the event may arrive before the response, with it
(`write_last`).
"""

from collections.abc import Mapping
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from vmafx.kube import Client, ObjectKey, key_of
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
    """An object with a name and a resourceVersion."""

    @property
    def metadata(self) -> _Meta: ...


T = TypeVar("T", bound=Versioned)


class _Write(msgspec.Struct):
    """A status write that the cache may not show yet."""

    version: int
    echo_ignored: bool = False  # its watch event needs no reconciliation


class StatusWriter(Generic[T]):
    """The only writer of a kind's status in this process."""

    def __init__(self, client: Client, informer: Informer[T]) -> None:
        self._client, self._informer = client, informer
        self._writes: dict[ObjectKey, _Write] = {}
        self._last: dict[ObjectKey, int] = {}  # last writes in flight, and the latest version seen meanwhile
        self._outdated: set[ObjectKey] = set()  # objects that changed again during a last write
        informer.on_change(self._forget_deleted)

    async def write_last(self, about: T, changes: Mapping[str, Any]) -> T | None:
        """Like `write`, for a write that leaves nothing to do: its watch event does not requeue the object.

        If the object changed again meanwhile, `is_outdated` is true: reconcile it again.
        """
        key = key_of(about)
        self._last[key] = 0
        new = None
        try:
            new = await self.write(about, changes)
        finally:
            seen = self._last.pop(key)
        if seen > (_version(new) if new is not None else 0):
            self._outdated.add(key)
        self.ignore_echo(key)
        return new

    def is_outdated(self, key: ObjectKey) -> bool:
        """Whether the object changed again during its last write; false when asked again."""
        outdated = key in self._outdated
        self._outdated.discard(key)
        return outdated

    async def write(self, about: T, changes: Mapping[str, Any]) -> T | None:
        """Patch the status; return the new object, or `about` itself if there are no changes.

        Return None if the object was changed since `about` was read, or deleted: the watch event requeues it.
        """
        if not changes:
            return about
        key = key_of(about)
        version = about.metadata.resourceVersion
        try:
            new = await self._client.patch_status(self._informer.resource, key, changes, version=version)
        except (Conflict, NotFound):
            return None
        cached = self._informer.store.get(key)
        if cached is not None and _version(cached) < _version(new):  # the watch may be faster than the response
            self._writes[key] = _Write(_version(new))
        return new

    def is_stale(self, key: ObjectKey, about: T) -> bool:
        """Whether `about` is older than the last write: a decision on it would repeat that write."""
        write = self._writes.get(key)
        return write is not None and _version(about) < write.version

    def must_wait(self, key: ObjectKey, about: T) -> bool:
        """Whether a reconciler must return at once, since `about` is stale.

        The watch event of the last write then requeues the key, even if it was to be ignored: it stands for the change
        that requested this reconciliation.
        """
        if self.is_stale(key, about):
            self._writes[key].echo_ignored = False
            return True
        self._writes.pop(key, None)
        return False

    def ignore_echo(self, key: ObjectKey) -> None:
        """The last write leaves nothing to do: its watch event need not requeue the key."""
        if (write := self._writes.get(key)) is not None:
            write.echo_ignored = True

    def needs_reconcile(self, change: ObjectChange[T]) -> bool:
        """A predicate for `ReconcileLoop.watches(when=...)`: false for the watch event of a write to be ignored."""
        if change.new is not None and change.key in self._last:
            self._last[change.key] = _version(change.new)
            return False
        write = self._writes.get(change.key)
        if write is None or change.new is None or not write.echo_ignored:
            return True
        write.echo_ignored = False
        return _version(change.new) != write.version

    def _forget_deleted(self, change: ObjectChange[T]) -> None:
        if self._informer.store.get(change.key) is None:
            self._writes.pop(change.key, None)
            self._outdated.discard(change.key)


def changed_fields(status: object, desired: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `desired` that the status does not have yet."""
    return {name: value for name, value in desired.items() if getattr(status, name) != value}


def _version(about: Versioned) -> int:
    return int(about.metadata.resourceVersion or 0)
