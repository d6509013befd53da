"""Permissions in RBAC terms; each package declares its own beside the code that needs them."""

from vmafx.api.meta import ApiModel

READ = ("get", "list", "watch")
WRITE = ("create", "delete", "deletecollection", "patch", "update")


class Permission(ApiModel):
    """May do `verbs` to `resources` of `group`; with `names`, only to those."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()


# To tell of things in `kubectl describe`.
EVENT_PERMISSIONS = (Permission(group="events.k8s.io", resources=("events",), verbs=("create", "patch")),)
