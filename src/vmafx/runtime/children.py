"""The objects that a reconciler makes for an owner: applied, kept as wanted, and deleted when no longer wanted.

    wanted, not there              applied, which creates it
    wanted, there and the owner's  applied again, if it or what is wanted changed
    wanted, there and another's    NameTaken: nothing is ever taken over
    the owner's, not wanted        deleted

Server-side apply owns exactly the fields that are wanted: what others add beside them stays, what they change of them
is put back. Children carry an owner reference, by which the cluster's garbage collector removes them with their owner.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from vmafx.api.meta import ObjectMeta
from vmafx.kube import Client, Key, Resource
from vmafx.kube.errors import Conflict, NotFound
from vmafx.kube.resources import Untyped
from vmafx.runtime.informer import Informer

MANAGED_BY = "app.kubernetes.io/managed-by"
BY_OWNER = "owner"
_Kind = tuple[str, str]  # apiVersion and kind


class Child(msgspec.Struct, frozen=True):
    """Any object that may be a child, as the cache keeps it: all that can be wanted of one, and its status."""

    metadata: ObjectMeta
    spec: Any = None
    data: Any = None
    status: Any = None


class Owner(NamedTuple):
    """Whose children they are."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str

    def reference(self) -> dict[str, Any]:
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }


class NameTaken(Exception):
    """A child's name is that of an object which is not its owner's; the sentence says which."""


class _Applied(msgspec.Struct, frozen=True):
    """What was wanted when a child was last applied, and what the server made of it: it fills in and rounds."""

    body: Untyped
    outcome: Any


def owner_of(meta: ObjectMeta) -> str:
    """The uid of the owner that controls it; empty if nobody does."""
    return next((one.uid for one in meta.ownerReferences if one.controller), "")


def child_informer(client: Client, resource: Resource[Any], namespace: str, manager: str) -> Informer[Child]:
    """The cache of one kind of children: all that `manager` made, found by their owner."""
    indexes = {BY_OWNER: lambda child: (owner_of(child.metadata),)}
    labels = f"{MANAGED_BY}={manager}"
    return Informer(client, resource.seen_as(Child), namespace=namespace, labels=labels, indexes=indexes)


class Children:
    """Keeps the children of all owners of one kind. `informers` are the caches of the kinds that children may be of."""

    def __init__(self, client: Client, manager: str, informers: Iterable[Informer[Child]]) -> None:
        self._client, self._manager = client, manager
        self._informers: dict[_Kind, Informer[Child]] = {
            (one.resource.api_version, one.resource.kind): one for one in informers
        }
        self._applied: dict[str, dict[tuple[_Kind, Key], _Applied]] = {}  # by the owner's uid

    async def sync(self, owner: Owner, wanted: Iterable[Untyped]) -> list[Child]:
        """Bring about that the owner has exactly these children; gives them as they are now, in that order.

        One that is on its way out is waited for: its end brings its owner back. NameTaken if a name is another's.
        """
        found, kept = [], set()
        for body in wanted:
            _check(body)
            kind, key = (body["apiVersion"], body["kind"]), Key(owner.namespace, body["metadata"]["name"])
            kept.add((kind, key))
            child = await self._keep(owner, kind, key, body)
            if child is not None:
                found.append(child)
        await self._prune(owner, kept)
        return found

    def forget(self, owner_uid: str) -> None:
        """The owner is gone, and its children go with it."""
        self._applied.pop(owner_uid, None)

    async def _keep(self, owner: Owner, kind: _Kind, key: Key, body: Untyped) -> Child | None:
        informer, memory = self._informers[kind], self._applied.setdefault(owner.uid, {})
        live = informer.store.get(key) or await self._find(informer.resource, key)
        if live is not None and owner_of(live.metadata) != owner.uid:
            raise NameTaken(f"there is a {kind[1]} {key.name} already, and it is not {owner.kind} {owner.name}'s")
        if live is not None and live.metadata.deletionTimestamp is not None:
            return None
        applied = memory.get((kind, key))
        if live is not None and applied is not None and applied.body == body and _part(live, body) == applied.outcome:
            return live
        new = await self._apply(owner, informer.resource, key, body, live)
        memory[kind, key] = _Applied(body, _part(new, body))
        return new

    async def _apply(
        self, owner: Owner, resource: Resource[Child], key: Key, body: Untyped, live: Child | None
    ) -> Child:
        """Over what is ours by force. Over nothing without: had somebody made one just now, it would be theirs."""
        meta = {**body["metadata"], "namespace": key.namespace, "ownerReferences": [owner.reference()]}
        meta["labels"] = {**meta.get("labels", {}), MANAGED_BY: self._manager}
        if live is not None:
            meta["uid"] = live.metadata.uid
        return await self._client.apply(
            resource, key, {**body, "metadata": meta}, manager=self._manager, force=live is not None
        )

    async def _find(self, resource: Resource[Child], key: Key) -> Child | None:
        """One that the cache does not show: not yet, or because it is not ours, or lost our label."""
        try:
            return await self._client.get(resource, key)
        except NotFound:
            return None

    async def _prune(self, owner: Owner, kept: set[tuple[_Kind, Key]]) -> None:
        for kind, informer in self._informers.items():
            for child in tuple(informer.store.by(BY_OWNER, owner.uid)):
                key = Key(child.metadata.namespace, child.metadata.name)
                if (kind, key) not in kept and child.metadata.deletionTimestamp is None:
                    with suppress(Conflict, NotFound):  # somebody was faster
                        await self._client.delete(informer.resource, key, uid=child.metadata.uid)
                    self._applied.get(owner.uid, {}).pop((kind, key), None)


def _check(body: Untyped) -> None:
    unseen = body.keys() - {"apiVersion", "kind", *Child.__struct_fields__}
    if unseen:
        raise TypeError(f"a child's {', '.join(sorted(unseen))} would not be seen to change; add it to Child")


def _part(live: Child, body: Untyped) -> Any:
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
