"""What the conditions of a VmafxJob say: every reason that the operator or the controller writes, and what it means."""

from vmafx.api.reasons import Reason

REASONS = (
    Reason("Scheduled", "True", "Placed", "It has a node, where it runs as a Pod."),
    Reason("Scheduled", "True", "PlacedWithAgent", "It has a node, whose agent is to take it."),
    Reason("Scheduled", "False", "NoNodes", "The namespace has no VmafxNode, or none with the labels asked for."),
    Reason(
        "Scheduled",
        "False",
        "BackendUnavailable",
        "No node has the GPU, or none can use the credentials.",
    ),
    Reason("Scheduled", "False", "NoHealthyNode", "The nodes that fit are unhealthy, draining or cordoned."),
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
)
