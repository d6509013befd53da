"""Keeps the scheduler in step with the caches, and asks it for placements when something changed."""

import asyncio
from collections.abc import Callable
from datetime import datetime

from vmafx.api.job import FINISHED, JobView
from vmafx.api.node import NodeView
from vmafx.jobs.state import scheduling_gate
from vmafx.kube import ObjectKey
from vmafx.runtime.store import ObjectChange
from vmafx.scheduling.requirements import NamespacedName, PendingCause, Requirements, job_request, node_offer
from vmafx.scheduling.scheduler import Scheduler

REASON_DELAY = 1.0  # seconds after a node changed


class Placer:
    """Hears of every job and node. While it leads, it gives out places.

    `look_at_job` is told who got a place, `look_in_time` who waits for another reason than before: those may be many,
    again and again where a node comes and goes, and are in no hurry.
    """

    def __init__(
        self,
        now: Callable[[], datetime],
        look_at_job: Callable[[ObjectKey], None],
        look_in_time: Callable[[ObjectKey], None],
    ) -> None:
        self.scheduler = Scheduler()
        self._now, self._look_at_job, self._look_in_time = now, look_at_job, look_in_time
        self._places: dict[ObjectKey, str] = {}  # given out, and not yet written
        self._reasons: dict[str, dict[Requirements, str]] = {}  # why each line of a namespace waits, as last looked at
        self._leading = self._soon = False
        self._asking: set[str] = set()  # namespaces whose lines are looked at in a moment

    def lead(self) -> None:
        self._leading = True
        self._ask_soon()

    def written(self, key: ObjectKey) -> None:
        self._places.pop(key, None)

    def why(self, key: ObjectKey) -> PendingCause | None:
        return self.scheduler.pending_cause(_name(key))

    def job_changed(self, change: ObjectChange[JobView]) -> None:
        key, job = change.key, change.new
        if change.old is not None and job is not None and change.old.metadata.uid != job.metadata.uid:
            self.give_up(key)  # a namesake: what was given to the other is not its
        if job is None or job.status.phase in FINISHED or job.metadata.deletionTimestamp is not None:
            self.give_up(key)
        elif job.status.phase == "Running":
            self.written(key)
            if job.status.assignedNode:
                self.scheduler.hold(_name(key), NamespacedName(key.namespace, job.status.assignedNode))
            else:  # another controller's
                self.scheduler.remove_job(_name(key))
        else:
            self.look_at(key, job)
        self._ask_soon()

    def look_at(self, key: ObjectKey, job: JobView) -> None:
        """A pending job: in the queue, or not yet, or no longer."""
        queued = job.metadata.deletionTimestamp is None and scheduling_gate(job, self._now()) is None
        if queued and key in self._places:
            return  # it has a place, and is about to be told
        if queued:
            self.scheduler.enqueue(job_request(job))
        else:
            self.give_up(key)
        self._ask_soon()

    def give_up(self, key: ObjectKey) -> None:
        """It has no place, and waits for none."""
        self._places.pop(key, None)
        self.scheduler.remove_job(_name(key))

    def node_changed(self, change: ObjectChange[NodeView]) -> None:
        if change.new is None:
            self.scheduler.remove_node(_name(change.key))
        elif not self.scheduler.set_node(node_offer(change.new)):
            return
        self._ask_soon()
        self._ask_why_soon(change.key.namespace)

    def _ask_soon(self) -> None:
        """Once for all that changed in this turn of the loop."""
        if self._leading and not self._soon:
            self._soon = True
            asyncio.get_running_loop().call_soon(self._ask)

    def ask_for(self, key: ObjectKey, job: JobView) -> str | None:
        """The node that a pending job is given now; None if it has to wait, or is not in the queue."""
        if key not in self._places:
            self.look_at(key, job)
            if self._leading:
                self._ask()  # before it is said that there is no place
        return self._places.get(key)

    def _ask(self) -> None:
        self._soon = False
        for placement in self.scheduler.place():
            key = ObjectKey(*placement.job)
            self._places[key] = placement.node.name
            self._look_at_job(key)

    def _ask_why_soon(self, namespace: str) -> None:
        """Once for all nodes that change within a second."""
        if self._leading and namespace not in self._asking:
            self._asking.add(namespace)
            asyncio.get_running_loop().call_later(REASON_DELAY, self._ask_why, namespace)

    def _ask_why(self, namespace: str) -> None:
        self._asking.discard(namespace)
        before, now = self._reasons.get(namespace, {}), dict[Requirements, str]()
        for terms, why, jobs in self.scheduler.pending_groups(namespace):
            now[terms] = why.reason
            if before.get(terms) != why.reason:
                for job in jobs:
                    self._look_in_time(ObjectKey(*job))
        self._reasons[namespace] = now


def _name(key: ObjectKey) -> NamespacedName:
    return NamespacedName(key.namespace, key.name)
