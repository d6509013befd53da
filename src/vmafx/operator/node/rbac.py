"""What the VmafxNode controller may do: judge health, and remove nodes whose agents are gone."""

from vmafx.api.meta import GROUP
from vmafx.api.roles import READ, Permission

PERMISSIONS = (
    Permission(group=GROUP, resources=("vmafxnodes",), verbs=(*READ, "delete")),
    Permission(group=GROUP, resources=("vmafxnodes/status",), verbs=("patch",)),
)
