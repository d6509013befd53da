"""The permissions of `vmafx mcp --cluster`."""

from vmafx.api.meta import GROUP
from vmafx.api.rbac import Permission

PERMISSIONS = (
    Permission(group=GROUP, resources=("vmafxjobs",), verbs=("create", "get", "list", "patch")),
    Permission(group=GROUP, resources=("vmafxnodes",), verbs=("list",)),
)
