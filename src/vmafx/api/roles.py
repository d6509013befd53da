"""Permissions and roles, as Kubernetes has them: each part of vmafx declares its own beside what needs them."""

from typing import Any

from vmafx.api.meta import Model

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


# To tell of things in `kubectl describe`.
EVENTS = (Permission(group="events.k8s.io", resources=("events",), verbs=("create", "patch")),)


def role(
    kind: str, name: str, permissions: tuple[Permission, ...], aggregate_to: tuple[str, ...] = ()
) -> dict[str, Any]:
    """A Role or ClusterRole; the cluster's own roles of `aggregate_to` gain what it allows."""
    metadata: dict[str, Any] = {"name": name}
    if aggregate_to:
        metadata["labels"] = {f"rbac.authorization.k8s.io/aggregate-to-{role}": "true" for role in aggregate_to}
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": metadata,
        "rules": [permission.rule() for permission in permissions],
    }
