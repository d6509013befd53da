"""The kinds that the operator reconciles, and the permissions it needs for leader election."""

from vmafx.api.rbac import Permission
from vmafx.operator.inference.kind import INFERENCE
from vmafx.operator.job.kind import JOB
from vmafx.operator.node.kind import NODE
from vmafx.operator.training.kind import TRAINING

OPERATOR_NAME = "vmafx-operator"
LEASE_NAME = "vmafx-operator.vmafx.dev"

LEADER_ELECTION_PERMISSIONS = (
    Permission(group="coordination.k8s.io", resources=("leases",), verbs=("create",)),
    Permission(
        group="coordination.k8s.io", resources=("leases",), verbs=("get", "patch", "watch"), names=(LEASE_NAME,)
    ),
)

RECONCILED_KINDS = (JOB, NODE, INFERENCE, TRAINING)
