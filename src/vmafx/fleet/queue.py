"""The jobs that wait: their positions, the reasons, and the estimated starts. Computed, and written nowhere."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import get_args

import msgspec

from vmafx.fleet.reader import UNFINISHED_PHASES, FleetJob, FleetNode, FleetReader
from vmafx.fleet.rows import ObjectRow, key_of
from vmafx.jobs.state import GateReason, scheduling_gate
from vmafx.kube import ObjectKey
from vmafx.scheduling.durations import Durations, JobDuration
from vmafx.scheduling.forecast import JobForecast, forecast, job_duration, running_job, waiting_job
from vmafx.scheduling.requirements import NamespacedName, NodeOffer, node_offer

SOON = 30.0  # seconds in which an operator that runs has given away a free slot


class QueueRow(ObjectRow, frozen=True, kw_only=True):
    """A job that waits. `startsIn` and `doneIn` are seconds from now; absent where nobody can know.

    `position` is absent for one that is held back or that no node takes at present, which `reason` then says; and for
    one that has left the queue, of which `reason` is Left.
    """

    position: int | None
    priority: int
    created: datetime | None
    reason: str
    message: str
    startsIn: float | None = None
    doneIn: float | None = None

    def without_times(self) -> "QueueRow":
        """What of it does not change by itself."""
        return msgspec.structs.replace(self, startsIn=None, doneIn=None)

    def runs_in_time(self) -> bool:
        """Whether nothing has to change for it to run, but that others end."""
        return self.position is not None


class SlotCounts(msgspec.Struct, frozen=True):
    """Of nodes that take jobs."""

    nodes: int = 0
    slots: int = 0
    free: int = 0


class QueueSummary(msgspec.Struct, frozen=True, kw_only=True):
    """`held` are those of the waiting that wait for something else than a node."""

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
    """All that wait, in the order in which their turn comes."""
    jobs, nodes = await reader.jobs(UNFINISHED_PHASES), await reader.nodes()
    return make_queue(jobs, nodes, await read_durations(reader, jobs, nodes), now)


async def read_durations(
    reader: FleetReader, jobs: Iterable[FleetJob], nodes: Iterable[FleetNode]
) -> list[JobDuration]:
    """How long jobs took that ended, in the namespaces where somebody wants to know."""
    waited_in = {job.metadata.namespace for job in jobs if job.status.phase == "Pending"}
    there = offers_of(nodes)
    found = (duration_on(job, there) for job in await reader.succeeded(sorted(waited_in)))
    return [run for run in found if run is not None]


def duration_on(job: FleetJob, offers: Mapping[NamespacedName, NodeOffer]) -> JobDuration | None:
    """How long a job took; None where its node is gone, since nobody knows then what it was."""
    node = node_of(job)
    offer = offers.get(node) if node is not None else None
    return None if offer is None else job_duration(job, offer)


def node_of(job: FleetJob) -> NamespacedName | None:
    node = job.status.assignedNode
    return NamespacedName(job.metadata.namespace, node) if node else None


def offers_of(nodes: Iterable[FleetNode]) -> dict[NamespacedName, NodeOffer]:
    return {offer.node: offer for offer in map(node_offer, nodes)}


def make_queue(
    jobs: Iterable[FleetJob], nodes: Iterable[FleetNode], runs: Iterable[JobDuration], now: datetime
) -> JobQueue:
    """Pure: the same jobs, nodes and runs give the same queue."""
    offers, durations = offers_of(nodes), Durations(runs)
    unfinished = [job for job in jobs if job.metadata.deletionTimestamp is None]
    waiting = {NamespacedName(*key_of(job)): job for job in unfinished if job.status.phase == "Pending"}
    waiters = [waiting_job(job, now) for job in waiting.values()]
    runners = [
        running_job(job, offers.get(node), durations, now, job.status.progress)
        for job in unfinished
        if (node := node_of(job)) is not None
    ]
    seen = forecast(waiters, runners, list(offers.values()), durations.expected)
    rows = [_row(waiting[job], outlook, now) for job, outlook in seen.items()]
    used = Counter(runner.node for runner in runners)
    return JobQueue(rows, _summary(rows, len(unfinished) - len(rows), offers.values(), used))


def row_after_wait(row: QueueRow, job: FleetJob | None) -> QueueRow:
    """The row of one that waits no longer; `job` is what became of it, if that is known."""
    if job is None:
        became = "it has ended or was deleted"
    else:
        became = f"running on {job.status.assignedNode}" if job.status.phase == "Running" else job.status.phase
    return msgspec.structs.replace(row.without_times(), position=None, reason="Left", message=became)


def find_row(queue: JobQueue, key: ObjectKey) -> QueueRow | None:
    return next((row for row in queue.jobs if row.key == key), None)


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
    if (hold := scheduling_gate(job, now)) is not None:
        return hold.reason, hold.message
    if outlook.cause is not None:
        return outlook.cause.reason, outlook.cause.message
    where = f"a slot is free on {outlook.start.node.name}" if outlook.start else "it is next"
    created = job.metadata.creationTimestamp
    if created is not None and (now - created).total_seconds() > SOON:
        return "NotPlaced", f"{where}, but the job was not placed; is the operator running?"
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
        slots=sum(one.slots for one in vendors.values()),
        free=sum(one.free for one in vendors.values()),
        vendors=dict(sorted(vendors.items())),
    )
