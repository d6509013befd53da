"""A child as the cache keeps it, its owner, and the caches of children."""

from datetime import datetime
from typing import Any, Protocol

import msgspec

from vmafx.api.meta import ApiModel, OwnerReference
from vmafx.kube import Client, Resource
from vmafx.kube.resources import UntypedObject
from vmafx.runtime.informer import Informer, OptionalInformer

MANAGED_BY = "app.kubernetes.io/managed-by"
BY_OWNER = "owner"


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

    @property
    def version(self) -> int:
        return int(self.metadata.resourceVersion or 0)

    def __getitem__(self, field: str) -> Any:
        """The value of a field; None if the object does not have it."""
        raw = getattr(self, field)
        return msgspec.json.decode(raw) if raw else None


class _Owned(Protocol):
    @property
    def ownerReferences(self) -> tuple[OwnerReference, ...]: ...  # noqa: N802 - its name on the wire


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
