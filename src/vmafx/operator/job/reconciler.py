"""The VmafxJob reconciler: places jobs, runs attempts as Pods, watches those of agents, and writes their outcome.

Each reconciliation goes one way: gather, decide, act. Acting never decides anew; the next reconciliation does.
"""

import asyncio
from contextlib import suppress
from typing import Any

from vmafx.api.job import FINISHED, JobView
from vmafx.api.node import NodeView
from vmafx.jobs.metrics import JobMetrics
from vmafx.jobs.outcome import Outcome
from vmafx.jobs.outcome_writer import OutcomeWriter, emit_event
from vmafx.jobs.sample_keys import SampleKeys
from vmafx.kube import ObjectKey, key_of
from vmafx.kube.core import PODS
from vmafx.kube.errors import Conflict, NotFound, ServerError, Unreachable
from vmafx.logs import log
from vmafx.operator.context import BY_NODE, OperatorContext
from vmafx.operator.job import status
from vmafx.operator.job.counts import FinishedCounter, FleetGauges, NodeJobCounter
from vmafx.operator.job.decide import decide, is_active, is_current, is_stale
from vmafx.operator.job.external.poller import ExternalJobs
from vmafx.operator.job.gather import Gatherer
from vmafx.operator.job.memory import JobMemories, JobMemory
from vmafx.operator.job.placement import Placer
from vmafx.operator.job.pod import PodSettings
from vmafx.operator.job.pod_cache import BY_JOB, PodView, job_key, job_keys, pods_informer
from vmafx.operator.job.pod_creator import PodBlocked, PodCreated, PodCreator
from vmafx.operator.job.samples import SampleVariables
from vmafx.operator.job.settings import JobSettings
from vmafx.operator.job.steps import (
    RECHECK_INTERVAL,
    CreatePod,
    Enqueue,
    KeepPending,
    MirrorExternal,
    NoAction,
    PlaceOn,
    RejectPlacement,
    SetMessage,
    Step,
    WaitForPodName,
    earlier,
)
from vmafx.operator.job.ttl import FinishedJobCleaner
from vmafx.operator.job.wait_reporter import WaitReporter
from vmafx.runtime.reconcile import ReconcileLoop, ReconcileResult
from vmafx.runtime.status import StatusWriter
from vmafx.runtime.store import ObjectChange


class JobReconciler:
    """Takes a job from Pending to its end."""

    def __init__(self, context: OperatorContext, settings: JobSettings) -> None:
        client, jobs, nodes = context.client, context.jobs, context.nodes
        self._client, self._jobs, self._events, self._now = client, jobs, context.events, context.now
        self.pods = pods_informer(client, jobs)
        self.loop = ReconcileLoop("vmafxjob", self.reconcile, context.metrics, max_concurrent=context.max_concurrent)
        self._clock = context.clock
        self._memory, self._status = JobMemories(context.now, context.clock), StatusWriter(client, jobs)
        self._metrics = JobMetrics(context.metrics)
        self._outcomes = OutcomeWriter(self._write, context.events, self._metrics, context.now)
        self._placer = Placer(self._memory.ages, self._requeue, self._offers_changed)
        self._wait_reporter = WaitReporter(
            jobs.store, self._placer, self._status.write, context.events,
            context.manager.is_busy, context.now, context.clock,
        )  # fmt: skip
        self._external = ExternalJobs(settings.external_controller, self._requeue)
        pod_settings = PodSettings(
            settings.worker_image,
            context.intel_device,
            cpu_request=settings.worker_cpu_request,
            memory_request=settings.worker_memory_request,
            memory_limit=settings.worker_memory_limit,
            scratch_limit=settings.worker_scratch_limit,
            pull_secrets=settings.pull_secrets,
        )
        samples = SampleVariables(context.trainings, SampleKeys(client), settings.controller_address)
        self._creator = PodCreator(client, self.pods, pod_settings, samples, context.clock)
        self._gatherer = Gatherer(client, nodes, self.pods, self._placer, self._external, self._memory, context.clock)
        self._cleaner = FinishedJobCleaner(client, jobs, context.now)
        self._finished = FinishedCounter(client, jobs)
        self._node_counter = NodeJobCounter(client, nodes, self._placer.scheduler)
        self._gauges = FleetGauges(jobs, nodes, self._placer.scheduler, self._finished.counts)
        context.metrics.registry.register(self._gauges)
        self._watch(context)

    def _watch(self, context: OperatorContext) -> None:
        """Handlers run in the order of registration: the parts are up to date before a key is queued."""
        for part in (self._cleaner, self._finished, self._external):
            self._jobs.on_change(part.job_changed)
        self._jobs.on_change(self._job_changed)
        context.nodes.on_change(self._placer.node_changed)
        self.pods.on_change(self._pod_changed)
        # At the start, keys are queued in this order: jobs that have a Pod or an agent come before those that wait.
        self.loop.watches(self.pods, to=job_keys)
        self.loop.watches(context.nodes, to=self._jobs_on, when=_affects_running_jobs)
        self.loop.watches(self._jobs, when=self._status.needs_reconcile)

    async def lead(self) -> None:
        """The leader's tasks besides reconciling."""
        self._gauges.leading = True
        self._gatherer.watch_from_now()
        self._placer.lead()
        async with asyncio.TaskGroup() as group:
            for part in (self._cleaner, self._finished, self._node_counter, self._external, self._wait_reporter):
                group.create_task(part.run())

    async def reconcile(self, key: ObjectKey) -> ReconcileResult:
        job = self._jobs.store.get(key)
        if job is not None and self._status.must_wait(key, job):
            return ReconcileResult.done()
        await self._delete_stale_pods(key, job)
        if job is None:
            return ReconcileResult.done()
        try:
            observed = await self._gatherer.gather(key, job)
            return await self._act(key, job, observed.node, decide(job, self._memory.ages(key), observed))
        finally:
            if self._jobs.store.get(key) is None:  # it finished or was deleted meanwhile
                self._memory.forget(key)

    async def _act(self, key: ObjectKey, job: JobView, node: NodeView | None, step: Step) -> ReconcileResult:
        now = self._now()
        requeue_after: float | None = None
        match step:
            case NoAction(requeue_after):
                pass
            case Enqueue(requeue_after):
                if self._placer.cause(key) is None:  # its gate opened after the scheduler was told that it is closed
                    return ReconcileResult.after(RECHECK_INTERVAL)
                self._wait_reporter.job_waits(key)
            case KeepPending(reason, message, requeue_after):
                await self._write(job, status.waiting_status(job, reason, message, now))
            case SetMessage(message, requeue_after):
                written = await self._write(job, status.message_status(message))
                if message and written is not None:
                    emit_event(self._events, job, "Warning", "NotStarted", message)
            case MirrorExternal(requeue_after=requeue_after):
                await self._write(job, status.mirrored_status(job, step, now))
            case PlaceOn() | RejectPlacement() | CreatePod() | WaitForPodName():
                return await self._start(key, job, node, step)
            case _:
                await self._outcomes.end(job, step)
        return _requeue_result(requeue_after)

    async def _start(
        self,
        key: ObjectKey,
        job: JobView,
        node: NodeView | None,
        step: PlaceOn | RejectPlacement | CreatePod | WaitForPodName,
    ) -> ReconcileResult:
        """The steps from a placement to a Pod."""
        match step:
            case PlaceOn() if node is not None:
                return await self._place(key, job, node)
            case CreatePod(deadline_left) if node is not None:
                return await self._create_pod(key, job, node, deadline_left)
            case WaitForPodName(deadline_left):
                blocked = self._creator.name_taken(job, self._attempt_memory(key, job))
                return await self._report_creation(job, blocked, deadline_left)
            case RejectPlacement(reason, message):
                self._placer.release(key)
                self._placer.update(key, job)
                await self._write(job, status.waiting_status(job, reason, message, self._now()))
        return ReconcileResult.after(RECHECK_INTERVAL)

    async def _place(self, key: ObjectKey, job: JobView, node: NodeView) -> ReconcileResult:
        """Write the placement, then create the Pod: the write makes sure that only one attempt is current.

        For an agent that is all: the watch event of this write starts the next reconciliation, which awaits its claim.
        """
        now = self._now()
        placed = await self._write(job, status.placed_status(job, node, now))
        if placed is None:
            return ReconcileResult.retry()
        self._placer.written(key)
        self._metrics.record_placement(job, now)
        log.info("job placed", job=str(key), node=node.metadata.name, attempt=placed.status.attempts - 1)
        if node.spec.runtime == "Agent":
            return ReconcileResult.done()
        self._status.ignore_echo(key)
        return await self._create_pod(key, placed, node, None)

    async def _create_pod(
        self, key: ObjectKey, job: JobView, node: NodeView, deadline_left: float | None
    ) -> ReconcileResult:
        created = await self._creator.create(key, job, node, self._attempt_memory(key, job))
        return await self._report_creation(job, created, deadline_left)

    async def _report_creation(
        self, job: JobView, creation: PodCreated | PodBlocked | Outcome, deadline_left: float | None
    ) -> ReconcileResult:
        match creation:
            case PodCreated(was_blocked):
                if was_blocked:
                    await self._write(job, status.message_status(""))
                return _requeue_result(earlier(RECHECK_INTERVAL, deadline_left))
            case PodBlocked(message, report, requeue_after):
                if report:
                    emit_event(self._events, job, "Warning", "FailedCreate", message)
                    await self._write(job, status.message_status(f"{message}; retrying"))
                return _requeue_result(earlier(requeue_after, deadline_left))
            case outcome:
                await self._outcomes.end(job, outcome)
                return ReconcileResult.done()

    async def _delete_stale_pods(self, key: ObjectKey, job: JobView | None) -> None:
        """Delete running Pods of attempts that the job has given up: cancelled, suspended or replaced."""
        active = [pod for pod in self.pods.store.by(BY_JOB, key) if is_active(pod)]
        if job is None and active:  # not cached: finished, not created yet, or deleted with its Pods
            with suppress(NotFound):
                job = await self._client.get(self._jobs.resource, key)
        for pod in active:
            if job is not None and is_stale(pod, job):
                with suppress(NotFound, Conflict):
                    await self._client.delete(PODS, ObjectKey(key.namespace, pod.metadata.name), uid=pod.metadata.uid)

    async def _write(self, job: JobView, changes: dict[str, Any]) -> JobView | None:
        """Write to the job's status; None if the job changed since it was read."""
        try:
            return await self._status.write(job, changes)
        except (Unreachable, ServerError):
            self._gatherer.watch_from_now()  # agents could not report through the API server either
            raise

    def _attempt_memory(self, key: ObjectKey, job: JobView) -> JobMemory:
        return self._memory.entry(key, job.status.controllerJobID or "")

    def _requeue(self, key: ObjectKey) -> None:
        self.loop.queue.add(key)

    def _offers_changed(self, namespace: str) -> None:
        self._wait_reporter.nodes_changed(namespace)

    def _jobs_on(self, node: NodeView) -> list[ObjectKey]:
        return [key_of(job) for job in self._jobs.store.by(BY_NODE, key_of(node))]

    def _job_changed(self, change: ObjectChange[JobView]) -> None:
        key, job = change.key, change.new
        if job is None or job.status.phase in FINISHED:
            self._memory.forget(key)
            for pod in tuple(self.pods.store.by(BY_JOB, key)):
                if pod.status.phase in FINISHED:  # others are stale, and deleted by the next reconciliation
                    self.pods.drop(ObjectKey(key.namespace, pod.metadata.name))
        if job is None or not self._status.is_stale(key, job):
            self._placer.job_changed(change)

    def _pod_changed(self, change: ObjectChange[PodView]) -> None:
        pod = change.new or change.old
        if pod is None or (key := job_key(pod)) is None:
            return
        job = self._jobs.store.get(key)
        if job is not None and job.status.phase not in FINISHED and is_current(pod, job):
            memory = self._attempt_memory(key, job)
            memory.pod_seen = True
            memory.gone_pod = pod if change.new is None else None


def _affects_running_jobs(change: ObjectChange[NodeView]) -> bool:
    """Whether to reconcile the jobs on a node: if an agent runs them, and its conditions or runtime changed.

    Heartbeats are frequent and change neither. Pods keep running whatever the health of their VmafxNode.
    """
    old, new = change.old, change.new
    if "Agent" not in {node.spec.runtime for node in (old, new) if node is not None}:
        return False
    if old is None or new is None:
        return True
    return old.spec.runtime != new.spec.runtime or old.status.conditions != new.status.conditions


def _requeue_result(requeue_after: float | None) -> ReconcileResult:
    return ReconcileResult.done() if requeue_after is None else ReconcileResult.after(requeue_after)
