"""Keeps the scheduler up to date with the caches, and runs it when something changed."""

import asyncio
from collections.abc import Callable
from itertools import islice

from vmafx.api.job import FINISHED, JobView
from vmafx.api.node import NodeView
from vmafx.jobs.state import Age, queue_gate
from vmafx.kube import ObjectKey
from vmafx.runtime.store import ObjectChange
from vmafx.scheduling.requirements import NamespacedName, PendingCause, job_request, node_offer
from vmafx.scheduling.scheduler import Scheduler

BATCH = 500  # placements without a pause for other tasks


class Placer:
    """Watches every job and node; places jobs once this process leads. `age` gives the ages of times of a job.

    `requeue` gets the key of a job that was placed. `offers_changed` gets the namespace of a node whose change may
    affect why jobs wait.
    """

    def __init__(
        self,
        age: Callable[[ObjectKey], Age],
        requeue: Callable[[ObjectKey], None],
        offers_changed: Callable[[str], None],
    ) -> None:
        self.scheduler = Scheduler()
        self._age, self._requeue, self._offers_changed = age, requeue, offers_changed
        self._placements: dict[ObjectKey, str] = {}  # node by job: decided, not yet written to the status
        self._leading = self._run_pending = False

    def lead(self) -> None:
        self._leading = True
        self._run_soon()

    def place(self, key: ObjectKey, job: JobView) -> str | None:
        """The node for a pending job; None if there is none for it now, or it is gated."""
        if key not in self._placements:
            self.update(key, job)
            if self._leading:
                self._run()
        return self._placements.get(key)

    def written(self, key: ObjectKey) -> None:
        """The placement is in the job's status."""
        self._placements.pop(key, None)

    def release(self, key: ObjectKey) -> None:
        """Take a job out of the queue, and free its slot."""
        self._placements.pop(key, None)
        self.scheduler.remove_job(_name(key))

    def cause(self, key: ObjectKey) -> PendingCause | None:
        """Why a job waits; None if it is not in the queue."""
        return self.scheduler.pending_cause(_name(key))

    def update(self, key: ObjectKey, job: JobView) -> None:
        """Put a pending job into the queue, or take it out if it is gated."""
        queued = job.metadata.deletionTimestamp is None and queue_gate(job, self._age(key)) is None
        if queued and key in self._placements:
            return
        if queued:
            self.scheduler.enqueue(job_request(job))
        else:
            self.release(key)
        self._run_soon()

    def job_changed(self, change: ObjectChange[JobView]) -> None:
        key, job = change.key, change.new
        if change.old is not None and job is not None and change.old.metadata.uid != job.metadata.uid:
            self.release(key)  # recreated under the same name: the placement was the old job's
        if job is None or job.status.phase in FINISHED or job.metadata.deletionTimestamp is not None:
            self.release(key)
        elif job.status.phase == "Running":
            self.written(key)
            if job.status.assignedNode:
                self.scheduler.hold(_name(key), NamespacedName(key.namespace, job.status.assignedNode))
            else:  # an external job
                self.scheduler.remove_job(_name(key))
        else:
            self.update(key, job)
        self._run_soon()

    def node_changed(self, change: ObjectChange[NodeView]) -> None:
        if change.new is None:
            self.scheduler.remove_node(_name(change.key))
        elif not self.scheduler.set_node(node_offer(change.new)):
            return
        self._run_soon()
        self._offers_changed(change.key.namespace)

    def _run_soon(self) -> None:
        """Run the scheduler once for all changes in this iteration of the event loop."""
        if self._leading and not self._run_pending:
            self._run_pending = True
            asyncio.get_running_loop().call_soon(self._run_pending_now)

    def _run_pending_now(self) -> None:
        self._run_pending = False
        self._run()

    def _run(self) -> None:
        """Place up to BATCH jobs; the rest later, so that the first ones need not wait for the last."""
        for placement in islice(self.scheduler.place(), BATCH):
            key = ObjectKey(*placement.job)
            self._placements[key] = placement.node.name
            self._requeue(key)
            self._run_soon()


def _name(key: ObjectKey) -> NamespacedName:
    return NamespacedName(key.namespace, key.name)
