"""The children of an owner: objects that a reconciler applies, keeps as declared, and deletes when no longer declared.

    declared, absent                            applied, which creates it
    declared, present, controlled by owner      applied again if it or its declaration changed
    declared, present, being deleted            waited for, whoever controls it
    declared, present, not controlled by owner  a failure: an existing object is never adopted
    controlled by owner, not declared           deleted

Server-side apply owns exactly the declared fields: fields that others add stay, changes that others make to declared
fields are reverted. Children carry an owner reference, so that the garbage collector deletes them with their owner; an
owner that is being deleted gets no new children.
"""

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

import msgspec

from vmafx.api.meta import ObjectMeta
from vmafx.kube import Client, ObjectKey, Resource, key_of
from vmafx.kube.errors import BadRequest, Conflict, Forbidden, Invalid, NotFound
from vmafx.kube.resources import UntypedObject
from vmafx.runtime.informer import Informer
from vmafx.runtime.store import ObjectChange

MANAGED_BY = "app.kubernetes.io/managed-by"
BY_OWNER = "owner"
_Kind = tuple[str, str]  # apiVersion and kind


class Child(msgspec.Struct, frozen=True):
    """An object of any kind, as the cache keeps it: every field that a declaration may set, and its status."""

    metadata: ObjectMeta
    spec: Any = None
    data: Any = None
    binaryData: Any = None
    immutable: Any = None
    type: Any = None
    rules: Any = None
    roleRef: Any = None
    subjects: Any = None
    automountServiceAccountToken: Any = None
    status: Any = None


class _OwnerMeta(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def deletionTimestamp(self) -> datetime | None: ...  # noqa: N802 - its name on the wire


class Owner(Protocol):
    """An object that has children."""

    @property
    def metadata(self) -> _OwnerMeta: ...


T = TypeVar("T", bound=Owner)


class ChildFailure(NamedTuple):
    """A child that could not be applied, for a condition of its owner."""

    kind: str
    name: str
    reason: Literal["NameTaken", "Refused"]
    message: str


class SyncResult(msgspec.Struct, frozen=True):
    """The live children, by kind and name; None for one that failed, or waits for an object to be deleted."""

    children: dict[tuple[str, str], Child | None] = {}
    failures: tuple[ChildFailure, ...] = ()

    @property
    def complete(self) -> bool:
        """If not, requeue the owner after a delay: no event may announce that the obstacle is gone."""
        return None not in self.children.values()


class _Applied(msgspec.Struct, frozen=True):
    """A child as it was last declared, and the declared fields as the server stored them (with defaults)."""

    body: UntypedObject
    stored: Any


def owner_reference(resource: Resource[Any], name: str, uid: str) -> UntypedObject:
    """The reference that makes an object a child: deleted with its owner, and its changes requeue the owner."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def controlling_owner(meta: ObjectMeta) -> str:
    """The uid of the owner that controls the object, or an empty string."""
    return next((reference.uid for reference in meta.ownerReferences if reference.controller), "")


def child_informer(client: Client, resource: Resource[Any], namespace: str, field_manager: str) -> Informer[Child]:
    """The cache of one kind of children: all objects managed by `field_manager`, indexed by owner."""
    indexes = {BY_OWNER: lambda child: (controlling_owner(child.metadata),)}
    labels = f"{MANAGED_BY}={field_manager}"
    return Informer(client, resource.decoded_as(Child), namespace=namespace, labels=labels, indexes=indexes)


class Children(Generic[T]):
    """Syncs the children of all `owners`. `informers` are the caches of the kinds that children may have."""

    def __init__(
        self, client: Client, field_manager: str, owners: Informer[T], informers: Iterable[Informer[Child]]
    ) -> None:
        self._client, self._field_manager, self._owners = client, field_manager, owners
        self._informers: dict[_Kind, Informer[Child]] = {
            (informer.resource.api_version, informer.resource.kind): informer for informer in informers
        }
        self._applied: dict[str, dict[tuple[_Kind, ObjectKey], _Applied]] = {}  # by the owner's uid
        owners.on_change(self._forget_deleted_owner)

    async def sync(self, owner: T, declared: Iterable[UntypedObject]) -> SyncResult:
        """Make the owner have exactly the declared children.

        A child that the server rejects, or whose name is taken, does not block the others. Other errors, such as a
        server that does not respond, are raised.
        """
        if owner.metadata.deletionTimestamp is not None:
            return SyncResult()
        meta = owner.metadata
        children: dict[tuple[str, str], Child | None] = {}
        failures: list[ChildFailure] = []
        kept: set[tuple[_Kind, ObjectKey]] = set()
        for body in declared:
            _check_fields(body)
            kind, key = (body["apiVersion"], body["kind"]), ObjectKey(meta.namespace, body["metadata"]["name"])
            kept.add((kind, key))
            children[kind[1], key.name] = None
            try:
                child = await self._sync_child(owner, kind, key, body)
            except (BadRequest, Conflict, Forbidden, Invalid) as error:
                failures.append(ChildFailure(kind[1], key.name, "Refused", str(error)))
                continue
            if isinstance(child, ChildFailure):
                failures.append(child)
            else:
                children[kind[1], key.name] = child
        await self._prune(meta.uid, kept)
        if self._owners.store.get(ObjectKey(meta.namespace, meta.name)) is None:  # deleted during the sync
            self._applied.pop(meta.uid, None)
        return SyncResult(children, tuple(failures))

    def _forget_deleted_owner(self, change: ObjectChange[T]) -> None:
        if change.old is not None and (change.new is None or change.new.metadata.uid != change.old.metadata.uid):
            self._applied.pop(change.old.metadata.uid, None)

    async def _sync_child(
        self, owner: T, kind: _Kind, key: ObjectKey, body: UntypedObject
    ) -> Child | ChildFailure | None:
        """The child, applied if necessary; None while an object of its name is being deleted."""
        informer, uid = self._informers[kind], owner.metadata.uid
        live = informer.store.get(key) or await self._find(informer.resource, key)
        if live is not None and live.metadata.deletionTimestamp is not None:
            return None
        if live is not None and controlling_owner(live.metadata) != uid:
            message = (
                f"{kind[1]} {key.name} already exists and is not controlled by "
                f"{self._owners.resource.kind} {owner.metadata.name}"
            )
            return ChildFailure(kind[1], key.name, "NameTaken", message)
        applied_children = self._applied.setdefault(uid, {})
        applied = applied_children.get((kind, key))
        if (
            live is not None
            and applied is not None
            and applied.body == body
            and _declared_fields(live, body) == applied.stored
        ):
            return live
        new = await self._apply(owner, informer.resource, key, body, live)
        applied_children[kind, key] = _Applied(body, _declared_fields(new, body))
        return new

    async def _apply(
        self, owner: T, resource: Resource[Child], key: ObjectKey, body: UntypedObject, live: Child | None
    ) -> Child:
        """Apply the child, with force only if it exists: an object that was created meanwhile is not overwritten."""
        reference = owner_reference(self._owners.resource, owner.metadata.name, owner.metadata.uid)
        meta = {**body["metadata"], "namespace": key.namespace, "ownerReferences": [reference]}
        meta["labels"] = {**meta.get("labels", {}), MANAGED_BY: self._field_manager}
        if live is not None:
            meta["uid"] = live.metadata.uid
        return await self._client.apply(
            resource, key, {**body, "metadata": meta}, manager=self._field_manager, force=live is not None
        )

    async def _find(self, resource: Resource[Child], key: ObjectKey) -> Child | None:
        """Read an object that is not in the cache: too new, not managed by this process, or without its label."""
        try:
            return await self._client.get(resource, key)
        except NotFound:
            return None

    async def _prune(self, owner_uid: str, kept: set[tuple[_Kind, ObjectKey]]) -> None:
        for kind, informer in self._informers.items():
            for child in tuple(informer.store.by(BY_OWNER, owner_uid)):
                key = key_of(child)
                if (kind, key) not in kept and child.metadata.deletionTimestamp is None:
                    with suppress(Conflict, NotFound):  # already deleted, or replaced
                        await self._client.delete(informer.resource, key, uid=child.metadata.uid)
                    self._applied.get(owner_uid, {}).pop((kind, key), None)


def _check_fields(body: UntypedObject) -> None:
    unwatched = body.keys() - {"apiVersion", "kind", *Child.__struct_fields__}
    if unwatched:
        raise TypeError(f"changes to {', '.join(sorted(unwatched))} of a child are not watched; add it to Child")


def _declared_fields(live: Child, body: UntypedObject) -> Any:
    """The values that a live object has for the declared fields."""
    meta = body["metadata"]
    declared = {name: value for name, value in body.items() if name not in {"apiVersion", "kind", "metadata"}}
    declared["metadata"] = {name: meta[name] for name in ("labels", "annotations") if name in meta}
    values = {name: getattr(live, name) for name in declared if name != "metadata"}
    values["metadata"] = {"labels": live.metadata.labels, "annotations": live.metadata.annotations}
    return _project(values, declared) | {"managed": live.metadata.labels.get(MANAGED_BY)}


def _project(live: Any, declared: Any) -> Any:
    if isinstance(declared, dict) and isinstance(live, dict):
        return {name: _project(live.get(name), value) for name, value in declared.items()}
    if isinstance(declared, list) and isinstance(live, list) and len(declared) == len(live):
        return [_project(live_item, item) for live_item, item in zip(live, declared, strict=True)]
    return live
