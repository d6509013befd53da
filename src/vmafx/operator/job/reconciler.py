"""The VmafxJob controller: places jobs, runs attempts as Pods, watches over those of agents, writes what came of it."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any

from vmafx.api.job import FINISHED, JobView
from vmafx.api.node import NodeView
from vmafx.jobs import status as ends
from vmafx.jobs.events import tell, tell_end
from vmafx.jobs.metrics import JobMetrics
from vmafx.jobs.outcomes import Leaving, Succeed, failed
from vmafx.kube import JOBS, Client, Key
from vmafx.kube.core import PODS
from vmafx.kube.errors import Conflict, Invalid, NotFound, ServerError, Unreachable
from vmafx.operator.job import decide as steps
from vmafx.operator.job import status
from vmafx.operator.job.cache import BY_JOB, BY_NODE, Caches, job_of, keys_of
from vmafx.operator.job.counting import Counting
from vmafx.operator.job.finished import Finished
from vmafx.operator.job.following import DEFAULT_ADDRESS, Following
from vmafx.operator.job.making import Found, Made, NotAllowed, PodMaking
from vmafx.operator.job.metrics import FleetGauges
from vmafx.operator.job.placing import Placing
from vmafx.operator.job.pod import PodSettings, pod_name
from vmafx.operator.job.podview import PodView
from vmafx.operator.job.tally import FinishedTally
from vmafx.runtime.controller import Controller, Result
from vmafx.runtime.events import EventRecorder
from vmafx.runtime.metrics import Metrics
from vmafx.runtime.store import Change
from vmafx.scheduling.scheduler import POD_ONLY
from vmafx.times import utc_now

VIEW = JOBS.seen_as(JobView)
TELL_AFTER = 30.0  # seconds of waiting


class JobReconciler:
    """One writer for the life of a job, from Pending to its end."""

    def __init__(
        self,
        client: Client,
        caches: Caches,
        events: EventRecorder,
        metrics: Metrics,
        settings: PodSettings,
        now: Callable[[], datetime] = utc_now,
        *,
        controllers: str = DEFAULT_ADDRESS,
    ) -> None:
        jobs, nodes, pods = caches
        self._client, self._jobs, self._nodes, self._pods = client, jobs, nodes, pods
        self._events, self._now = events, now
        self.placing = Placing(now, self._look_again, self._look_in_time)
        self._making = PodMaking(client, caches, settings, now)
        self._following = Following(controllers, self._look_again)
        self._seen: dict[Key, str] = {}  # the attempt of each job whose Pod the cache has shown
        self._written: dict[Key, int] = {}  # versions of our own writes that the cache does not show yet
        self._echoes: dict[Key, str] = {}  # versions of writes after which there is nothing to do until more happens
        self._waits: dict[Key, datetime] = {}  # since when jobs are in the queue, until that is told
        self._watched_since: datetime | None = None
        self._finished = Finished(client, jobs.namespace, now)
        self._tally = FinishedTally(client, jobs)
        self._counting = Counting(client, nodes, self.placing.scheduler)
        self._all_metrics, self._metrics = metrics, JobMetrics(metrics)
        self._gauges = FleetGauges(jobs, nodes, self.placing.scheduler, self._tally.counts)
        metrics.registry.register(self._gauges)
        for part in (self._finished, self._tally, self._following):
            jobs.on_change(part.job_changed)
        jobs.on_change(self._job_changed)
        nodes.on_change(self.placing.node_changed)
        pods.on_change(self._pod_changed)

    def controller(self, workers: int) -> Controller:
        controller = Controller("vmafxjob", self.reconcile, self._all_metrics, workers=workers)
        controller.watches(self._jobs, when=self._is_news)
        controller.watches(self._pods, to=keys_of)
        controller.watches(self._nodes, to=self._jobs_on, when=_concerns_what_runs)
        self._queue = controller.queue
        return controller

    async def lead(self) -> None:
        """What only a leader does beside reconciling."""
        self._gauges.leads, self._watched_since = True, self._now()
        self.placing.lead()
        async with asyncio.TaskGroup() as group:
            for part in (self._finished, self._tally, self._counting, self._following):
                group.create_task(part.run())

    def _look_again(self, key: Key) -> None:
        self._queue.add(key)

    def _look_in_time(self, key: Key) -> None:
        self._queue.add(key, low=True)

    def has_jobs(self, node: Key) -> bool:
        return bool(self._jobs.store.by(BY_NODE, node))

    def _jobs_on(self, node: NodeView) -> list[Key]:
        meta = node.metadata
        jobs = self._jobs.store.by(BY_NODE, Key(meta.namespace, meta.name))
        return [Key(job.metadata.namespace, job.metadata.name) for job in jobs]

    def _job_changed(self, change: Change[JobView]) -> None:
        if change.new is None or change.new.status.phase in FINISHED:
            self._forget(change.key)
        if change.new is None or not self._is_old(change.key, change.new):
            self.placing.job_changed(change)

    def _forget(self, key: Key) -> None:
        """It is over, or gone."""
        for memory in (self._seen, self._written, self._waits, self._echoes):
            memory.pop(key, None)
        self._making.forget(key)
        for one in tuple(self._pods.store.by(BY_JOB, key)):
            if one.status.phase in FINISHED:  # else something is left of it, which is to end
                self._pods.drop(Key(key.namespace, one.metadata.name))

    def _pod_changed(self, change: Change[PodView]) -> None:
        one = change.new
        if one is not None and (job := job_of(one)) is not None:
            self._see(job, one)

    def _see(self, key: Key, one: PodView) -> None:
        job = self._jobs.store.get(key)
        if job is not None and steps.is_current(one, job):
            self._seen[key] = job.status.controllerJobID or ""

    def _is_old(self, key: Key, job: JobView) -> bool:
        """Whether this is from before our last write: deciding on it would decide the same again."""
        return int(job.metadata.resourceVersion or 0) < self._written.get(key, 0)

    def _is_news(self, change: Change[JobView]) -> bool:
        job = change.new
        return job is None or self._echoes.pop(change.key, None) != job.metadata.resourceVersion

    async def reconcile(self, key: Key) -> Result:
        job = self._jobs.store.get(key)
        if job is not None and self._is_old(key, job):
            self._echoes.pop(key, None)  # whatever brought us here has to wait for it
            return Result.done()
        await self._sweep(key, job)
        if job is None:
            return Result.done()
        self._written.pop(key, None)
        if job.status.phase == "Pending" and (node := self.placing.place_of(key)) is not None:
            return await self._place(key, job, node)
        found = self._pods.store.get(Key(key.namespace, pod_name(job, job.status.attempts - 1)))
        if found is not None:
            self._see(key, found)
        seen = bool(job.status.controllerJobID) and self._seen.get(key) == job.status.controllerJobID
        return await self._do(key, job, self._decide(key, job, found, seen=seen))

    def _decide(self, key: Key, job: JobView, found: PodView | None, *, seen: bool) -> steps.Step:
        node = self._nodes.store.get(Key(key.namespace, job.status.assignedNode or ""))
        step = steps.decide(job, self._now(), steps.Around(node, found, seen, self._watched_since))
        return self._following.step(key, job, step) if isinstance(step, steps.Follow) else step

    async def _do(self, key: Key, job: JobView, step: steps.Step) -> Result:
        now = self._now()
        after: float | None = None
        match step:
            case steps.Nothing(after):
                pass
            case steps.Queue(after):
                return await self._queued(key, job, after)
            case steps.Hold(reason, message, after):
                if job.status.phase == "Pending":
                    self.placing.look_at(key, job)
                await self._write(key, job, status.waiting(job, reason, message, now))
            case steps.Say(message, after):
                said = await self._write(key, job, status.says(message))
                if message and said is not None:
                    tell(self._events, job, "Warning", "NotStarted", message)
            case steps.Mirror(after=after):
                await self._write(key, job, status.mirrored(job, step, now))
            case steps.Adopt(node):
                return await self._place(key, job, node)
            case steps.MakePod(left):
                return await self._make_pod(key, job, left, look=True)
            case _:
                await self._leave(key, job, step)
        return _again(after)

    async def _leave(self, key: Key, job: JobView, step: Leaving) -> None:
        """The attempt is over, and maybe the job; people are told unless all went well."""
        now = self._now()
        try:
            if await self._write(key, job, ends.left(job, step, now)) is None:
                return
        except Invalid as error:
            if not isinstance(step, Succeed):
                raise
            await self._leave(key, job, failed(job, f"its result cannot be kept: {error}"))
            return
        self._metrics.left(job, step, now)
        tell_end(self._events, job, step)

    async def _queued(self, key: Key, job: JobView, after: float | None) -> Result:
        """It waits for a node, and its status says why; if it waits for long, an event says so too."""
        self.placing.look_at(key, job)
        self.placing.ask()  # before it is said that there is no place
        if (node := self.placing.place_of(key)) is not None:
            return await self._place(key, job, node)
        why = self.placing.why(key)
        if why is None:
            return Result.after(steps.LOOK_AGAIN)  # it is no longer in the queue, which a look will tell
        now = self._now()
        await self._write(key, job, status.waiting(job, why.reason, why.message, now))
        if not status.waits_because(job, why.reason) and self._jobs.store.get(key) is not None:
            self._waits[key] = now
        since = self._waits.get(key)
        if since is None:  # it was told
            return _again(after)
        to_tell = TELL_AFTER - (now - since).total_seconds()
        if to_tell > 0:
            return Result.after(steps.sooner(to_tell, after))
        del self._waits[key]
        tell(self._events, job, "Warning", why.reason, f"waits for a node: {why.message}")
        return _again(after)

    async def _place(self, key: Key, job: JobView, node: str) -> Result:
        """Write the placement, then make its Pod: the status is the fence behind which no other attempt counts."""
        now, target = self._now(), self._nodes.store.get(Key(key.namespace, node))
        if target is None:  # gone since, or named by somebody else and not there yet
            return await self._not_there(key, job, status.waiting(job, "NoNodes", f"there is no VmafxNode {node}", now))
        with_agent = target.spec.runtime == "Agent"
        if with_agent and job.spec.credentialsSecretRef is not None:  # named by somebody else, or changed since
            return await self._not_there(key, job, status.waiting(job, *POD_ONLY, now))
        placed = await self._write(key, job, status.placed(job, target, now))
        if placed is None:
            return Result.retry()
        self.placing.written(key)
        if key in self._written:  # what else there is to do is done here
            self._echoes[key] = placed.metadata.resourceVersion
        self._waits.pop(key, None)
        self._metrics.placed(job, now)
        if with_agent:
            return await self._do(key, placed, self._decide(key, placed, None, seen=False))
        return await self._make_pod(key, placed, None, look=False)

    async def _not_there(self, key: Key, job: JobView, says_why: dict[str, Any]) -> Result:
        self.placing.give_up(key)
        self.placing.look_at(key, job)
        await self._write(key, job, says_why)
        return Result.after(steps.LOOK_AGAIN)

    async def _make_pod(self, key: Key, job: JobView, left: float | None, *, look: bool) -> Result:
        match await self._making.make(key, job, look=look):
            case Made(after, at_last):
                if at_last:
                    await self._write(key, job, status.says(""))
                return Result.after(steps.sooner(after, left))
            case Found(one):
                return await self._do(key, job, self._decide(key, job, one, seen=True))
            case NotAllowed(why, untold, after):
                if untold:
                    tell(self._events, job, "Warning", "FailedCreate", why)
                    await self._write(key, job, status.says(f"{why}; asked for again"))
                return Result.after(steps.sooner(after, left))
            case over:
                await self._leave(key, job, over)
                return Result.done()

    async def _sweep(self, key: Key, job: JobView | None) -> None:
        """End Pods of attempts that are no longer the job's: cancelled, suspended, given up."""
        going = [one for one in self._pods.store.by(BY_JOB, key) if steps.goes_on(one)]
        if job is None and going:
            job = await self._over(key)
        for one in going:
            if job is not None and steps.is_left_over(one, job):
                with suppress(NotFound, Conflict):
                    await self._client.delete(PODS, Key(key.namespace, one.metadata.name), uid=one.metadata.uid)

    async def _over(self, key: Key) -> JobView | None:
        """A job that the cache does not have: over, or gone, in which case its Pods go without us; or not yet there."""
        try:
            return await self._client.get(VIEW, key)
        except NotFound:
            return None

    async def _write(self, key: Key, job: JobView, changes: dict[str, Any]) -> JobView | None:
        """Write if nobody wrote since; None if somebody did, whose write brings us back here."""
        if not changes:
            return job
        try:
            new = await self._client.patch_status(VIEW, key, changes, version=job.metadata.resourceVersion)
        except (Conflict, NotFound):
            return None
        except (Unreachable, ServerError):
            self._watched_since = self._now()  # meanwhile agents could not say a word either
            raise
        seen = self._jobs.store.get(key)
        if seen is not None and int(seen.metadata.resourceVersion) < int(new.metadata.resourceVersion):
            self._written[key] = int(new.metadata.resourceVersion)  # the watch may well be faster than the answer
        return new


def _concerns_what_runs(change: Change[NodeView]) -> bool:
    """Whether jobs that have the node are to be looked at. Its heartbeats are many, and none of their business.

    Nor is a Pod concerned with the health of its VmafxNode, which turns for all of them when the controller goes.
    """
    old, new = change.old, change.new
    if "Agent" not in {one.spec.runtime for one in (old, new) if one is not None}:
        return False
    if old is None or new is None:
        return True
    return old.spec.runtime != new.spec.runtime or old.status.conditions != new.status.conditions


def _again(after: float | None) -> Result:
    return Result.done() if after is None else Result.after(after)
