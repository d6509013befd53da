"""One job or one node as a row of a listing. A row changes only when its object does, not with time."""

from datetime import datetime

import msgspec

from vmafx.api.meta import Condition
from vmafx.fleet.reader import FleetJob, FleetNode
from vmafx.kube import ObjectKey
from vmafx.scheduling.requirements import node_offer

# The condition whose reason and message describe a job in a phase; a running job has none.
PHASE_CONDITIONS = {"Pending": "Scheduled", "Succeeded": "Complete", "Failed": "Failed"}


class ObjectRow(msgspec.Struct, frozen=True, kw_only=True):
    """The fields common to all rows."""

    namespace: str
    name: str

    @property
    def key(self) -> ObjectKey:
        return ObjectKey(self.namespace, self.name)


class JobRow(ObjectRow, frozen=True, kw_only=True):
    """`phase` is that of the job, or Deleted."""

    phase: str
    score: float | None = None
    frames: int | None = None
    node: str | None = None
    attempts: int = 0
    failures: int = 0
    created: datetime | None = None
    started: datetime | None = None
    finished: datetime | None = None
    reason: str | None = None
    message: str | None = None


class NodeRow(ObjectRow, frozen=True, kw_only=True):
    """`free` counts the slots open to new jobs: 0 while the node is unhealthy, cordoned, draining or without agent."""

    vendor: str
    runtime: str
    healthy: bool | None
    cordoned: bool
    draining: bool
    capacity: int
    used: int
    free: int
    device: str | None = None
    fps: float | None = None
    lastHeartbeat: datetime | None = None
    created: datetime | None = None
    reason: str | None = None
    message: str | None = None


def job_row(job: FleetJob) -> JobRow:
    status = job.status
    condition = _condition(status.conditions, PHASE_CONDITIONS.get(status.phase, ""))
    return JobRow(
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        phase=status.phase,
        score=status.score,
        frames=status.frames,
        node=status.assignedNode,
        attempts=status.attempts,
        failures=status.failures,
        created=job.metadata.creationTimestamp,
        started=status.startedAt,
        finished=status.finishedAt,
        reason=condition.reason if condition else None,
        message=_message(job, condition),
    )


def deleted_row(row: JobRow) -> JobRow:
    return msgspec.structs.replace(row, phase="Deleted", reason=None, message=None)


def node_row(node: FleetNode, used: int) -> NodeRow:
    """`used`: the number of jobs that run on the node."""
    spec, status, offer = node.spec, node.status, node_offer(node)
    reason, message = _why_no_jobs(node)
    return NodeRow(
        namespace=node.metadata.namespace,
        name=node.metadata.name,
        vendor=spec.gpuVendor,
        runtime=spec.runtime,
        healthy=status.healthy,
        cordoned=spec.unschedulable,
        draining=status.draining,
        capacity=spec.capacity,
        used=used,
        free=max(spec.capacity - used, 0) if offer.usable() else 0,
        device=status.detectedDevice,
        fps=status.throughput,
        lastHeartbeat=status.lastHeartbeat,
        created=node.metadata.creationTimestamp,
        reason=reason,
        message=message,
    )


def _message(job: FleetJob, condition: Condition | None) -> str | None:
    progress = job.status.progress
    match job.status.phase:
        case "Succeeded":
            return None
        case "Pending" if condition is not None:
            return condition.message
        case "Running" if progress is not None and progress.totalFrames:
            return f"{progress.frames} of {progress.totalFrames} frames"
    return job.status.message


def _why_no_jobs(node: FleetNode) -> tuple[str | None, str | None]:
    """The reason and message of a node that accepts no jobs; None for one that does, even if it is full."""
    ready = _condition(node.status.conditions, "Ready")
    if node.metadata.deletionTimestamp is not None:
        return "Deleting", "the node is being deleted"
    if node.status.healthy is None:
        return "Unjudged", "its health has not been checked yet; is the operator running?"
    if not node.status.healthy:
        return (ready.reason, ready.message) if ready else ("Unhealthy", "its status gives no reason")
    if node.status.draining:
        known = ready.message if ready and ready.reason == "Draining" else None
        return "Draining", known or "the agent is draining: it takes no new jobs"
    if not node_offer(node).agent_registered:
        return "NoAgent", "its agent has not registered yet"
    return ("Cordoned", "it gets no new jobs (spec.unschedulable is true)") if node.spec.unschedulable else (None, None)


def _condition(conditions: tuple[Condition, ...], kind: str) -> Condition | None:
    return next((condition for condition in conditions if condition.type == kind), None)
