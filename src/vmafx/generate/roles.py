"""The RBAC roles of config/rbac/, from the permissions declared next to the code that needs them."""

from typing import Any

from vmafx.api.kinds import KINDS
from vmafx.api.meta import GROUP
from vmafx.api.rbac import EVENT_PERMISSIONS, READ, WRITE, Permission
from vmafx.controller import rbac as controller
from vmafx.operator import kinds as operator
from vmafx.operator.kinds import RECONCILED_KINDS as RECONCILED

Role = dict[str, Any]


def operator_roles() -> list[Role]:
    """The operator's ClusterRole, and the Role for leader election in its own namespace."""
    permissions = dict.fromkeys(permission for kind in RECONCILED for permission in kind.permissions)
    return [
        role("ClusterRole", operator.OPERATOR_NAME, (*permissions, *EVENT_PERMISSIONS)),
        role("Role", f"{operator.OPERATOR_NAME}-leader-election", operator.LEADER_ELECTION_PERMISSIONS),
    ]


def people_roles() -> list[Role]:
    """ClusterRoles that are aggregated to the built-in view, edit and admin roles."""
    permissions = people_permissions()
    return [
        role("ClusterRole", "vmafx-view", permissions["view"], aggregate_to=("view", "edit", "admin")),
        role("ClusterRole", "vmafx-edit", permissions["edit"], aggregate_to=("edit", "admin")),
    ]


def people_permissions() -> dict[str, tuple[Permission, ...]]:
    """The permissions of people who may view, and of those who may edit too.

    Edit does not include VmafxNode: its podTemplate controls Pods, which is for administrators.
    """
    plurals = tuple(kind.names.plural for kind in KINDS)
    editable = tuple(name for name in plurals if name != "vmafxnodes")
    scalable = tuple(f"{kind.names.plural}/scale" for kind in KINDS if kind.names.scale)
    statuses = tuple(f"{name}/status" for name in plurals)
    view = (Permission(group=GROUP, resources=(*plurals, *statuses, *scalable), verbs=READ),)
    edit = (
        Permission(group=GROUP, resources=editable, verbs=WRITE),
        Permission(group=GROUP, resources=scalable, verbs=("patch", "update")),
    )
    return {"view": view, "edit": edit}


def controller_roles() -> list[Role]:
    """The controller's ClusterRole, and the Role for its session key in its own namespace."""
    return [
        role("ClusterRole", controller.CONTROLLER, controller.PERMISSIONS),
        role("Role", f"{controller.CONTROLLER}-session", controller.SESSION_KEY),
    ]


def caller_roles() -> list[Role]:
    """ClusterRoles to bind to callers of the controller: agents and clients."""
    return [
        role("ClusterRole", "vmafx-agent", controller.AGENT),
        role("ClusterRole", "vmafx-client", controller.CLIENT),
    ]


def role(kind: str, name: str, permissions: tuple[Permission, ...], aggregate_to: tuple[str, ...] = ()) -> Role:
    """A Role or ClusterRole; `aggregate_to` names the built-in roles that it is aggregated to."""
    metadata: dict[str, Any] = {"name": name}
    if aggregate_to:
        metadata["labels"] = {f"rbac.authorization.k8s.io/aggregate-to-{role}": "true" for role in aggregate_to}
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": metadata,
        "rules": [_rule(permission) for permission in permissions],
    }


def _rule(permission: Permission) -> dict[str, Any]:
    rule: dict[str, Any] = {
        "apiGroups": [permission.group],
        "resources": list(permission.resources),
        "verbs": list(permission.verbs),
    }
    return {**rule, "resourceNames": list(permission.names)} if permission.names else rule
