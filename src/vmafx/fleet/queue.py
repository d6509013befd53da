"""The waiting jobs: position, reason, estimated start and end. Computed on demand; nothing is stored."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import get_args

import msgspec

from vmafx.fleet.reader import UNFINISHED_PHASES, FleetJob, FleetNode, FleetReader
from vmafx.fleet.rows import ObjectRow
from vmafx.jobs.state import GateReason, age_at, queue_gate
from vmafx.kube import key_of
from vmafx.scheduling.durations import Durations, JobDuration
from vmafx.scheduling.forecast import JobForecast, forecast, job_duration, running_job, waiting_job
from vmafx.scheduling.requirements import NamespacedName, NodeOffer, node_offer

PLACEMENT_TIME = 30.0  # seconds; a running operator fills a free slot sooner


class QueueRow(ObjectRow, frozen=True, kw_only=True):
    """A waiting job. `startsIn` and `doneIn` are seconds from now, None if they cannot be estimated.

    `position` is None while the job is held or fits no usable node, as `reason` says, and once it has left the queue
    (reason Left).
    """

    position: int | None
    priority: int
    created: datetime | None
    reason: str
    message: str
    startsIn: float | None = None
    doneIn: float | None = None

    def without_times(self) -> "QueueRow":
        """The row without the fields that change with time."""
        return msgspec.structs.replace(self, startsIn=None, doneIn=None)

    def is_schedulable(self) -> bool:
        """Whether the job will run as soon as other jobs free a slot."""
        return self.position is not None


class SlotCounts(msgspec.Struct, frozen=True):
    """Counts over the nodes that accept jobs."""

    nodes: int = 0
    slots: int = 0
    free: int = 0


class QueueSummary(msgspec.Struct, frozen=True, kw_only=True):
    """`held` counts the waiting jobs that wait for something other than a node, e.g. because they are suspended."""

    waiting: int
    held: int
    running: int
    slots: int
    free: int
    vendors: dict[str, SlotCounts]


class JobQueue(msgspec.Struct, frozen=True):
    jobs: list[QueueRow]
    summary: QueueSummary


async def read_queue(reader: FleetReader, now: datetime) -> JobQueue:
    """All waiting jobs, in queue order."""
    jobs, nodes = await reader.jobs(UNFINISHED_PHASES), await reader.nodes()
    return make_queue(jobs, nodes, await read_durations(reader, jobs, nodes), now)


async def read_durations(
    reader: FleetReader, jobs: Iterable[FleetJob], nodes: Iterable[FleetNode]
) -> list[JobDuration]:
    """The durations of finished jobs, in the namespaces where jobs are waiting."""
    namespaces = {job.metadata.namespace for job in jobs if job.status.phase == "Pending"}
    offers = _offers(nodes)
    durations = []
    for job in await reader.succeeded(sorted(namespaces)):
        node = _assigned_node(job)
        offer = offers.get(node) if node is not None else None
        # A duration only counts together with the hardware that it was measured on.
        duration = job_duration(job, offer) if offer is not None else None
        if duration is not None:
            durations.append(duration)
    return durations


def make_queue(
    jobs: Iterable[FleetJob], nodes: Iterable[FleetNode], history: Iterable[JobDuration], now: datetime
) -> JobQueue:
    """The queue of these jobs on these nodes; `history` are the durations of finished jobs. Pure."""
    offers, durations = _offers(nodes), Durations(history)
    unfinished = [job for job in jobs if job.metadata.deletionTimestamp is None]
    waiting = {NamespacedName(*key_of(job)): job for job in unfinished if job.status.phase == "Pending"}
    waiters = [waiting_job(job, now) for job in waiting.values()]
    runners = [
        running_job(job, offers.get(node), durations, now, job.status.progress)
        for job in unfinished
        if (node := _assigned_node(job)) is not None
    ]
    forecasts = forecast(waiters, runners, list(offers.values()), durations.expected)
    rows = [_row(waiting[job], outlook, now) for job, outlook in forecasts.items()]
    used = Counter(runner.node for runner in runners)
    return JobQueue(rows, _summary(rows, len(unfinished) - len(rows), offers.values(), used))


def left_row(row: QueueRow, job: FleetJob | None) -> QueueRow:
    """The row of a job that left the queue; `job` is its present state, None if unknown."""
    if job is None:
        message = "the job has ended or was deleted"
    else:
        message = f"running on {job.status.assignedNode}" if job.status.phase == "Running" else job.status.phase
    return msgspec.structs.replace(row.without_times(), position=None, reason="Left", message=message)


def _assigned_node(job: FleetJob) -> NamespacedName | None:
    node = job.status.assignedNode
    return NamespacedName(job.metadata.namespace, node) if node else None


def _offers(nodes: Iterable[FleetNode]) -> dict[NamespacedName, NodeOffer]:
    return {offer.node: offer for offer in map(node_offer, nodes)}


def _row(job: FleetJob, outlook: JobForecast, now: datetime) -> QueueRow:
    reason, message = _reason(job, outlook, now)
    start = outlook.start
    return QueueRow(
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        position=outlook.position,
        priority=job.spec.priority,
        created=job.metadata.creationTimestamp,
        reason=reason,
        message=message,
        startsIn=None if start is None else round(start.starts, 1),
        doneIn=None if start is None or start.ends is None else round(start.ends, 1),
    )


def _reason(job: FleetJob, outlook: JobForecast, now: datetime) -> tuple[str, str]:
    if (gate := queue_gate(job, age_at(now))) is not None:
        return gate.reason, gate.message
    if outlook.cause is not None:
        return outlook.cause.reason, outlook.cause.message
    where = f"a slot is free on {outlook.start.node.name}" if outlook.start else "the job is next"
    created = job.metadata.creationTimestamp
    if created is not None and (now - created).total_seconds() > PLACEMENT_TIME:
        return "NotPlaced", f"{where}, but the job has not been placed; is the operator running?"
    return "Placing", f"{where}; the operator is about to place the job"


def _summary(
    rows: Sequence[QueueRow], running: int, offers: Iterable[NodeOffer], used: Mapping[NamespacedName, int]
) -> QueueSummary:
    vendors: dict[str, SlotCounts] = {}
    for offer in offers:
        if offer.usable():
            so_far = vendors.get(offer.vendor, SlotCounts())
            free = max(offer.capacity - used.get(offer.node, 0), 0)
            vendors[offer.vendor] = SlotCounts(so_far.nodes + 1, so_far.slots + offer.capacity, so_far.free + free)
    return QueueSummary(
        waiting=len(rows),
        held=sum(row.reason in get_args(GateReason) for row in rows),
        running=running,
        slots=sum(counts.slots for counts in vendors.values()),
        free=sum(counts.free for counts in vendors.values()),
        vendors=dict(sorted(vendors.items())),
    )
