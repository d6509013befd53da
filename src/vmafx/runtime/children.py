"""The objects that a reconciler makes for an owner: applied, kept as wanted, and deleted when no longer wanted.

    wanted, not there              applied, which creates it
    wanted, there and the owner's  applied again, if it or what is wanted changed
    wanted, on its way out         waited for, whoever's it was
    wanted, there and another's    a failure: nothing that is there is taken over
    the owner's, not wanted        deleted

Server-side apply owns exactly the fields that are wanted: what others add beside them stays, what they change of them
is put back. Children carry an owner reference, by which the cluster's garbage collector removes them with their owner;
of an owner that is being deleted nothing is made anew.
"""

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

import msgspec

from vmafx.api.meta import ObjectMeta
from vmafx.kube import Client, ObjectKey, Resource
from vmafx.kube.errors import BadRequest, Conflict, Forbidden, Invalid, NotFound
from vmafx.kube.resources import UntypedObject
from vmafx.runtime.informer import Informer
from vmafx.runtime.store import ObjectChange

MANAGED_BY = "app.kubernetes.io/managed-by"
BY_OWNER = "owner"
_Kind = tuple[str, str]  # apiVersion and kind


class Child(msgspec.Struct, frozen=True):
    """Any object that may be a child, as the cache keeps it: all that can be wanted of one, and its status."""

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
    """A child that could not be brought about, for a condition of its owner."""

    kind: str
    name: str
    reason: Literal["NameTaken", "Refused"]
    message: str


class SyncResult(msgspec.Struct, frozen=True):
    """What came of it: children by kind and name, as they are now; None for one that has to wait, or failed."""

    children: dict[tuple[str, str], Child | None] = {}
    failures: tuple[ChildFailure, ...] = ()

    @property
    def complete(self) -> bool:
        """If not, look again in a while: what is in the way may go without a word."""
        return None not in self.children.values()


class _Applied(msgspec.Struct, frozen=True):
    """What was wanted when a child was last applied, and what the server made of it: it fills in and rounds."""

    body: UntypedObject
    outcome: Any


def owner_reference(resource: Resource[Any], name: str, uid: str) -> UntypedObject:
    """By which an object goes with its owner, and its changes are the owner's."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def owner_of(meta: ObjectMeta) -> str:
    """The uid of the owner that controls it; empty if nobody does."""
    return next((one.uid for one in meta.ownerReferences if one.controller), "")


def child_informer(client: Client, resource: Resource[Any], namespace: str, manager: str) -> Informer[Child]:
    """The cache of one kind of children: all that `manager` made, found by their owner."""
    indexes = {BY_OWNER: lambda child: (owner_of(child.metadata),)}
    labels = f"{MANAGED_BY}={manager}"
    return Informer(client, resource.seen_as(Child), namespace=namespace, labels=labels, indexes=indexes)


class Children(Generic[T]):
    """Keeps the children of all `owners`. `informers` are the caches of the kinds that children may be of."""

    def __init__(self, client: Client, manager: str, owners: Informer[T], informers: Iterable[Informer[Child]]) -> None:
        self._client, self._manager, self._owners = client, manager, owners
        self._informers: dict[_Kind, Informer[Child]] = {
            (one.resource.api_version, one.resource.kind): one for one in informers
        }
        self._applied: dict[str, dict[tuple[_Kind, ObjectKey], _Applied]] = {}  # by the owner's uid
        owners.on_change(self._owner_changed)

    async def sync(self, owner: T, wanted: Iterable[UntypedObject]) -> SyncResult:
        """Bring about that the owner has exactly these children.

        One that the server refuses, or whose name is another's, keeps nothing from the others. That the server does not
        answer is raised.
        """
        if owner.metadata.deletionTimestamp is not None:
            return SyncResult()
        meta, found, failures, kept = owner.metadata, dict[tuple[str, str], Child | None](), list[ChildFailure](), set()
        for body in wanted:
            _check(body)
            kind, key = (body["apiVersion"], body["kind"]), ObjectKey(meta.namespace, body["metadata"]["name"])
            kept.add((kind, key))
            found[kind[1], key.name] = None
            try:
                kept_as = await self._keep(owner, kind, key, body)
            except (BadRequest, Conflict, Forbidden, Invalid) as error:
                failures.append(ChildFailure(kind[1], key.name, "Refused", str(error)))
                continue
            if isinstance(kept_as, ChildFailure):
                failures.append(kept_as)
            else:
                found[kind[1], key.name] = kept_as
        await self._prune(meta.uid, kept)
        if self._owners.store.get(ObjectKey(meta.namespace, meta.name)) is None:  # it went while we were at it
            self._applied.pop(meta.uid, None)
        return SyncResult(found, tuple(failures))

    def _owner_changed(self, change: ObjectChange[T]) -> None:
        if change.old is not None and (change.new is None or change.new.metadata.uid != change.old.metadata.uid):
            self._applied.pop(change.old.metadata.uid, None)

    async def _keep(self, owner: T, kind: _Kind, key: ObjectKey, body: UntypedObject) -> Child | ChildFailure | None:
        """None: it is on its way out."""
        informer, uid = self._informers[kind], owner.metadata.uid
        live = informer.store.get(key) or await self._find(informer.resource, key)
        if live is not None and live.metadata.deletionTimestamp is not None:
            return None
        if live is not None and owner_of(live.metadata) != uid:
            whose = f"not that of {self._owners.resource.kind} {owner.metadata.name}"
            return ChildFailure(
                kind[1], key.name, "NameTaken", f"there is a {kind[1]} {key.name} already, and it is {whose}"
            )
        memory = self._applied.setdefault(uid, {})
        applied = memory.get((kind, key))
        if live is not None and applied is not None and applied.body == body and _part(live, body) == applied.outcome:
            return live
        new = await self._apply(owner, informer.resource, key, body, live)
        memory[kind, key] = _Applied(body, _part(new, body))
        return new

    async def _apply(
        self, owner: T, resource: Resource[Child], key: ObjectKey, body: UntypedObject, live: Child | None
    ) -> Child:
        """Over what is ours by force. Over nothing without: what somebody made just now, and differs, stays theirs."""
        reference = owner_reference(self._owners.resource, owner.metadata.name, owner.metadata.uid)
        meta = {**body["metadata"], "namespace": key.namespace, "ownerReferences": [reference]}
        meta["labels"] = {**meta.get("labels", {}), MANAGED_BY: self._manager}
        if live is not None:
            meta["uid"] = live.metadata.uid
        return await self._client.apply(
            resource, key, {**body, "metadata": meta}, manager=self._manager, force=live is not None
        )

    async def _find(self, resource: Resource[Child], key: ObjectKey) -> Child | None:
        """One that the cache does not show: not yet, or because it is not ours, or lost our label."""
        try:
            return await self._client.get(resource, key)
        except NotFound:
            return None

    async def _prune(self, owner_uid: str, kept: set[tuple[_Kind, ObjectKey]]) -> None:
        for kind, informer in self._informers.items():
            for child in tuple(informer.store.by(BY_OWNER, owner_uid)):
                key = ObjectKey(child.metadata.namespace, child.metadata.name)
                if (kind, key) not in kept and child.metadata.deletionTimestamp is None:
                    with suppress(Conflict, NotFound):  # somebody was faster
                        await self._client.delete(informer.resource, key, uid=child.metadata.uid)
                    self._applied.get(owner_uid, {}).pop((kind, key), None)


def _check(body: UntypedObject) -> None:
    unseen = body.keys() - {"apiVersion", "kind", *Child.__struct_fields__}
    if unseen:
        raise TypeError(f"a child's {', '.join(sorted(unseen))} would not be seen to change; add it to Child")


def _part(live: Child, body: UntypedObject) -> Any:
    """Of a live object, the values of the fields that are wanted."""
    meta = body["metadata"]
    wanted = {name: value for name, value in body.items() if name not in {"apiVersion", "kind", "metadata"}}
    wanted["metadata"] = {name: meta[name] for name in ("labels", "annotations") if name in meta}
    there = {name: getattr(live, name) for name in wanted if name != "metadata"}
    there["metadata"] = {"labels": live.metadata.labels, "annotations": live.metadata.annotations}
    return _projected(there, wanted) | {"managed": live.metadata.labels.get(MANAGED_BY)}


def _projected(live: Any, wanted: Any) -> Any:
    if isinstance(wanted, dict) and isinstance(live, dict):
        return {name: _projected(live.get(name), value) for name, value in wanted.items()}
    if isinstance(wanted, list) and isinstance(live, list) and len(wanted) == len(live):
        return [_projected(one, other) for one, other in zip(live, wanted, strict=True)]
    return live
