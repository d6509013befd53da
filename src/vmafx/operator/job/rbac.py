"""What the VmafxJob controller may do: place jobs, run them as Pods, delete those whose time is up."""

from vmafx.api.meta import GROUP
from vmafx.api.roles import READ, Permission

PERMISSIONS = (
    Permission(group=GROUP, resources=("vmafxjobs",), verbs=(*READ, "delete")),
    Permission(group=GROUP, resources=("vmafxjobs/status", "vmafxnodes/status"), verbs=("patch",)),
    # Pods are owned by their job, and a blocking owner reference needs this.
    Permission(group=GROUP, resources=("vmafxjobs/finalizers",), verbs=("update",)),
    Permission(group="", resources=("pods",), verbs=(*READ, "create", "delete")),
)
