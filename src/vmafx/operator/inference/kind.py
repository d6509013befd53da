"""ZerfooInferenceService as a kind of the operator: permissions, condition reasons, set-up."""

from vmafx.api.kinds import ZerfooInferenceService
from vmafx.api.meta import GROUP, ConditionReason
from vmafx.api.rbac import APPLY, READ, Permission
from vmafx.inference.status import NOT_BLOCKING
from vmafx.operator.context import OperatorContext
from vmafx.operator.inference.reconciler import InferenceReconciler
from vmafx.operator.inference.settings import InferenceSettings
from vmafx.operator.kind import Kind

# Apply the children of services, write their status; read the gateway, and the nodes to see whether one has a GPU.
PERMISSIONS = (
    Permission(group=GROUP, resources=("zerfooinferenceservices",), verbs=READ),
    Permission(group=GROUP, resources=("zerfooinferenceservices/status",), verbs=("patch",)),
    # Required for an owner reference with blockOwnerDeletion.
    Permission(group=GROUP, resources=("zerfooinferenceservices/finalizers",), verbs=("update",)),
    Permission(group="apps", resources=("deployments",), verbs=APPLY),
    Permission(group="", resources=("services",), verbs=APPLY),
    Permission(group="autoscaling", resources=("horizontalpodautoscalers",), verbs=APPLY),
    Permission(group="policy", resources=("poddisruptionbudgets",), verbs=APPLY),
    Permission(group="gateway.networking.k8s.io", resources=("httproutes",), verbs=APPLY),
    Permission(group="gateway.networking.k8s.io", resources=("gateways",), verbs=READ),
    Permission(group="discovery.k8s.io", resources=("endpointslices",), verbs=("list",)),
    Permission(group="", resources=("nodes",), verbs=READ),
)
_OTHER_REASONS = (
    ConditionReason("Available", "True", "ReplicasReady", "A replica that receives requests is ready."),
    ConditionReason("Available", "False", "NoReplicaReady", "No replica that receives requests is ready."),
    ConditionReason("Progressing", "True", "RollingOut", "Replicas are being started, updated or stopped."),
    ConditionReason(
        "Progressing", "True", "Promoting", "The canary serves until all replicas of the primary have its model."
    ),
    ConditionReason(
        "Progressing", "True", "RetiringCanary", "The gateway may still send requests to the removed canary."
    ),
    ConditionReason("Progressing", "True", "RoutePending", "The gateway has not accepted the route yet."),
    ConditionReason("Progressing", "True", "Applying", "Not all children are applied yet."),
    ConditionReason("Progressing", "False", "Complete", "All replicas are up to date and ready."),
    ConditionReason(
        "Progressing", "False", "RolloutStuck", "A Deployment makes no progress; `message` has its reason."
    ),
    ConditionReason("Degraded", "False", "AsExpected", "Nothing needs attention."),
    ConditionReason(
        "Degraded", "True", "NoEngine", "The default image has no engine for `gpuVendor`; nothing is changed."
    ),
    ConditionReason("Degraded", "True", "NameTaken", "A child cannot be created: another object already has its name."),
    ConditionReason("Degraded", "True", "Refused", "The API server rejects a child; `message` has its reason."),
    ConditionReason("Degraded", "True", "RolloutStuck", "A Deployment makes no progress; `message` has its reason."),
    ConditionReason("Degraded", "True", "RouteNotAccepted", "The gateway rejects the route; `message` has its reason."),
    ConditionReason(
        "Degraded",
        "True",
        "GatewayNotFound",
        "The Gateway of VMAFX_SERVING_GATEWAY, or the Gateway API, is missing.",
    ),
    ConditionReason(
        "Degraded", "True", "ScaledToZero", "A Deployment was scaled to 0, which turns its autoscaler off."
    ),
    ConditionReason("Degraded", "True", "CannotScale", "Autoscaling needs `resources.cpu`."),
    ConditionReason("Degraded", "True", "NoMatchingNode", "No Kubernetes node has the GPU that each replica needs."),
    ConditionReason("Schedulable", "True", "NodeFound", "A Kubernetes node has the GPU that each replica needs."),
    ConditionReason(
        "Schedulable", "False", "NoMatchingNode", "No Kubernetes node has the GPU that each replica needs."
    ),
    ConditionReason(
        "Schedulable", "Unknown", "NodesForbidden", "The operator is not allowed to list Kubernetes nodes."
    ),
    ConditionReason(
        "CanaryHonoured", "True", "Honoured", "The canary receives its weight, within 5 percentage points."
    ),
    ConditionReason(
        "CanaryHonoured", "False", "CanaryNotReady", "The canary receives its weight once its replicas are ready."
    ),
    ConditionReason(
        "CanaryHonoured",
        "False",
        "PrimaryNotReady",
        "Not all replicas of the primary are ready, so the canary receives more than its weight.",
    ),
    ConditionReason(
        "CanaryHonoured", "False", "WeightMissed", "No number of replicas gives the weight within 5 percentage points."
    ),
    ConditionReason("CanaryHonoured", "False", "RoutePending", "The gateway has not accepted the route yet."),
    ConditionReason(
        "CanaryHonoured", "False", "RouteNotAccepted", "The gateway rejects the route; `message` has its reason."
    ),
    ConditionReason(
        "CanaryHonoured", "False", "StepsNotSupported", "`canary.steps` and `canary.gates` are not supported yet."
    ),
)
# A service is not ready for the reason of another condition.
REASONS = (
    ConditionReason("Ready", "True", "Ready", "All replicas are up to date and ready."),
    *(
        ConditionReason("Ready", "False", other.reason, other.text)
        for other in _OTHER_REASONS
        if (other.condition, other.status) in {("Available", "False"), ("Progressing", "True"), ("Degraded", "True")}
        and other.reason not in NOT_BLOCKING
    ),
    *_OTHER_REASONS,
)


def set_up(context: OperatorContext, settings: InferenceSettings) -> None:
    reconciler = InferenceReconciler(context, settings)
    context.manager.add_informer(reconciler.services, fresh=True)
    if reconciler.gateway is not None:
        context.manager.add_informer(reconciler.gateway.gateways)
    context.manager.add_loop(reconciler.loop)
    context.manager.while_leading(reconciler.nodes.run)


INFERENCE = Kind(
    model=ZerfooInferenceService, settings=InferenceSettings, permissions=PERMISSIONS, reasons=REASONS, set_up=set_up
)
