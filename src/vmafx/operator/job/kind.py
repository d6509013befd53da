"""VmafxJob as a kind of the operator: settings, permissions, condition reasons, set-up."""

from vmafx.api import VmafxJob
from vmafx.api.meta import GROUP, ConditionReason
from vmafx.api.rbac import READ, Permission
from vmafx.operator.context import OperatorContext
from vmafx.operator.job.reconciler import JobReconciler
from vmafx.operator.job.settings import JobSettings
from vmafx.operator.kind import Kind

REASONS = (
    ConditionReason("Scheduled", "True", "Placed", "It has a node, where it runs as a Pod."),
    ConditionReason("Scheduled", "True", "PlacedWithAgent", "It has a node, whose agent is to take it."),
    ConditionReason(
        "Scheduled", "False", "NoNodes", "The namespace has no VmafxNode, or none with the labels asked for."
    ),
    ConditionReason(
        "Scheduled",
        "False",
        "BackendUnavailable",
        "No node has the GPU, or none can use the credentials.",
    ),
    ConditionReason("Scheduled", "False", "NoHealthyNode", "The nodes that fit are unhealthy, draining or cordoned."),
    ConditionReason("Scheduled", "False", "NoAgent", "The nodes that fit wait for their agent."),
    ConditionReason("Scheduled", "False", "InsufficientCapacity", "All slots of the nodes that fit are taken."),
    ConditionReason("Scheduled", "False", "Suspended", "`suspend` is true."),
    ConditionReason(
        "Scheduled", "False", "Suspending", "`suspend` is true; another controller is to stop the work first."
    ),
    ConditionReason(
        "Scheduled", "False", "AwaitingScheduler", "The scheduler that `schedulerName` names is to place it."
    ),
    ConditionReason("Scheduled", "False", "Retrying", "An attempt ended without a result; the next one follows."),
    ConditionReason("Complete", "True", "Scored", "The score is there."),
    ConditionReason(
        "Failed", "True", "BadInput", "A clip, the model or an option is wrong; `message` says which and why."
    ),
    ConditionReason("Failed", "True", "RetriesExhausted", "It failed once more than `retryLimit` allows."),
    ConditionReason("Failed", "True", "DeadlineExceeded", "It was not done within `activeDeadlineSeconds`."),
    ConditionReason("Failed", "True", "Cancelled", "`cancel` was set."),
    ConditionReason("Failed", "True", "ExternalFailure", "Another controller, which had it, says that it failed."),
)


# Place jobs, run them as Pods, delete those whose time is up.
PERMISSIONS = (
    Permission(group=GROUP, resources=("vmafxjobs",), verbs=(*READ, "delete")),
    Permission(group=GROUP, resources=("vmafxjobs/status", "vmafxnodes/status"), verbs=("patch",)),
    # Pods are owned by their job, and a blocking owner reference needs this.
    Permission(group=GROUP, resources=("vmafxjobs/finalizers",), verbs=("update",)),
    Permission(group="", resources=("pods",), verbs=(*READ, "create", "delete")),
)


def set_up(context: OperatorContext, settings: JobSettings) -> None:
    reconciler = JobReconciler(context, settings)
    context.manager.add_informer(reconciler.pods)
    context.manager.add_loop(reconciler.loop)
    context.manager.while_leading(reconciler.lead)


JOB = Kind(model=VmafxJob, settings=JobSettings, permissions=PERMISSIONS, reasons=REASONS, set_up=set_up)
