"""VmafxJob as a kind of the operator."""

from vmafx.api import VmafxJob
from vmafx.api.meta import GROUP
from vmafx.api.roles import READ, Permission
from vmafx.jobs.reasons import REASONS
from vmafx.operator.context import Context
from vmafx.operator.job.reconciler import JobReconciler
from vmafx.operator.job.settings import JobSettings
from vmafx.operator.kind import Kind

# Place jobs, run them as Pods, delete those whose time is up.
PERMISSIONS = (
    Permission(group=GROUP, resources=("vmafxjobs",), verbs=(*READ, "delete")),
    Permission(group=GROUP, resources=("vmafxjobs/status", "vmafxnodes/status"), verbs=("patch",)),
    # Pods are owned by their job, and a blocking owner reference needs this.
    Permission(group=GROUP, resources=("vmafxjobs/finalizers",), verbs=("update",)),
    Permission(group="", resources=("pods",), verbs=(*READ, "create", "delete")),
)


def set_up(context: Context, settings: JobSettings) -> None:
    reconciler = JobReconciler(context, settings)
    context.manager.add_informer(reconciler.pods)
    context.manager.add_controller(reconciler.controller)
    context.manager.while_leading(reconciler.lead)


JOB = Kind(model=VmafxJob, settings=JobSettings, permissions=PERMISSIONS, reasons=REASONS, set_up=set_up)
