"""Permissions: declared as rules beside each controller, gathered here into the roles of config/rbac/role.yaml."""

from typing import Any

from vmafx.api import KINDS
from vmafx.api.meta import GROUP
from vmafx.api.roles import READ, WRITE, Permission, role

OPERATOR = "vmafx-operator"
LEASE = "vmafx-operator.vmafx.dev"

# What the process itself needs, whichever controllers it runs.
LEADER_ELECTION = (
    Permission(group="coordination.k8s.io", resources=("leases",), verbs=("create",)),
    Permission(group="coordination.k8s.io", resources=("leases",), verbs=("get", "patch", "watch"), names=(LEASE,)),
)


def operator_role(permissions: tuple[Permission, ...]) -> dict[str, Any]:
    """What the operator may do in every namespace that it watches."""
    return role("ClusterRole", OPERATOR, permissions)


def leader_role() -> dict[str, Any]:
    """What it may do in its own namespace only; apply it there."""
    return role("Role", f"{OPERATOR}-leader-election", LEADER_ELECTION)


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
        role("ClusterRole", "vmafx-view", view, aggregate_to=("view", "edit", "admin")),
        role("ClusterRole", "vmafx-edit", edit, aggregate_to=("edit", "admin")),
    ]
