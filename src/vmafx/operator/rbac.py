"""Permissions: declared as rules beside each controller, gathered here into the roles of config/rbac/role.yaml."""

from typing import Any

from vmafx.api import KINDS
from vmafx.api.meta import GROUP, Model

OPERATOR = "vmafx-operator"
LEASE = "vmafx-operator.vmafx.dev"
READ = ("get", "list", "watch")
WRITE = ("create", "delete", "deletecollection", "patch", "update")


class Permission(Model):
    """May do `verbs` to `resources` of `group`; with `names`, only to those."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()

    def rule(self) -> dict[str, Any]:
        out: dict[str, Any] = {"apiGroups": [self.group], "resources": list(self.resources), "verbs": list(self.verbs)}
        return {**out, "resourceNames": list(self.names)} if self.names else out


# What the process itself needs, whichever controllers it runs.
EVENTS = (Permission(group="events.k8s.io", resources=("events",), verbs=("create", "patch")),)
LEADER_ELECTION = (
    Permission(group="coordination.k8s.io", resources=("leases",), verbs=("create",)),
    Permission(group="coordination.k8s.io", resources=("leases",), verbs=("get", "patch", "watch"), names=(LEASE,)),
)


def operator_role(permissions: tuple[Permission, ...]) -> dict[str, Any]:
    """What the operator may do in every namespace that it watches."""
    return _role("ClusterRole", OPERATOR, permissions)


def leader_role() -> dict[str, Any]:
    """What it may do in its own namespace only; apply it there."""
    return _role("Role", f"{OPERATOR}-leader-election", LEADER_ELECTION)


def people_roles() -> list[dict[str, Any]]:
    """What the cluster's own view, edit and admin roles gain.

    Edit leaves VmafxNode out: its podTemplate shapes Pods, which is for those who run the fleet.
    """
    everything = tuple(kind.names.plural for kind in KINDS)
    editable = tuple(name for name in everything if name != "vmafxnodes")
    scalable = tuple(f"{kind.names.plural}/scale" for kind in KINDS if kind.names.scale)
    seen = tuple(f"{name}/status" for name in everything)
    view = (Permission(group=GROUP, resources=(*everything, *seen, *scalable), verbs=READ),)
    edit = (
        Permission(group=GROUP, resources=editable, verbs=WRITE),
        Permission(group=GROUP, resources=scalable, verbs=("patch", "update")),
    )
    return [
        _role("ClusterRole", "vmafx-view", view, aggregate_to=("view", "edit", "admin")),
        _role("ClusterRole", "vmafx-edit", edit, aggregate_to=("edit", "admin")),
    ]


def _role(
    kind: str, name: str, permissions: tuple[Permission, ...], aggregate_to: tuple[str, ...] = ()
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name}
    if aggregate_to:
        metadata["labels"] = {f"rbac.authorization.k8s.io/aggregate-to-{role}": "true" for role in aggregate_to}
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": metadata,
        "rules": [permission.rule() for permission in permissions],
    }
