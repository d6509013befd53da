"""Work for agents: hands out jobs placed on their nodes, and tells them which attempts to stop."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import NamedTuple

from vmafx.api.job import JobView
from vmafx.auth.cache import ExpiringCache
from vmafx.clock import loop_time, utc_now
from vmafx.controller.caches import BY_NODE, ControllerCaches, key_of, node_of
from vmafx.controller.sessions import Session
from vmafx.jobs.state import is_current_attempt, uid_of
from vmafx.kube import JOBS, Client, ObjectKey
from vmafx.kube.errors import Conflict, KubeError, NotFound
from vmafx.runtime.store import ObjectChange

JOB_VIEW = JOBS.seen_as(JobView)
LOST_AFTER = 60.0  # seconds in which an agent that took a job says that it runs one
MAX_IDLE = 10_000  # of such agents
MAX_WAITERS = 16  # jobs that the server is asked after for one call; of the others the next one tells
ReportedAttempts = Mapping[str, str]  # attempts, and the names of their jobs


class PulledWork(NamedTuple):
    job: JobView | None = None
    stop: tuple[str, ...] = ()


class _Waiter:
    """An agent that waits for work."""

    def __init__(self, running: ReportedAttempts) -> None:
        self.running = dict(running)
        self.news = asyncio.Event()


class WorkDispatcher:
    """What an agent runs, it says itself; what it is to run, stands in the jobs."""

    def __init__(
        self,
        client: Client,
        caches: ControllerCaches,
        now: Callable[[], datetime] = utc_now,
        clock: Callable[[], float] = loop_time,
    ) -> None:
        self._client, self._caches, self._now, self._clock = client, caches, now, clock
        self._waiting: dict[ObjectKey, set[_Waiter]] = {}
        self._ended: dict[str, str] = {}  # by a job's uid, the attempt that was reported and that the cache still shows
        self._idle: ExpiringCache[str, float] = ExpiringCache(
            MAX_IDLE, clock
        )  # sessions that run nothing, and since when
        self._closed = False
        caches.jobs.on_change(self._job_changed)

    def _job_changed(self, change: ObjectChange[JobView]) -> None:
        known = change.new or change.old
        if known is not None and not (change.new and node_of(change.new) and self._is_ended(change.new)):
            self._ended.pop(known.metadata.uid, None)
        for job in (change.old, change.new):
            if job is not None and (node := node_of(job)) is not None:
                self._wake(node)

    def _wake(self, node: ObjectKey) -> None:
        for waiter in self._waiting.get(node, ()):
            waiter.news.set()

    def ended(self, node: ObjectKey, attempt: str) -> None:
        """It was reported, so the agent has room for another: also one that began to wait before."""
        job = self._caches.job(attempt)
        if job is not None and is_current_attempt(job, attempt, node):
            self._ended[job.metadata.uid] = attempt
        for waiter in self._waiting.get(node, ()):
            waiter.running.pop(attempt, None)
        self._wake(node)

    def close(self) -> None:
        """Nobody waits any longer: the process is about to end."""
        self._closed = True
        for node in self._waiting:
            self._wake(node)

    async def pull(self, node: ObjectKey, running: ReportedAttempts, most: int, wait: float) -> PulledWork:
        """The next job of the node, or what to stop, as soon as there is either; nothing after `wait` seconds."""
        until, waiter = loop_time() + wait, _Waiter(running)
        self._waiting.setdefault(node, set()).add(waiter)
        try:
            while True:
                waiter.news.clear()
                if stop := await self.over(node, dict(waiter.running)):
                    return PulledWork(stop=stop)
                if len(waiter.running) < most and (job := self._next(node, waiter.running)) is not None:
                    return PulledWork(job)
                if self._closed:
                    return PulledWork()
                try:
                    async with asyncio.timeout_at(until):
                        await waiter.news.wait()
                except TimeoutError:
                    return PulledWork()
        finally:
            self._waiting[node].discard(waiter)
            if not self._waiting[node]:
                del self._waiting[node]

    def heard(self, session: Session, running: int) -> None:
        """How many jobs it runs, which is all that an old agent says."""
        since = self._idle.get(session.id) or self._clock()
        self._idle.put(session.id, since, 0.0 if running else self._clock() + 2 * LOST_AFTER)

    async def claim(self, session: Session) -> JobView | None:
        """For an agent that does not say what it runs: the next job that it has not taken yet, marked as taken.

        What was taken before it registered, it has lost; and so it has what it took long ago, if it runs nothing.
        """
        lost_before, idle_since = session.begun, self._idle.get(session.id)
        if idle_since is not None and self._clock() - idle_since >= LOST_AFTER:
            lost_before = max(lost_before, self._now().timestamp() - LOST_AFTER)
        for job in self._placed(session.node):
            if job.status.claimedAt is None or job.status.claimedAt.timestamp() < lost_before:
                try:
                    return await self._client.patch_status(
                        JOB_VIEW, key_of(job), {"claimedAt": self._now()}, version=job.metadata.resourceVersion
                    )
                except (Conflict, NotFound):  # it changed: the next time it is asked for, we know how
                    continue
        return None

    async def over(self, node: ObjectKey, running: ReportedAttempts) -> tuple[str, ...]:
        """Those that are no longer the node's: cancelled, suspended, deleted, given to another."""
        over, asked = [], 0
        for attempt, name in running.items():
            job = self._caches.job(attempt)
            if job is not None and is_current_attempt(job, attempt, node):
                continue
            asked += 1
            if asked <= MAX_WAITERS and not await self._goes_on(node, job, attempt, name):
                over.append(attempt)
        return tuple(over)

    def _is_ended(self, job: JobView) -> bool:
        return self._ended.get(job.metadata.uid) == job.status.controllerJobID

    async def _goes_on(self, node: ObjectKey, job: JobView | None, attempt: str, name: str) -> bool:
        if not name:  # nothing to ask the server by
            return job is None or not _is_past(job, attempt)
        try:  # the cache may be behind: before work is thrown away, the server itself is asked
            return is_current_attempt(await self._client.get(JOB_VIEW, ObjectKey(node.namespace, name)), attempt, node)
        except NotFound:
            return False
        except (KubeError, ValueError):
            return True

    def _next(self, node: ObjectKey, running: ReportedAttempts) -> JobView | None:
        return next((job for job in self._placed(node) if job.status.controllerJobID not in running), None)

    def _placed(self, node: ObjectKey) -> list[JobView]:
        """In the order in which they were placed, nearly: the longest waiting first."""
        jobs = [job for job in self._caches.jobs.store.by(BY_NODE, node) if _is_to_run(job) and not self._is_ended(job)]
        return sorted(jobs, key=lambda job: (-job.spec.priority, job.metadata.creationTimestamp or self._now()))


def _is_to_run(job: JobView) -> bool:
    ours = uid_of(job.status.controllerJobID or "") == job.metadata.uid
    return ours and not job.spec.cancel and not job.spec.suspend and job.metadata.deletionTimestamp is None


def _is_past(job: JobView, attempt: str) -> bool:
    """Whether the job has had this attempt, and has another one now or none."""
    number = attempt.rpartition("-")[2]
    return number.isdecimal() and int(number) < job.status.attempts and job.status.controllerJobID != attempt
