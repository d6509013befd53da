"""VmafxNode as a kind of the operator: permissions, condition reasons, set-up."""

from vmafx.api.kinds import VmafxNode
from vmafx.api.meta import GROUP, ConditionReason
from vmafx.api.rbac import READ, Permission
from vmafx.operator.context import OperatorContext
from vmafx.operator.kind import Kind
from vmafx.operator.node.reconciler import NodeReconciler
from vmafx.operator.node.settings import NodeSettings

# Write the health of nodes, delete nodes of lost agents.
PERMISSIONS = (
    Permission(group=GROUP, resources=("vmafxnodes",), verbs=(*READ, "delete")),
    Permission(group=GROUP, resources=("vmafxnodes/status",), verbs=("patch",)),
)
REASONS = (
    ConditionReason(
        "Ready",
        "True",
        "Healthy",
        "The controller answers, and the agent, if any, has sent a heartbeat within a minute.",
    ),
    ConditionReason(
        "Ready", "False", "Draining", "The agent is shutting down: it finishes its jobs and takes no new ones."
    ),
    ConditionReason(
        "Ready",
        "False",
        "ControllerUnreachable",
        "The health check of the namespace's controller failed; `message` has the error.",
    ),
    ConditionReason("Ready", "False", "HeartbeatStale", "The agent has sent no heartbeat for a minute."),
    ConditionReason(
        "Ready",
        "False",
        "OutageSuspected",
        "The agent and most others of the namespace that have jobs are silent; their jobs stay for up to five minutes.",
    ),
    ConditionReason(
        "Ready",
        "False",
        "AgentLost",
        "The agent has sent no heartbeat although the controller answers; its jobs move to other nodes.",
    ),
)


def set_up(context: OperatorContext, settings: NodeSettings) -> None:
    reconciler = NodeReconciler(context, settings)
    context.manager.add_loop(reconciler.loop)
    context.manager.while_leading(reconciler.prober.run)


NODE = Kind(model=VmafxNode, settings=NodeSettings, permissions=PERMISSIONS, reasons=REASONS, set_up=set_up)
