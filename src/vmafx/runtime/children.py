"""The children of an owner: objects that a reconciler applies, keeps as declared, and deletes when no longer declared.

    declared, absent                            applied, which creates it
    declared, present, controlled by owner      applied again if its declared fields or its declaration changed
    declared, present, being deleted            waited for, whoever controls it
    declared, present, of a deleted namesake    deleted, then applied: the garbage collector may take long
    declared, present, not controlled by owner  a failure: an existing object is never adopted
    controlled by owner, not declared           deleted

Server-side apply owns exactly the declared fields: fields that others add stay, changes that others make to declared
fields are reverted. Children carry an owner reference, so that the garbage collector deletes them with their owner; an
owner that is being deleted gets no new children. They also carry a digest of their declaration: after a restart, a
child that is as declared is not applied again.

A field can belong to another controller, such as the replicas of a Deployment to an autoscaler. It is declared as an
initial value: the child is created with it, and from then on the field is not ours. If it was, it is handed over first:
the server resets a field to its default when its only owner drops it, so the live value is applied with a field manager
of its own before the declaration drops it.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

import msgspec

from vmafx.kube import Client, ObjectKey, Resource, key_of
from vmafx.kube.errors import BadRequest, Conflict, Forbidden, Invalid, NotFound
from vmafx.kube.resources import UntypedObject
from vmafx.runtime.child import BY_OWNER, MANAGED_BY, Child, controlling_owner, owner_reference
from vmafx.runtime.declaration import (
    check_fields,
    content,
    declared_fields,
    digest,
    live_fields,
    manages,
    merged,
    project,
)
from vmafx.runtime.informer import Informer, InformerState
from vmafx.runtime.store import ObjectChange

DECLARATION = "vmafx.dev/declaration"  # annotation of a child: the digest of its declaration
CONFLICT_TRIES = 5  # the status of a child may change often
_Kind = tuple[str, str]  # apiVersion and kind
ChildName = tuple[str, str]  # kind and name


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
    """The live children, by kind and name; None for one that failed, or has to wait or could not be deleted."""

    children: dict[ChildName, Child | None] = {}
    failures: tuple[ChildFailure, ...] = ()
    outdated: bool = False  # a child changed again while it was applied: reconcile the owner again

    @property
    def complete(self) -> bool:
        """If not, requeue the owner after a delay: no event may announce that the obstacle is gone."""
        return None not in self.children.values()


class _Applied(msgspec.Struct):
    """What was last applied of a child: digests, since the bodies of thousands of children would take much memory."""

    declared: str  # digest of the declaration
    content: int  # hash of the child's content when its declared fields were last as declared
    version: int  # the resourceVersion that the last apply led to
    newer: Child | None = None  # the child as applied, until the cache has it


class _ManagedFields(msgspec.Struct, frozen=True):
    manager: str = ""
    operation: str = ""
    fieldsV1: dict[str, Any] = {}


class _ManagedMeta(msgspec.Struct, frozen=True):
    managedFields: tuple[_ManagedFields, ...] = ()


class _ManagedView(msgspec.Struct, frozen=True):
    """An object's field managers, which the cache does not keep."""

    metadata: _ManagedMeta


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
        self._deleted: set[str] = set()  # uids of children that were deleted, until the caches show it
        self._in_flight: dict[tuple[_Kind, ObjectKey], int] = {}  # applies, and the latest version seen meanwhile
        self._outdated: set[str] = set()  # owners with a child that changed again while it was applied
        owners.on_change(self._forget_deleted_owner)
        for informer in self._informers.values():
            informer.on_change(partial(self._on_child_change, informer.resource))

    def find(self, owner: T, resource: Resource[Any], name: str) -> Child | None:
        """The child of this name as known from the cache or the last sync, if the owner controls it."""
        child = self._known(owner, (resource.api_version, resource.kind), ObjectKey(owner.metadata.namespace, name))
        return child if child is not None and controlling_owner(child.metadata) == owner.metadata.uid else None

    async def sync(
        self,
        owner: T,
        declared: Iterable[UntypedObject],
        initial: Mapping[ChildName, UntypedObject] | None = None,
    ) -> SyncResult:
        """Make the owner have exactly the declared children; `initial` has the initial values of fields not owned.

        A child that the server rejects, or whose name is taken, does not block the others; but no child is deleted
        until all declared ones are applied. Other errors, such as a server that does not respond, are raised.
        """
        if owner.metadata.deletionTimestamp is not None:
            return SyncResult()
        meta = owner.metadata
        children: dict[ChildName, Child | None] = {}
        failures: list[ChildFailure] = []
        kept: set[tuple[_Kind, ObjectKey]] = set()
        for body in declared:
            check_fields(body)
            kind, key = (body["apiVersion"], body["kind"]), ObjectKey(meta.namespace, body["metadata"]["name"])
            kept.add((kind, key))
            children[kind[1], key.name] = None
            try:
                child = await self._sync_child(owner, kind, key, body, (initial or {}).get((kind[1], key.name)))
            except (BadRequest, Conflict, Forbidden, Invalid) as error:
                failures.append(ChildFailure(kind[1], key.name, "Refused", str(error)))
                continue
            if isinstance(child, ChildFailure):
                failures.append(child)
            else:
                children[kind[1], key.name] = child
        if None not in children.values():  # what replaces a child, or sends requests elsewhere, must be there first
            undeleted, refused = await self._prune(meta.uid, kept)
            children |= dict.fromkeys(undeleted)
            failures += refused
        outdated = meta.uid in self._outdated
        self._outdated.discard(meta.uid)
        if self._owners.store.get(ObjectKey(meta.namespace, meta.name)) is None:  # deleted during the sync
            self._applied.pop(meta.uid, None)
        return SyncResult(children, tuple(failures), outdated)

    def _forget_deleted_owner(self, change: ObjectChange[T]) -> None:
        if change.old is not None and (change.new is None or change.new.metadata.uid != change.old.metadata.uid):
            self._applied.pop(change.old.metadata.uid, None)

    def needs_reconcile(self, resource: Resource[Any], change: ObjectChange[Child]) -> bool:
        """A predicate for `ReconcileLoop.owns(when=...)`: false for the watch event of an apply of our own."""
        if change.new is None:
            return True
        version, flight = change.new.version, ((resource.api_version, resource.kind), change.key)
        if flight in self._in_flight:  # the watch may be faster than the response
            self._in_flight[flight] = version
            return False
        applied = self._applied_as(resource, change.new)
        return applied is None or version > applied.version

    def _on_child_change(self, resource: Resource[Any], change: ObjectChange[Child]) -> None:
        """Forget a child that was deleted, and the child as it was applied as soon as the cache has it."""
        old, new = change.old, change.new
        if new is not None:
            applied = self._applied_as(resource, new)
            if applied is not None and new.version >= applied.version:
                applied.newer = None
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._deleted.discard(old.metadata.uid)
            applied = self._applied_as(resource, old)
            if applied is not None and (applied.newer is None or applied.newer.metadata.uid == old.metadata.uid):
                kind = (resource.api_version, resource.kind)
                del self._applied[controlling_owner(old.metadata)][kind, change.key]

    def _applied_as(self, resource: Resource[Any], child: Child) -> _Applied | None:
        kind = (resource.api_version, resource.kind)
        return self._applied.get(controlling_owner(child.metadata), {}).get((kind, key_of(child)))

    def _known(self, owner: T, kind: _Kind, key: ObjectKey) -> Child | None:
        """The child from the cache, or as it was last applied or deleted if the cache is older."""
        informer = self._informers[kind]
        cached = informer.store.get(key)
        if cached is not None and cached.metadata.uid in self._deleted:
            cached = None
        applied = self._applied.get(owner.metadata.uid, {}).get((kind, key))
        newer = applied.newer if applied is not None else None
        if newer is None or (cached is not None and cached.version >= newer.version):
            return cached
        # A cache that is newer than the child and does not have it: the child was deleted since.
        seen = informer.state is InformerState.WATCHING and int(informer.version or 0) >= newer.version
        return cached if seen else newer

    async def _sync_child(
        self, owner: T, kind: _Kind, key: ObjectKey, body: UntypedObject, initial: UntypedObject | None
    ) -> Child | ChildFailure | None:
        """The child, applied if necessary; None while it has to wait for another change of an object of its name."""
        resource, declared = self._informers[kind].resource, digest(body)
        live, created = self._known(owner, kind, key), False
        if live is None:
            if initial is None:
                live, created = await self._create(owner, resource, key, body, declared)
            else:
                first = merged(body, initial)
                live, created = await self._create(owner, resource, key, first, digest(first))
        if live is None or live.metadata.deletionTimestamp is not None:
            return None
        if self._belongs_to_namesake(live, owner):
            await self._delete_of_namesake(resource, live, owner)
            return None
        if controlling_owner(live.metadata) != owner.metadata.uid:
            message = (
                f"{kind[1]} {key.name} already exists and is not controlled by "
                f"{self._owners.resource.kind} {owner.metadata.name}"
            )
            return ChildFailure(kind[1], key.name, "NameTaken", message)
        applied_children = self._applied.setdefault(owner.metadata.uid, {})
        applied = applied_children.get((kind, key))
        if not created and self._is_as_declared(live, body, declared, applied):
            applied_children[kind, key] = applied or _Applied(declared, content(live), live.version)
            return live
        new: Child | None = live
        if initial is not None and (created or await self._owns(resource, key, initial)):
            new = await self._hand_over(resource, live, initial)
        if new is not None and (not created or initial is not None):
            new = await self._apply_unless_stale(owner, resource, key, body, declared, new)
        if new is not None:
            cached = self._informers[kind].store.get(key)
            newer = new if cached is None or cached.version < new.version else None
            applied_children[kind, key] = _Applied(declared, content(new), new.version, newer)
        return new

    def _belongs_to_namesake(self, live: Child, owner: T) -> bool:
        """Whether the object is the child of an earlier owner, or a later one, of the same kind and name."""
        return any(
            reference.controller
            and reference.uid != owner.metadata.uid
            and (reference.kind, reference.name) == (self._owners.resource.kind, owner.metadata.name)
            for reference in live.metadata.ownerReferences
        )

    async def _delete_of_namesake(self, resource: Resource[Child], live: Child, owner: T) -> None:
        """Delete the child of an earlier owner, instead of waiting for the garbage collector, which may take long."""
        current = await self._client.get(
            self._owners.resource, ObjectKey(owner.metadata.namespace, owner.metadata.name)
        )
        if current.metadata.uid == owner.metadata.uid:  # else the owner that we know is the earlier one
            with suppress(Conflict, NotFound):
                await self._client.delete(resource, key_of(live), uid=live.metadata.uid)

    def _is_as_declared(self, live: Child, body: UntypedObject, declared: str, applied: _Applied | None) -> bool:
        """Whether this declaration was the last one applied, and its fields still have the declared values.

        The server may have stored another form of a value, such as 1Gi for 1024Mi: then the child is applied again
        when another of its fields has changed, to be sure.
        """
        if declared != (live.metadata.annotations.get(DECLARATION) if applied is None else applied.declared):
            return False
        if applied is not None and applied.content == content(live):
            return True
        if live_fields(live, body) != {**declared_fields(body), "managed": self._field_manager}:
            return False
        if applied is not None:
            applied.content = content(live)
        return True

    async def _create(
        self, owner: T, resource: Resource[Child], key: ObjectKey, body: UntypedObject, declared: str
    ) -> tuple[Child | None, bool]:
        """Create a child, if no object has its name; else read that object, which the cache does not have.

        It is too new for the cache, not managed by this process, or without its label.
        """
        try:
            return await self._apply(owner, resource, key, body, declared), True
        except Conflict:
            return await self._find(resource, key), False

    async def _apply_unless_stale(
        self, owner: T, resource: Resource[Child], key: ObjectKey, body: UntypedObject, declared: str, live: Child
    ) -> Child | None:
        """Apply the child, unless another process has applied another declaration since `live` was read.

        A former leader may be stopped in the middle of a sync and continue while its successor works.
        """
        uid, known = live.metadata.uid, {live.metadata.annotations.get(DECLARATION), declared}
        for _ in range(CONFLICT_TRIES):
            try:
                return await self._apply(owner, resource, key, body, declared, live)
            except Conflict:
                found = await self._find(resource, key)
            if found is None or found.metadata.uid != uid or found.metadata.annotations.get(DECLARATION) not in known:
                return None
            live = found
        return None

    async def _find(self, resource: Resource[Child], key: ObjectKey) -> Child | None:
        """Read an object that the cache does not have, or has in an older version."""
        try:
            return await self._client.get(resource, key)
        except NotFound:
            return None

    async def _apply(
        self,
        owner: T,
        resource: Resource[Child],
        key: ObjectKey,
        body: UntypedObject,
        declared: str,
        live: Child | None = None,
    ) -> Child:
        """Apply the child to the version that is known, or create it. Raises Conflict if it has changed or exists."""
        reference = owner_reference(self._owners.resource, owner.metadata.name, owner.metadata.uid)
        meta = {**body["metadata"], "namespace": key.namespace, "ownerReferences": [reference]}
        meta["labels"] = {**meta.get("labels", {}), MANAGED_BY: self._field_manager}
        meta["annotations"] = {**meta.get("annotations", {}), DECLARATION: declared}
        if live is not None:
            meta |= {"uid": live.metadata.uid, "resourceVersion": live.metadata.resourceVersion}
        else:  # no object has this version: the server creates one with it, but does not change one
            meta["resourceVersion"] = "1"
        flight, seen = ((resource.api_version, resource.kind), key), 0
        self._in_flight[flight] = 0
        try:
            child = await self._client.apply(
                resource, key, {**body, "metadata": meta}, manager=self._field_manager, force=live is not None
            )
        finally:
            seen = self._in_flight.pop(flight)
        if seen > child.version:
            self._outdated.add(owner.metadata.uid)
        return child

    async def _owns(self, resource: Resource[Child], key: ObjectKey, fields: UntypedObject) -> bool:
        """Whether the last declaration that was applied, perhaps by an earlier process, has one of the fields."""
        view = await self._client.get(resource.decoded_as(_ManagedView), key)
        return any(
            entry.manager == self._field_manager and entry.operation == "Apply" and manages(entry.fieldsV1, fields)
            for entry in view.metadata.managedFields
        )

    async def _hand_over(self, resource: Resource[Child], live: Child, fields: UntypedObject) -> Child | None:
        """Apply the live values of the fields with another manager; None if the child keeps changing meanwhile."""
        key, uid = key_of(live), live.metadata.uid
        for _ in range(CONFLICT_TRIES):
            unchanged = {"name": key.name, "uid": uid, "resourceVersion": live.metadata.resourceVersion}
            values = project({name: live[name] for name in fields}, fields)
            body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": unchanged, **values}
            try:
                return await self._client.apply(
                    resource, key, body, manager=f"{self._field_manager}-hand-over", force=True
                )
            except Conflict:
                live = await self._client.get(resource, key)
        return None

    async def _prune(
        self, owner_uid: str, kept: set[tuple[_Kind, ObjectKey]]
    ) -> tuple[list[ChildName], list[ChildFailure]]:
        """Delete the other children; return those that could not be deleted yet, and why if the server rejects it."""
        undeleted: list[ChildName] = []
        failures: list[ChildFailure] = []
        for kind, informer in self._informers.items():
            known = {key_of(child): child for child in informer.store.by(BY_OWNER, owner_uid)}
            known |= {  # applied, but not in the cache yet
                key: applied.newer
                for (of_kind, key), applied in self._applied.get(owner_uid, {}).items()
                if of_kind == kind and applied.newer is not None
            }
            for key, child in known.items():
                uid = child.metadata.uid
                if (kind, key) in kept or child.metadata.deletionTimestamp is not None or uid in self._deleted:
                    continue
                try:
                    with suppress(NotFound):
                        await self._client.delete(informer.resource, key, uid=uid)
                except Conflict:  # replaced, which the cache will show, or an obstacle of which no event may tell
                    undeleted.append((kind[1], key.name))
                    continue
                except (BadRequest, Forbidden, Invalid) as error:
                    undeleted.append((kind[1], key.name))
                    failures.append(ChildFailure(kind[1], key.name, "Refused", f"cannot be deleted: {error}"))
                    continue
                self._applied.get(owner_uid, {}).pop((kind, key), None)
                cached = informer.store.get(key)
                if cached is not None and cached.metadata.uid == uid:
                    self._deleted.add(uid)
        return undeleted, failures
