"""ZerfooInferenceService as a kind of the operator: permissions, condition reasons, set-up."""

from vmafx.api import ZerfooInferenceService
from vmafx.api.meta import GROUP, ConditionReason
from vmafx.api.rbac import READ, Permission
from vmafx.operator.context import OperatorContext
from vmafx.operator.inference.reconciler import InferenceReconciler
from vmafx.operator.inference.settings import InferenceSettings
from vmafx.operator.kind import Kind

APPLY = (*READ, "create", "patch", "delete")

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
    Permission(group="", resources=("nodes",), verbs=READ),
)
_OTHER_REASONS = (
    ConditionReason("Available", "True", "ReplicasReady", "Requests are answered: a replica that gets them is ready."),
    ConditionReason("Available", "False", "NoReplicaReady", "No replica that gets requests is ready."),
    ConditionReason("Progressing", "True", "RollingOut", "Replicas are being started, updated or stopped."),
    ConditionReason(
        "Progressing", "True", "Promoting", "The primary gets the canary's model; the canary serves until it has it."
    ),
    ConditionReason(
        "Progressing", "True", "RetiringCanary", "The gateway may still send requests to the removed canary."
    ),
    ConditionReason("Progressing", "True", "Applying", "Not all children are applied yet."),
    ConditionReason("Progressing", "False", "Complete", "All replicas are up to date and ready."),
    ConditionReason(
        "Progressing", "False", "RolloutStuck", "A Deployment makes no progress; `message` has its reason."
    ),
    ConditionReason("Degraded", "False", "AsExpected", "Nothing needs attention."),
    ConditionReason("Degraded", "True", "NoImage", "Neither the service nor the operator names a serving image."),
    ConditionReason("Degraded", "True", "NameTaken", "A child cannot be created: an object of its name exists."),
    ConditionReason("Degraded", "True", "Refused", "The API server refuses a child; `message` has its reason."),
    ConditionReason("Degraded", "True", "RolloutStuck", "A Deployment makes no progress; `message` has its reason."),
    ConditionReason("Degraded", "True", "CannotScale", "Autoscaling needs `resources.cpu`."),
    ConditionReason("Degraded", "True", "NoMatchingNode", "No Kubernetes node has the GPU that each replica needs."),
    ConditionReason("Schedulable", "True", "NodeFound", "A Kubernetes node has the GPU that each replica needs."),
    ConditionReason("Schedulable", "False", "NoMatchingNode", "No Kubernetes node has that GPU."),
    ConditionReason("Schedulable", "Unknown", "NodesForbidden", "The operator may not list nodes, so it cannot tell."),
    ConditionReason("CanaryHonoured", "True", "Honoured", "The canary receives its weight, within 5 points."),
    ConditionReason(
        "CanaryHonoured", "False", "CanaryNotReady", "The canary gets its weight once enough of its replicas are ready."
    ),
    ConditionReason(
        "CanaryHonoured", "False", "PrimaryNotReady", "Not all replicas of the primary are ready, so the split is off."
    ),
    ConditionReason(
        "CanaryHonoured", "False", "WeightMissed", "The numbers of replicas cannot make the split within 5 points."
    ),
    ConditionReason("CanaryHonoured", "False", "RoutePending", "The gateway has not accepted the route yet."),
    ConditionReason("CanaryHonoured", "False", "RouteNotAccepted", "The gateway refuses the route; see `message`."),
    ConditionReason("CanaryHonoured", "False", "StepsNotSupported", "`canary.steps` and `gates` are not acted on yet."),
)
_NOT_BLOCKING = {"CannotScale", "NoMatchingNode"}
# A service is not ready for the reason of another condition.
REASONS = (
    ConditionReason("Ready", "True", "Ready", "All replicas are up to date and ready."),
    *(
        ConditionReason("Ready", "False", other.reason, other.text)
        for other in _OTHER_REASONS
        if (other.condition, other.status) in {("Available", "False"), ("Progressing", "True"), ("Degraded", "True")}
        and other.reason not in _NOT_BLOCKING
    ),
    *_OTHER_REASONS,
)


def set_up(context: OperatorContext, settings: InferenceSettings) -> None:
    reconciler = InferenceReconciler(context, settings)
    context.manager.add_informer(reconciler.services)
    if reconciler.gateway is not None:
        context.manager.add_informer(reconciler.gateway.gateways)
    context.manager.add_loop(reconciler.loop)
    context.manager.while_leading(reconciler.nodes.run)


INFERENCE = Kind(
    model=ZerfooInferenceService, settings=InferenceSettings, permissions=PERMISSIONS, reasons=REASONS, set_up=set_up
)
