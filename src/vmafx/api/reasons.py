"""What the conditions of each kind say: every reason that a controller writes, and what it means."""

from typing import Literal

from vmafx.api.job import VmafxJob
from vmafx.api.meta import CustomObject, Model
from vmafx.api.node import VmafxNode


class Reason(Model):
    """A condition has this status for this reason."""

    condition: str
    status: Literal["True", "False"]
    reason: str
    text: str


# A kind that is not named here has no controller yet.
REASONS: dict[type[CustomObject], tuple[Reason, ...]] = {
    VmafxJob: (
        Reason("Scheduled", "True", "Placed", "It has a node, where it runs as a Pod."),
        Reason("Scheduled", "True", "PlacedWithAgent", "It has a node, whose agent is to take it."),
        Reason("Scheduled", "False", "NoNodes", "The namespace has no VmafxNode, or none with the labels asked for."),
        Reason(
            "Scheduled",
            "False",
            "BackendUnavailable",
            "No node has the GPU, or none can use the credentials.",
        ),
        Reason("Scheduled", "False", "NoHealthyNode", "The nodes that fit are unhealthy or cordoned."),
        Reason("Scheduled", "False", "NoAgent", "The nodes that fit wait for their agent."),
        Reason("Scheduled", "False", "InsufficientCapacity", "All slots of the nodes that fit are taken."),
        Reason("Scheduled", "False", "Suspended", "`suspend` is true."),
        Reason("Scheduled", "False", "Suspending", "`suspend` is true; another controller is to stop the work first."),
        Reason("Scheduled", "False", "AwaitingScheduler", "The scheduler that `schedulerName` names is to place it."),
        Reason("Scheduled", "False", "Retrying", "An attempt ended without a result; the next one follows."),
        Reason("Complete", "True", "Scored", "The score is there."),
        Reason("Failed", "True", "BadInput", "A clip, the model or an option is wrong; `message` says which and why."),
        Reason("Failed", "True", "RetriesExhausted", "It failed once more than `retryLimit` allows."),
        Reason("Failed", "True", "DeadlineExceeded", "It was not done within `activeDeadlineSeconds`."),
        Reason("Failed", "True", "Cancelled", "`cancel` was set."),
        Reason("Failed", "True", "ExternalFailure", "Another controller, which had it, says that it failed."),
    ),
    VmafxNode: (
        Reason("Ready", "True", "Healthy", "The controller answers, and the agent, if there is one, was heard."),
        Reason("Ready", "False", "ControllerUnreachable", "The namespace's controller does not answer."),
        Reason("Ready", "False", "HeartbeatStale", "The agent has not been heard for a minute."),
        Reason("Ready", "False", "AgentLost", "Nor is it the controller that hears nothing: its jobs go elsewhere."),
    ),
}
