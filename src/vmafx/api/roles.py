"""Permissions, as Kubernetes has them: each part of vmafx declares its own beside the code that needs them."""

from vmafx.api.meta import Model

READ = ("get", "list", "watch")
WRITE = ("create", "delete", "deletecollection", "patch", "update")


class Permission(Model):
    """May do `verbs` to `resources` of `group`; with `names`, only to those."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()


# To tell of things in `kubectl describe`.
EVENTS = (Permission(group="events.k8s.io", resources=("events",), verbs=("create", "patch")),)
