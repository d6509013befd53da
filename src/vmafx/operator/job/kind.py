"""VmafxJob as a kind of the operator: permissions, condition reasons, set-up."""

from vmafx.api.kinds import VmafxJob
from vmafx.api.meta import GROUP, ConditionReason
from vmafx.api.rbac import READ, Permission
from vmafx.jobs.sample_keys import READ_SAMPLE_KEY
from vmafx.operator.context import OperatorContext
from vmafx.operator.job.reconciler import JobReconciler
from vmafx.operator.job.settings import JobSettings
from vmafx.operator.kind import Kind

REASONS = (
    ConditionReason("Scheduled", "True", "Placed", "The job has a node and runs there as a Pod."),
    ConditionReason("Scheduled", "True", "PlacedWithAgent", "The job has a node, whose agent runs it."),
    ConditionReason(
        "Scheduled", "False", "NoNodes", "The namespace has no VmafxNode, or none that matches `nodeSelector`."
    ),
    ConditionReason(
        "Scheduled",
        "False",
        "BackendUnavailable",
        "No node has a GPU for `backend`, or none can use `credentialsSecretRef`.",
    ),
    ConditionReason("Scheduled", "False", "NoHealthyNode", "All nodes that fit are unhealthy, draining or cordoned."),
    ConditionReason("Scheduled", "False", "NoAgent", "No agent has registered for the nodes that fit."),
    ConditionReason("Scheduled", "False", "InsufficientCapacity", "All slots of the nodes that fit are taken."),
    ConditionReason("Scheduled", "False", "Suspended", "`suspend` is true."),
    ConditionReason(
        "Scheduled",
        "False",
        "Suspending",
        "`suspend` is true; an external controller has been asked to stop the job first.",
    ),
    ConditionReason(
        "Scheduled",
        "False",
        "AwaitingScheduler",
        "The job waits for the scheduler named by `schedulerName`, or for an external controller to start it.",
    ),
    ConditionReason(
        "Scheduled", "False", "Retrying", "An attempt ended without a result; the next one starts after a delay."
    ),
    ConditionReason("Complete", "True", "Scored", "The job has a score."),
    ConditionReason(
        "Failed", "True", "BadInput", "A clip, the model or an option is invalid; `message` says which and why."
    ),
    ConditionReason("Failed", "True", "RetriesExhausted", "More attempts failed than `retryLimit` allows."),
    ConditionReason(
        "Failed", "True", "DeadlineExceeded", "The job did not finish within `activeDeadlineSeconds` of its start."
    ),
    ConditionReason("Failed", "True", "Cancelled", "`cancel` was set, or an external controller cancelled the job."),
    ConditionReason(
        "Failed",
        "True",
        "ExternalFailure",
        "The external controller that ran the job reported a failure or an invalid score.",
    ),
)


# Place jobs, run them as Pods, delete finished jobs after their TTL, and let Pods push samples for trainings.
PERMISSIONS = (
    Permission(group=GROUP, resources=("vmafxjobs",), verbs=(*READ, "delete")),
    Permission(group=GROUP, resources=("vmafxjobs/status", "vmafxnodes/status"), verbs=("patch",)),
    # Required for a Pod's owner reference with blockOwnerDeletion.
    Permission(group=GROUP, resources=("vmafxjobs/finalizers",), verbs=("update",)),
    Permission(group="", resources=("pods",), verbs=(*READ, "create", "delete")),
    Permission(group=GROUP, resources=("vmafxmodeltrainings",), verbs=READ),
    READ_SAMPLE_KEY,
)


def set_up(context: OperatorContext, settings: JobSettings) -> None:
    reconciler = JobReconciler(context, settings)
    context.manager.add_informer(reconciler.pods)
    context.manager.add_loop(reconciler.loop)
    context.manager.while_leading(reconciler.lead)


JOB = Kind(model=VmafxJob, settings=JobSettings, permissions=PERMISSIONS, reasons=REASONS, set_up=set_up)
