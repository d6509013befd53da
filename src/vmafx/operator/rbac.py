"""What the operator may do, whichever kinds it reconciles."""

from vmafx.api.roles import Permission

OPERATOR = "vmafx-operator"
LEASE = "vmafx-operator.vmafx.dev"

LEADER_ELECTION = (
    Permission(group="coordination.k8s.io", resources=("leases",), verbs=("create",)),
    Permission(group="coordination.k8s.io", resources=("leases",), verbs=("get", "patch", "watch"), names=(LEASE,)),
)
