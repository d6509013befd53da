"""What the controller may do, and what those who call it need."""

from vmafx.api.meta import GROUP
from vmafx.api.rbac import EVENT_PERMISSIONS, READ, Permission

CONTROLLER = "vmafx-controller"
SESSION_SECRET = "vmafx-controller-session"  # noqa: S105 - its name

PERMISSIONS = (
    Permission(group=GROUP, resources=("vmafxjobs",), verbs=(*READ, "create", "patch")),
    Permission(group=GROUP, resources=("vmafxnodes",), verbs=(*READ, "create")),
    Permission(group=GROUP, resources=("vmafxjobs/status", "vmafxnodes/status"), verbs=("patch",)),
    # Whether a namespace that a caller names exists; nothing is refused where this is not granted.
    Permission(group="", resources=("namespaces",), verbs=("get",)),
    # Whose token this is, and what they may do.
    Permission(group="authentication.k8s.io", resources=("tokenreviews",), verbs=("create",)),
    Permission(group="authorization.k8s.io", resources=("subjectaccessreviews",), verbs=("create",)),
    *EVENT_PERMISSIONS,
)
# The key that session tokens are signed with. A create cannot be limited by name: the name comes with the object.
SESSION_KEY = (
    Permission(group="", resources=("secrets",), verbs=("create",)),
    Permission(group="", resources=("secrets",), verbs=("get",), names=(SESSION_SECRET,)),
)
# To be bound to whoever calls. The controller asks whether the caller has these; an agent's can be narrowed to its own
# node by resourceNames.
AGENT = (Permission(group=GROUP, resources=("vmafxnodes/status",), verbs=("patch",)),)
CLIENT = (Permission(group=GROUP, resources=("vmafxjobs",), verbs=(*READ, "create", "patch")),)
