"""What is read of a job and of a node: what decisions are made from, and what people want to see."""

from vmafx.api.job import JobProgress, JobStatusView, JobView
from vmafx.api.node import NodeStatusView, NodeView
from vmafx.kube import JOBS, NODES


class SeenJobStatus(JobStatusView):
    score: float | None = None
    message: str | None = None
    progress: JobProgress | None = None
    frames: int | None = None


class SeenJob(JobView):
    """A VmafxJob as it is looked at."""

    status: SeenJobStatus = SeenJobStatus()


class SeenNodeStatus(NodeStatusView):
    detectedDevice: str | None = None


class SeenNode(NodeView):
    """A VmafxNode as it is looked at."""

    status: SeenNodeStatus = SeenNodeStatus()


SEEN_JOBS = JOBS.seen_as(SeenJob)
SEEN_NODES = NODES.seen_as(SeenNode)
