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

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

import msgspec

from vmafx.api.meta import ApiModel, OwnerReference
from vmafx.kube import Client, ObjectKey, Resource, key_of
from vmafx.kube.errors import BadRequest, Conflict, Forbidden, Invalid, NotFound
from vmafx.kube.resources import UntypedObject
from vmafx.runtime.informer import Informer, InformerState, OptionalInformer
from vmafx.runtime.store import ObjectChange

MANAGED_BY = "app.kubernetes.io/managed-by"
DECLARATION = "vmafx.dev/declaration"  # annotation of a child: the digest of its declaration
BY_OWNER = "owner"
CONFLICT_TRIES = 5  # the status of a child may change often
_Kind = tuple[str, str]  # apiVersion and kind
ChildName = tuple[str, str]  # kind and name


class ChildMeta(ApiModel):
    """The fields of metav1.ObjectMeta that the cache keeps."""

    name: str
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""
    generation: int = 0
    deletionTimestamp: datetime | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    ownerReferences: tuple[OwnerReference, ...] = ()


class Child(msgspec.Struct, frozen=True):
    """An object of any kind, as the cache keeps it: every field that a declaration may set, and its status.

    The fields are kept as JSON, because as dictionaries they would take several times the memory: `child["spec"]`
    decodes one.
    """

    metadata: ChildMeta
    spec: msgspec.Raw = msgspec.Raw()
    data: msgspec.Raw = msgspec.Raw()
    binaryData: msgspec.Raw = msgspec.Raw()
    immutable: msgspec.Raw = msgspec.Raw()
    type: msgspec.Raw = msgspec.Raw()
    rules: msgspec.Raw = msgspec.Raw()
    roleRef: msgspec.Raw = msgspec.Raw()
    subjects: msgspec.Raw = msgspec.Raw()
    automountServiceAccountToken: msgspec.Raw = msgspec.Raw()
    status: msgspec.Raw = msgspec.Raw()

    def __post_init__(self) -> None:
        for name in self.__struct_fields__[1:]:
            if raw := getattr(self, name):  # a view of the response, which would keep all of it in memory
                msgspec.structs.force_setattr(self, name, raw.copy())

    def __getitem__(self, field: str) -> Any:
        """The value of a field; None if the object does not have it."""
        raw = getattr(self, field)
        return msgspec.json.decode(raw) if raw else None


class _OwnerMeta(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def deletionTimestamp(self) -> datetime | None: ...  # noqa: N802 - its name on the wire


class _Owned(Protocol):
    @property
    def ownerReferences(self) -> tuple[OwnerReference, ...]: ...  # noqa: N802 - its name on the wire


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


def controlling_owner(meta: _Owned) -> str:
    """The uid of the owner that controls the object, or an empty string."""
    return next((reference.uid for reference in meta.ownerReferences if reference.controller), "")


def child_informer(client: Client, resource: Resource[Any], namespace: str, field_manager: str) -> Informer[Child]:
    """The cache of one kind of children: all objects managed by `field_manager`, indexed by owner."""
    return Informer(client, resource.decoded_as(Child), namespace=namespace, **_child_cache(field_manager))


def optional_child_informer(
    client: Client, resource: Resource[Any], namespace: str, field_manager: str
) -> OptionalInformer[Child]:
    """The same, for a kind that the server may not have."""
    return OptionalInformer(client, resource.decoded_as(Child), namespace=namespace, **_child_cache(field_manager))


def _child_cache(field_manager: str) -> dict[str, Any]:
    indexes = {BY_OWNER: lambda child: (controlling_owner(child.metadata),)}
    return {"labels": f"{MANAGED_BY}={field_manager}", "indexes": indexes}


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
            _check_fields(body)
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
            for name in await self._prune(meta.uid, kept):
                children[name] = None
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
        version, flight = _version(change.new), ((resource.api_version, resource.kind), change.key)
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
            if applied is not None and _version(new) >= applied.version:
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
        if newer is None or (cached is not None and _version(cached) >= _version(newer)):
            return cached
        # A cache that is newer than the child and does not have it: the child was deleted since.
        seen = informer.state is InformerState.WATCHING and int(informer.version or 0) >= _version(newer)
        return cached if seen else newer

    async def _sync_child(
        self, owner: T, kind: _Kind, key: ObjectKey, body: UntypedObject, initial: UntypedObject | None
    ) -> Child | ChildFailure | None:
        """The child, applied if necessary; None while it has to wait for another change of an object of its name."""
        resource, declared = self._informers[kind].resource, _digest(body)
        live, created = self._known(owner, kind, key), False
        if live is None:
            if initial is None:
                live, created = await self._create(owner, resource, key, body, declared)
            else:
                first = _merged(body, initial)
                live, created = await self._create(owner, resource, key, first, _digest(first))
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
            applied_children[kind, key] = applied or _Applied(declared, _content(live), _version(live))
            return live
        new: Child | None = live
        if initial is not None and (created or await self._owns(resource, key, initial)):
            new = await self._hand_over(resource, live, initial)
        if new is not None and (not created or initial is not None):
            new = await self._apply_unless_stale(owner, resource, key, body, declared, new)
        if new is not None:
            cached = self._informers[kind].store.get(key)
            newer = new if cached is None or _version(cached) < _version(new) else None
            applied_children[kind, key] = _Applied(declared, _content(new), _version(new), newer)
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
        if applied is not None and applied.content == _content(live):
            return True
        if _live_fields(live, body) != {**_declared_fields(body), "managed": self._field_manager}:
            return False
        if applied is not None:
            applied.content = _content(live)
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
        if seen > _version(child):
            self._outdated.add(owner.metadata.uid)
        return child

    async def _owns(self, resource: Resource[Child], key: ObjectKey, fields: UntypedObject) -> bool:
        """Whether the last declaration that was applied, perhaps by an earlier process, has one of the fields."""
        view = await self._client.get(resource.decoded_as(_ManagedView), key)
        return any(
            entry.manager == self._field_manager and entry.operation == "Apply" and _manages(entry.fieldsV1, fields)
            for entry in view.metadata.managedFields
        )

    async def _hand_over(self, resource: Resource[Child], live: Child, fields: UntypedObject) -> Child | None:
        """Apply the live values of the fields with another manager; None if the child keeps changing meanwhile."""
        key, uid = key_of(live), live.metadata.uid
        for _ in range(CONFLICT_TRIES):
            unchanged = {"name": key.name, "uid": uid, "resourceVersion": live.metadata.resourceVersion}
            values = _project({name: live[name] for name in fields}, fields)
            body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": unchanged, **values}
            try:
                return await self._client.apply(
                    resource, key, body, manager=f"{self._field_manager}-hand-over", force=True
                )
            except Conflict:
                live = await self._client.get(resource, key)
        return None

    async def _prune(self, owner_uid: str, kept: set[tuple[_Kind, ObjectKey]]) -> list[ChildName]:
        """Delete the other children; return those that could not be deleted yet."""
        refused: list[ChildName] = []
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
                    refused.append((kind[1], key.name))
                    continue
                self._applied.get(owner_uid, {}).pop((kind, key), None)
                cached = informer.store.get(key)
                if cached is not None and cached.metadata.uid == uid:
                    self._deleted.add(uid)
        return refused


_WATCHED_FIELDS = frozenset({"apiVersion", "kind", *Child.__struct_fields__})


def _check_fields(body: UntypedObject) -> None:
    if unwatched := body.keys() - _WATCHED_FIELDS:
        raise TypeError(f"changes to {', '.join(sorted(unwatched))} of a child are not watched; add it to Child")


def _digest(body: UntypedObject) -> str:
    """A digest of a declaration. The order of its fields counts, since it is that of the code."""
    return hashlib.blake2b(msgspec.json.encode(body), digest_size=8).hexdigest()


def _merged(body: UntypedObject, other: UntypedObject) -> UntypedObject:
    both = {name: _merged(body[name], value) for name, value in other.items() if isinstance(body.get(name), dict)}
    return {**body, **other, **both}


def _manages(managed: Any, fields: UntypedObject) -> bool:
    """Whether a manager's fields (fieldsV1) include one of `fields`."""
    return any(
        f"f:{name}" in managed and (not isinstance(value, dict) or _manages(managed[f"f:{name}"], value))
        for name, value in fields.items()
    )


def _declared_fields(body: UntypedObject) -> UntypedObject:
    """The declared fields, without those that identify the object."""
    meta = body["metadata"]
    fields = {name: value for name, value in body.items() if name not in {"apiVersion", "kind", "metadata"}}
    fields["metadata"] = {name: meta[name] for name in ("labels", "annotations") if name in meta}
    return fields


def _live_fields(live: Child, body: UntypedObject) -> UntypedObject:
    """The values that a live object has for the declared fields, and its managed-by label."""
    declared = _declared_fields(body)
    values = {name: live[name] for name in declared if name != "metadata"}
    values["metadata"] = {"labels": live.metadata.labels, "annotations": live.metadata.annotations}
    return {**_project(values, declared), "managed": live.metadata.labels.get(MANAGED_BY)}


def _content(live: Child) -> int:
    """A hash of everything in a child that a declaration may set."""
    meta = live.metadata
    fields = [bytes(getattr(live, name)) for name in live.__struct_fields__[1:-1]]  # without metadata and status
    return hash((*fields, *meta.labels.items(), *meta.annotations.items()))


def _version(child: Child) -> int:
    return int(child.metadata.resourceVersion or 0)


def _project(live: Any, declared: Any) -> Any:
    if isinstance(declared, dict) and isinstance(live, dict):
        return {name: _project(live.get(name), value) for name, value in declared.items()}
    if isinstance(declared, list) and isinstance(live, list) and len(declared) == len(live):
        return [_project(live_item, item) for live_item, item in zip(live, declared, strict=True)]
    return live
