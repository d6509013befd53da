"""Permissions as RBAC rules; each package declares its own next to the code that needs them."""

from vmafx.api.meta import ApiModel

READ = ("get", "list", "watch")
APPLY = (*READ, "create", "patch", "delete")  # for the children of an owner
WRITE = ("create", "delete", "deletecollection", "patch", "update")


class Permission(ApiModel):
    """Allows `verbs` on `resources` of an API group; with `names`, only on these objects."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()


EVENT_PERMISSIONS = (Permission(group="events.k8s.io", resources=("events",), verbs=("create", "patch")),)
