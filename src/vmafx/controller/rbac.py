"""The permissions of the controller, and those that its callers need."""

from vmafx.api.meta import GROUP
from vmafx.api.rbac import EVENT_PERMISSIONS, READ, Permission
from vmafx.jobs.sample_keys import READ_SAMPLE_KEY

CONTROLLER = "vmafx-controller"
SESSION_SECRET = "vmafx-controller-session"  # noqa: S105 - its name

PERMISSIONS = (
    Permission(group=GROUP, resources=("vmafxjobs",), verbs=(*READ, "create", "patch")),
    Permission(group=GROUP, resources=("vmafxnodes",), verbs=(*READ, "create")),
    Permission(group=GROUP, resources=("vmafxjobs/status", "vmafxnodes/status"), verbs=("patch",)),
    # To report a missing namespace; optional.
    Permission(group="", resources=("namespaces",), verbs=("get",)),
    # To authenticate and authorize callers.
    Permission(group="authentication.k8s.io", resources=("tokenreviews",), verbs=("create",)),
    Permission(group="authorization.k8s.io", resources=("subjectaccessreviews",), verbs=("create",)),
    # To forward samples to trainers.
    Permission(group=GROUP, resources=("vmafxmodeltrainings",), verbs=READ),
    READ_SAMPLE_KEY,
    *EVENT_PERMISSIONS,
)
# The signing key of session tokens. RBAC cannot restrict create by name.
SESSION_KEY = (
    Permission(group="", resources=("secrets",), verbs=("create",)),
    Permission(group="", resources=("secrets",), verbs=("get", "patch"), names=(SESSION_SECRET,)),
)
# Roles to bind to callers, checked by SubjectAccessReview. An agent's can be restricted to its own node by
# resourceNames. It does not include `create vmafxnodes`, without which an agent cannot register a node that does not
# exist: bound without resourceNames, that would let agents create nodes with any podTemplate.
AGENT = (Permission(group=GROUP, resources=("vmafxnodes/status",), verbs=("patch",)),)
CLIENT = (Permission(group=GROUP, resources=("vmafxjobs",), verbs=(*READ, "create", "patch")),)
