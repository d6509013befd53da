"""The VmafxJob reconciler: places jobs, runs attempts as Pods, watches over those of agents, writes what came of it.

One direction: gather what is known, decide, do. What is done never decides again: the next look does.
"""

import asyncio
from contextlib import suppress
from typing import Any

from vmafx.api.job import FINISHED, JobView
from vmafx.api.node import NodeView
from vmafx.jobs.metrics import JobMetrics
from vmafx.jobs.outcome import Outcome
from vmafx.jobs.outcome_writer import OutcomeWriter, emit_event
from vmafx.kube import ObjectKey
from vmafx.kube.core import PODS
from vmafx.kube.errors import Conflict, NotFound, ServerError, Unreachable
from vmafx.logs import log
from vmafx.operator.context import BY_NODE, OperatorContext
from vmafx.operator.job import status
from vmafx.operator.job.counts import FinishedCounter, FleetGauges, NodeJobCounter
from vmafx.operator.job.decide import Observation, decide, is_active, is_current, is_stale
from vmafx.operator.job.foreign_jobs import ForeignJobs
from vmafx.operator.job.gather import Gatherer
from vmafx.operator.job.memory import JobMemories, JobMemory
from vmafx.operator.job.placement import Placer
from vmafx.operator.job.pod_cache import BY_JOB, PodView, job_of, keys_of, pods_informer
from vmafx.operator.job.pod_creator import PodBlocked, PodCreated, PodCreator
from vmafx.operator.job.settings import JobSettings
from vmafx.operator.job.steps import (
    RECHECK_INTERVAL,
    CreatePod,
    Enqueue,
    KeepPending,
    MirrorForeign,
    NoAction,
    PlaceOn,
    RejectPlacement,
    SetMessage,
    Step,
    WaitForPodName,
    earlier,
)
from vmafx.operator.job.ttl import FinishedJobCleaner
from vmafx.runtime.reconcile import ReconcileLoop, ReconcileResult
from vmafx.runtime.status import StatusWriter
from vmafx.runtime.store import ObjectChange

EVENT_DELAY = 30.0  # seconds of waiting
NO_FREE_SLOT = "InsufficientCapacity"  # ordinary queueing, of which the status tells: no event


class JobReconciler:
    """One writer for the life of a job, from Pending to its end."""

    def __init__(self, context: OperatorContext, settings: JobSettings) -> None:
        client, jobs, nodes = context.client, context.jobs, context.nodes
        self._client, self._jobs, self._events, self._now = client, jobs, context.events, context.now
        self.pods = pods_informer(client, jobs)
        self.loop = ReconcileLoop("vmafxjob", self.reconcile, context.metrics, workers=context.workers)
        self._memory, self._status = JobMemories(), StatusWriter(client, jobs)
        self._metrics = JobMetrics(context.metrics)
        self._ending = OutcomeWriter(self._write, context.events, self._metrics, context.now)
        self.placing = Placer(context.now, self._look_again, self._look_in_time)
        self._following = ForeignJobs(settings.controllers, self._look_again)
        self._creator = PodCreator(client, self.pods, settings.pod(), context.now)
        self._gatherer = Gatherer(
            nodes, self.pods, self.placing, self._following, self._creator, self._memory, context.now
        )
        self._finished = FinishedJobCleaner(client, jobs.namespace, context.now)
        self._tally = FinishedCounter(client, jobs)
        self._counting = NodeJobCounter(client, nodes, self.placing.scheduler)
        self._gauges = FleetGauges(jobs, nodes, self.placing.scheduler, self._tally.counts)
        context.metrics.registry.register(self._gauges)
        self._listen(context)

    def _listen(self, context: OperatorContext) -> None:
        """The parts hear of a change before the queue does: what is worked on finds them up to date."""
        for part in (self._finished, self._tally, self._following):
            self._jobs.on_change(part.job_changed)
        self._jobs.on_change(self._job_changed)
        context.nodes.on_change(self.placing.node_changed)
        self.pods.on_change(self._pod_changed)
        self.loop.watches(self._jobs, when=self._status.needs_reconcile)
        self.loop.watches(self.pods, to=keys_of)
        self.loop.watches(context.nodes, to=self._jobs_on, when=_concerns_what_runs)

    async def lead(self) -> None:
        """What only a leader does beside reconciling."""
        self._gauges.leads, self._gatherer.watched_since = True, self._now()
        self.placing.lead()
        async with asyncio.TaskGroup() as group:
            for part in (self._finished, self._tally, self._counting, self._following):
                group.create_task(part.run())

    def _look_again(self, key: ObjectKey) -> None:
        self.loop.queue.add(key)

    def _look_in_time(self, key: ObjectKey) -> None:
        self.loop.queue.add(key, low=True)

    def _jobs_on(self, node: NodeView) -> list[ObjectKey]:
        meta = node.metadata
        jobs = self._jobs.store.by(BY_NODE, ObjectKey(meta.namespace, meta.name))
        return [ObjectKey(job.metadata.namespace, job.metadata.name) for job in jobs]

    def _job_changed(self, change: ObjectChange[JobView]) -> None:
        if change.new is None or change.new.status.phase in FINISHED:
            self._forget(change.key)
        if change.new is None or not self._status.is_stale(change.key, change.new):
            self.placing.job_changed(change)

    def _forget(self, key: ObjectKey) -> None:
        """It is over, or gone."""
        self._memory.forget(key)
        for one in tuple(self.pods.store.by(BY_JOB, key)):
            if one.status.phase in FINISHED:  # else something is left of it, which is to end
                self.pods.drop(ObjectKey(key.namespace, one.metadata.name))

    def _pod_changed(self, change: ObjectChange[PodView]) -> None:
        one = change.new
        if one is None or (key := job_of(one)) is None:
            return
        job = self._jobs.store.get(key)
        if job is not None and is_current(one, job):
            self._attempt(key, job).seen = True

    async def reconcile(self, key: ObjectKey) -> ReconcileResult:
        job = self._jobs.store.get(key)
        if job is not None and self._status.must_wait(key, job):
            return ReconcileResult.done()
        await self._sweep(key, job)
        if job is None:
            return ReconcileResult.done()
        try:
            situation = await self._gatherer.gather(key, job)
            return await self._do(key, job, situation, decide(job, self._now(), situation))
        finally:
            if self._jobs.store.get(key) is None:  # it ended, or was deleted, while we were at it
                self._memory.forget(key)

    async def _do(self, key: ObjectKey, job: JobView, situation: Observation, step: Step) -> ReconcileResult:
        now = self._now()
        after: float | None = None
        match step:
            case NoAction(after):
                pass
            case Enqueue(after):
                return await self._queued(key, job, after)
            case KeepPending(reason, message, after):
                await self._write(job, status.waiting_status(job, reason, message, now))
            case SetMessage(message, after):
                said = await self._write(job, status.has_message(message))
                if message and said is not None:
                    emit_event(self._events, job, "Warning", "NotStarted", message)
            case MirrorForeign(after=after):
                await self._write(job, status.mirrored_status(job, step, now))
            case PlaceOn() | RejectPlacement() | CreatePod() | WaitForPodName():
                return await self._run(key, job, situation.node, step)
            case _:
                await self._ending.end(job, step)
        return _again(after)

    async def _run(
        self,
        key: ObjectKey,
        job: JobView,
        node: NodeView | None,
        step: PlaceOn | RejectPlacement | CreatePod | WaitForPodName,
    ) -> ReconcileResult:
        match step:
            case PlaceOn() if node is not None:
                return await self._place(key, job, node)
            case CreatePod(left) if node is not None:
                return await self._create_pod(key, job, node, left)
            case WaitForPodName(left):
                return await self._created(job, self._creator.name_taken(job, self._attempt(key, job)), left)
            case RejectPlacement(reason, message):
                self.placing.give_up(key)
                self.placing.look_at(key, job)
                await self._write(job, status.waiting_status(job, reason, message, self._now()))
        return ReconcileResult.after(RECHECK_INTERVAL)

    async def _queued(self, key: ObjectKey, job: JobView, after: float | None) -> ReconcileResult:
        """It waits for a node, and its status says why; if no node can take it for long, an event says so too."""
        why = self.placing.why(key)
        if why is None:
            return ReconcileResult.after(RECHECK_INTERVAL)  # it is no longer in the queue, which a look will tell
        now = self._now()
        await self._write(job, status.waiting_status(job, why.reason, why.message, now))
        if not status.has_wait_reason(job, why.reason) and self._jobs.store.get(key) is not None:
            self._memory.of(key).waits_since = None if why.reason == NO_FREE_SLOT else now
        known = self._memory.look(key)
        if known is None or known.waits_since is None:  # it was told, or need not be
            return _again(after)
        to_tell = EVENT_DELAY - (now - known.waits_since).total_seconds()
        if to_tell > 0:
            return _again(earlier(to_tell, after))
        known.waits_since = None
        emit_event(self._events, job, "Warning", why.reason, f"waits for a node: {why.message}")
        return _again(after)

    async def _place(self, key: ObjectKey, job: JobView, node: NodeView) -> ReconcileResult:
        """Write the placement, then create its Pod: the status is the fence behind which no other attempt counts.

        An agent's is done with that: the echo tells when to look whether it was taken.
        """
        now = self._now()
        placed = await self._write(job, status.placed_status(job, node, now))
        if placed is None:
            return ReconcileResult.retry()
        self.placing.written(key)
        if (known := self._memory.look(key)) is not None:
            known.waits_since = None
        self._metrics.record_placement(job, now)
        log.info("job placed", job=str(key), node=node.metadata.name, attempt=placed.status.attempts)
        if node.spec.runtime == "Agent":
            return ReconcileResult.done()
        self._status.ignore_echo(key)
        return await self._create_pod(key, placed, node, None)

    async def _create_pod(self, key: ObjectKey, job: JobView, node: NodeView, left: float | None) -> ReconcileResult:
        return await self._created(job, await self._creator.create(key, job, node, self._attempt(key, job)), left)

    def _attempt(self, key: ObjectKey, job: JobView) -> JobMemory:
        return self._memory.of(key, job.status.controllerJobID or "")

    async def _created(
        self, job: JobView, outcome: PodCreated | PodBlocked | Outcome, left: float | None
    ) -> ReconcileResult:
        match outcome:
            case PodCreated(at_last):
                if at_last:
                    await self._write(job, status.has_message(""))
                return _again(earlier(RECHECK_INTERVAL, left))
            case PodBlocked(why, untold, after):
                if untold:
                    emit_event(self._events, job, "Warning", "FailedCreate", why)
                    await self._write(job, status.has_message(f"{why}; asked for again"))
                return _again(earlier(after, left))
            case over:
                await self._ending.end(job, over)
                return ReconcileResult.done()

    async def _sweep(self, key: ObjectKey, job: JobView | None) -> None:
        """End Pods of attempts that are no longer the job's: cancelled, suspended, given up."""
        going = [one for one in self.pods.store.by(BY_JOB, key) if is_active(one)]
        if job is None and going:
            job = await self._over(key)
        for one in going:
            if job is not None and is_stale(one, job):
                with suppress(NotFound, Conflict):
                    await self._client.delete(PODS, ObjectKey(key.namespace, one.metadata.name), uid=one.metadata.uid)

    async def _over(self, key: ObjectKey) -> JobView | None:
        """A job that the cache does not have: over, or gone, in which case its Pods go without us; or not yet there."""
        try:
            return await self._client.get(self._jobs.resource, key)
        except NotFound:
            return None

    async def _write(self, job: JobView, changes: dict[str, Any]) -> JobView | None:
        try:
            return await self._status.write(job, changes)
        except (Unreachable, ServerError):
            self._gatherer.watched_since = self._now()  # meanwhile agents could not say a word either
            raise


def _concerns_what_runs(change: ObjectChange[NodeView]) -> bool:
    """Whether jobs that have the node are to be looked at. Its heartbeats are many, and none of their business.

    Nor is a Pod concerned with the health of its VmafxNode, which turns for all of them when the controller goes.
    """
    old, new = change.old, change.new
    if "Agent" not in {one.spec.runtime for one in (old, new) if one is not None}:
        return False
    if old is None or new is None:
        return True
    return old.spec.runtime != new.spec.runtime or old.status.conditions != new.status.conditions


def _again(after: float | None) -> ReconcileResult:
    return ReconcileResult.done() if after is None else ReconcileResult.after(after)
