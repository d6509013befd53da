"""Compares the declaration of a child with the live object. Pure."""

import hashlib
from typing import Any

import msgspec

from vmafx.kube.resources import UntypedObject
from vmafx.runtime.child import MANAGED_BY, Child

_WATCHED_FIELDS = frozenset({"apiVersion", "kind", *Child.__struct_fields__})


def check_fields(body: UntypedObject) -> None:
    """Raise TypeError for a field that the cache does not keep, so that its drift would not be noticed."""
    if unwatched := body.keys() - _WATCHED_FIELDS:
        raise TypeError(f"changes to {', '.join(sorted(unwatched))} of a child are not watched; add it to Child")


def digest(body: UntypedObject) -> str:
    """A digest of a declaration. The order of its fields counts, since it is that of the code."""
    return hashlib.blake2b(msgspec.json.encode(body), digest_size=8).hexdigest()


def merged(body: UntypedObject, other: UntypedObject) -> UntypedObject:
    """`body` with the fields of `other`."""
    both = {name: merged(body[name], value) for name, value in other.items() if isinstance(body.get(name), dict)}
    return {**body, **other, **both}


def manages(managed: Any, fields: UntypedObject) -> bool:
    """Whether a manager's fields (fieldsV1) include one of `fields`."""
    return any(
        f"f:{name}" in managed and (not isinstance(value, dict) or manages(managed[f"f:{name}"], value))
        for name, value in fields.items()
    )


def declared_fields(body: UntypedObject) -> UntypedObject:
    """The declared fields, without those that identify the object."""
    meta = body["metadata"]
    fields = {name: value for name, value in body.items() if name not in {"apiVersion", "kind", "metadata"}}
    fields["metadata"] = {name: meta[name] for name in ("labels", "annotations") if name in meta}
    return fields


def live_fields(live: Child, body: UntypedObject) -> UntypedObject:
    """The values that a live object has for the declared fields, and its managed-by label."""
    declared = declared_fields(body)
    values = {name: live[name] for name in declared if name != "metadata"}
    values["metadata"] = {"labels": live.metadata.labels, "annotations": live.metadata.annotations}
    return {**project(values, declared), "managed": live.metadata.labels.get(MANAGED_BY)}


def content(live: Child) -> int:
    """A hash of everything in a child that a declaration may set."""
    meta = live.metadata
    fields = [bytes(getattr(live, name)) for name in live.__struct_fields__[1:-1]]  # without metadata and status
    return hash((*fields, *meta.labels.items(), *meta.annotations.items()))


def project(live: Any, declared: Any) -> Any:
    """The part of `live` that has the shape of `declared`."""
    if isinstance(declared, dict) and isinstance(live, dict):
        return {name: project(live.get(name), value) for name, value in declared.items()}
    if isinstance(declared, list) and isinstance(live, list) and len(declared) == len(live):
        return [project(live_item, item) for live_item, item in zip(live, declared, strict=True)]
    return live
