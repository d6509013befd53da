"""VmafxModelTraining as a kind of the operator: permissions, condition reasons, set-up."""

from vmafx.api.kinds import VmafxModelTraining
from vmafx.api.meta import GROUP, ConditionReason
from vmafx.api.rbac import APPLY, READ, Permission
from vmafx.jobs.sample_keys import CREATE_SAMPLE_KEY, READ_SAMPLE_KEY
from vmafx.operator.context import OperatorContext
from vmafx.operator.kind import Kind
from vmafx.operator.training.reconciler import TrainingReconciler
from vmafx.operator.training.settings import TrainingSettings

# Apply the children of trainings, create and change their volume claims, write their status. Labelled jobs and their
# nodes are read with the permissions of these kinds.
PERMISSIONS = (
    Permission(group=GROUP, resources=("vmafxmodeltrainings",), verbs=READ),
    Permission(group=GROUP, resources=("vmafxmodeltrainings/status",), verbs=("patch",)),
    # Required for an owner reference with blockOwnerDeletion.
    Permission(group=GROUP, resources=("vmafxmodeltrainings/finalizers",), verbs=("update",)),
    Permission(group="apps", resources=("deployments",), verbs=APPLY),
    Permission(group="", resources=("services",), verbs=APPLY),
    Permission(group="", resources=("serviceaccounts",), verbs=APPLY),
    # The operator never deletes a claim, but needs `delete` to set an owner reference: the API server allows that only
    # to those who may delete the object.
    Permission(group="", resources=("persistentvolumeclaims",), verbs=APPLY),
    READ_SAMPLE_KEY,
    *CREATE_SAMPLE_KEY,
)
REASONS = (
    ConditionReason("Ready", "True", "Training", "The trainer learns from the samples that arrive."),
    ConditionReason("Ready", "False", "Paused", "`paused` is true: samples are stored, but not used."),
    ConditionReason(
        "Ready", "False", "Starting", "The trainer is starting, or is being replaced after a change of the spec."
    ),
    ConditionReason(
        "Ready", "False", "TrainerUnreachable", "The trainer runs but does not answer; `message` has the error."
    ),
    ConditionReason("Ready", "False", "TrainerFailed", "The trainer cannot go on; `message` has its reason."),
    ConditionReason(
        "Ready", "False", "RolloutStuck", "The Deployment of the trainer makes no progress; `message` has its reason."
    ),
    ConditionReason(
        "Ready",
        "False",
        "NameTaken",
        "A child cannot be created: another object already has its name, such as a volume claim of someone else.",
    ),
    ConditionReason(
        "Ready",
        "False",
        "Refused",
        "The API server rejects a child, or a larger volume; `message` has its reason.",
    ),
    ConditionReason(
        "Ready", "False", "NoImage", "Neither VMAFX_TRAINER_IMAGE nor VMAFX_WORKER_IMAGE of the operator is set."
    ),
    ConditionReason("Stale", "True", "NoNewSamples", "No new samples for three checkpoint intervals."),
    ConditionReason("Stale", "False", "SamplesArriving", "New samples arrive."),
    ConditionReason("Stale", "False", "NoSamplesYet", "No samples received yet."),
    ConditionReason(
        "Diverged",
        "True",
        "RolledBack",
        "The loss rose or was not a number: the trainer went back to the latest version, with a lower learning rate.",
    ),
    ConditionReason("Diverged", "False", "AsExpected", "The loss does not rise."),
    ConditionReason("Published", "True", "Pushed", "The latest version of the model is in `outputRegistry`."),
    ConditionReason("Published", "False", "Pushing", "The latest version is not in `outputRegistry` yet."),
    ConditionReason(
        "Published",
        "False",
        "PushFailed",
        "The latest version could not be pushed; training continues, and the push is retried.",
    ),
    ConditionReason("Published", "False", "NoCheckpoint", "There is no version of the model yet."),
    ConditionReason("Published", "False", "NoRegistry", "`outputRegistry` is not set: versions stay on the volume."),
    ConditionReason(
        "Degraded",
        "True",
        "StorageProblem",
        "The trainer cannot store samples or versions, or its volume claim is being deleted; `message` has the error.",
    ),
    ConditionReason("Degraded", "False", "AsExpected", "The trainer can store samples and versions."),
)


def set_up(context: OperatorContext, settings: TrainingSettings) -> None:
    reconciler = TrainingReconciler(context, settings)
    context.manager.add_informer(reconciler.human_scores.jobs)
    context.manager.add_loop(reconciler.loop)
    context.manager.while_leading(reconciler.poller.run)
    context.manager.while_leading(reconciler.human_scores.run)


TRAINING = Kind(
    model=VmafxModelTraining, settings=TrainingSettings, permissions=PERMISSIONS, reasons=REASONS, set_up=set_up
)
