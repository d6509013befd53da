"""Dispatch of work to agents: the jobs placed on their nodes, and the attempts that they must stop."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

import msgspec

from vmafx.api.job import JobView
from vmafx.auth.cache import ExpiringCache, FailureLimiter
from vmafx.clock import loop_time, utc_now
from vmafx.controller.caches import BY_NODE, ControllerCaches, node_of
from vmafx.controller.sessions import Session
from vmafx.jobs.attempt import uid_of
from vmafx.jobs.state import is_current_attempt
from vmafx.kube import JOBS, Client, ObjectKey, key_of
from vmafx.kube.errors import Conflict, KubeError, NotFound
from vmafx.runtime.store import ObjectChange

JOB_VIEW = JOBS.decoded_as(JobView)
LOST_AFTER = 60.0  # seconds after which an old agent that runs fewer jobs than it has claimed has lost one
MAX_OLD_AGENTS = 10_000
MAX_POLLS = 4  # long polls per node: an agent needs one, and ends of broken connections are noticed late
MAX_LOOKUPS = 16  # jobs looked up in the Kubernetes API per call; the next call checks the others
# Of one node: lookups in a burst, and seconds after which there may be another one.
LOOKUP_BURST, LOOKUP_INTERVAL = 64, 1 / 16
MAX_LOOKUP_NODES = 10_000
ReportedAttempts = Mapping[str, str]  # the attempts that an agent runs, with the names of their jobs


class PulledWork(NamedTuple):
    job: JobView | None = None
    stop: tuple[str, ...] = ()


class _LongPoll:
    """A PullWork call that waits for work."""

    def __init__(self, running: ReportedAttempts) -> None:
        self.running = dict(running)
        self.changed = asyncio.Event()
        self.ended = False

    def end(self) -> None:
        self.ended = True
        self.changed.set()


class _OldAgent(msgspec.Struct):
    """The claims of an old agent's session. The agent reports only how many jobs it runs, not which.

    claims       by attempt: when this process first knew of the claim, in monotonic time
    running      attempts that it certainly ran: claimed when it last reported as many jobs as it had claimed
    missing      by how many it runs fewer
    short_since  since when, in monotonic time
    """

    claims: dict[str, float] = {}
    running: frozenset[str] = frozenset()
    missing: int = 0
    short_since: float = 0.0

    def has_claimed(self, job: JobView, session: Session) -> bool:
        """Whether this session has claimed the job. A claim made before the agent registered is lost with it."""
        claimed, attempt = job.status.claimedAt, job.status.controllerJobID or ""
        # The time alone is not enough: the cache may be stale, and the clock set back since the agent registered.
        return attempt in self.claims or (claimed is not None and claimed.timestamp() >= session.started)

    def record(self, claimed: frozenset[str], count: int, clock: float) -> None:
        """Note how many jobs the agent runs, while the cache shows that it has claimed these."""
        recent = {attempt: since for attempt, since in self.claims.items() if clock - since < LOST_AFTER}
        self.claims = recent | {attempt: self.claims.get(attempt, clock) for attempt in claimed}
        before, self.missing = self.missing, max(0, len(claimed) - count)
        if not self.missing:
            self.running = claimed
            return
        self.running &= claimed
        if len(self.running) > count:
            self.running = frozenset()
        if not before:
            self.short_since = clock

    def lost(self, claimed: Iterable[JobView], clock: float) -> frozenset[str]:
        """The attempts that the agent does not run: as many as are missing, and the oldest that may be among them."""
        if clock - self.short_since < LOST_AFTER:
            return frozenset()
        attempts = [job.status.controllerJobID or "" for job in sorted(claimed, key=_claim_order)]
        doubtful = [
            attempt
            for attempt in attempts
            if attempt not in self.running and clock - self.claims.get(attempt, clock) >= LOST_AFTER
        ]
        return frozenset(doubtful[: self.missing])

    def claim(self, attempt: str, clock: float) -> None:
        if attempt in self.claims:  # again: the next heartbeats show whether others are lost, too
            self.short_since = clock
        self.claims[attempt] = clock


class WorkDispatcher:
    """Compares what an agent reports to run with the jobs that are placed on its node.

    Agents of the original service do not report what they run: they claim one job after another instead.
    """

    def __init__(
        self,
        client: Client,
        caches: ControllerCaches,
        now: Callable[[], datetime] = utc_now,
        clock: Callable[[], float] = loop_time,
    ) -> None:
        self._client, self._caches, self._now, self._clock = client, caches, now, clock
        self._polls: dict[ObjectKey, list[_LongPoll]] = {}  # of each node, the oldest first
        self._ended: dict[str, str] = {}  # by job uid: the attempt whose end was reported but is not in the cache yet
        self._old_agents: ExpiringCache[str, _OldAgent] = ExpiringCache(MAX_OLD_AGENTS, clock)  # by session
        self._lookups: FailureLimiter[ObjectKey] = FailureLimiter(
            LOOKUP_BURST, LOOKUP_INTERVAL, clock, MAX_LOOKUP_NODES
        )
        self._closed = False
        caches.jobs.on_change(self._job_changed)

    def _job_changed(self, change: ObjectChange[JobView]) -> None:
        latest = change.new or change.old
        if latest is not None and not (change.new and node_of(change.new) and self._has_ended(change.new)):
            self._ended.pop(latest.metadata.uid, None)
        for job in (change.old, change.new):
            if job is not None and (node := node_of(job)) is not None:
                self._wake(node)

    def _wake(self, node: ObjectKey) -> None:
        for poll in self._polls.get(node, ()):
            poll.changed.set()

    def attempt_ended(self, node: ObjectKey, attempt: str) -> None:
        """Free the attempt's slot at once, also for a PullWork call that is already waiting."""
        job = self._caches.find_job(attempt)
        if job is not None and is_current_attempt(job, attempt, node):
            self._ended[job.metadata.uid] = attempt
        for poll in self._polls.get(node, ()):
            poll.running.pop(attempt, None)
        self._wake(node)

    def close(self) -> None:
        """End all long polls, since the process is stopping."""
        self._closed = True
        for node in self._polls:
            self._wake(node)

    async def pull(self, node: ObjectKey, running: ReportedAttempts, capacity: int, wait: float) -> PulledWork:
        """Return the node's next job or the attempts to stop; neither if there are none within `wait` seconds.

        If the node has more than MAX_POLLS, its oldest one ends: the agent has probably left it.
        """
        deadline, poll = loop_time() + wait, _LongPoll(running)
        polls = self._polls.setdefault(node, [])
        polls.append(poll)
        if len(polls) > MAX_POLLS:
            polls[-MAX_POLLS - 1].end()
        try:
            while True:
                poll.changed.clear()
                if stop := await self.attempts_to_stop(node, dict(poll.running)):
                    return PulledWork(stop=stop)
                if len(poll.running) < capacity and (job := self._next(node, poll.running)) is not None:
                    return PulledWork(job)
                if self._closed or poll.ended:
                    return PulledWork()
                try:
                    async with asyncio.timeout_at(deadline):
                        await poll.changed.wait()
                except TimeoutError:
                    return PulledWork()
        finally:
            polls.remove(poll)
            if not polls:
                del self._polls[node]

    async def attempts_to_stop(self, node: ObjectKey, running: ReportedAttempts) -> tuple[str, ...]:
        """The attempts that are no longer the node's: cancelled, suspended, deleted, or placed elsewhere."""
        stop, lookups = [], 0
        for attempt, name in running.items():
            job = self._caches.find_job(attempt)
            if job is not None and is_current_attempt(job, attempt, node):
                continue
            lookups += 1
            if lookups <= MAX_LOOKUPS and not await self._may_continue(node, job, attempt, name):
                stop.append(attempt)
        return tuple(stop)

    async def _may_continue(self, node: ObjectKey, job: JobView | None, attempt: str, name: str) -> bool:
        """Check with the API server, since the cache may be stale; if in doubt, the attempt continues."""
        if not name:
            return job is None or not _is_superseded(job, attempt)
        if self._lookups.is_limited(node):
            return True
        self._lookups.record(node)
        try:
            return is_current_attempt(await self._client.get(JOB_VIEW, ObjectKey(node.namespace, name)), attempt, node)
        except NotFound:
            return False
        except (KubeError, ValueError):
            return True

    def record_running_count(self, session: Session, running: int) -> None:
        """Note how many jobs an old agent runs, which is all that it reports."""
        agent, clock = self._old_agent(session), self._clock()
        claimed = [job for job in self._placed_jobs(session.node) if agent.has_claimed(job, session)]
        agent.record(frozenset(job.status.controllerJobID or "" for job in claimed), running, clock)
        self._old_agents.put(session.id, agent, clock + 2 * LOST_AFTER)

    def _old_agent(self, session: Session) -> _OldAgent:
        agent = self._old_agents.get(session.id)
        if agent is None:
            agent = _OldAgent()
            self._old_agents.put(session.id, agent, self._clock() + 2 * LOST_AFTER)
        return agent

    async def claim(self, session: Session) -> JobView | None:
        """Return the next job that the node has not claimed yet and mark it as claimed, for an old agent.

        A job can be claimed again if it was lost: claimed before the agent registered; or claimed LOST_AFTER ago by an
        agent that has run fewer jobs than it claimed ever since, because it never got the reply with the job.
        """
        agent, clock = self._old_agent(session), self._clock()
        placed = self._placed_jobs(session.node)
        claimed = [job for job in placed if agent.has_claimed(job, session)]
        lost = agent.lost(claimed, clock)
        for job in placed:
            attempt = job.status.controllerJobID or ""
            if job in claimed and attempt not in lost:
                continue
            try:
                taken = await self._client.patch_status(
                    JOB_VIEW, key_of(job), {"claimedAt": self._now()}, version=job.metadata.resourceVersion
                )
            except (Conflict, NotFound):  # the job changed; the cache will have it at the agent's next call
                continue
            agent.claim(attempt, clock)
            return taken
        return None

    def _next(self, node: ObjectKey, running: ReportedAttempts) -> JobView | None:
        return next((job for job in self._placed_jobs(node) if job.status.controllerJobID not in running), None)

    def _placed_jobs(self, node: ObjectKey) -> list[JobView]:
        """By priority, then by age."""
        placed = self._caches.jobs.store.by(BY_NODE, node)
        jobs = [job for job in placed if _should_run(job) and not self._has_ended(job)]
        return sorted(jobs, key=lambda job: (-job.spec.priority, job.metadata.creationTimestamp or self._now()))

    def _has_ended(self, job: JobView) -> bool:
        return self._ended.get(job.metadata.uid) == job.status.controllerJobID


def _claim_order(job: JobView) -> tuple[float, str]:
    claimed = job.status.claimedAt
    return claimed.timestamp() if claimed is not None else 0.0, job.metadata.name


def _should_run(job: JobView) -> bool:
    has_own_attempt = uid_of(job.status.controllerJobID or "") == job.metadata.uid
    return has_own_attempt and not job.spec.cancel and not job.spec.suspend and job.metadata.deletionTimestamp is None


def _is_superseded(job: JobView, attempt: str) -> bool:
    """Whether this was an earlier attempt of the job."""
    number = attempt.rpartition("-")[2]
    return number.isdecimal() and int(number) < job.status.attempts and job.status.controllerJobID != attempt
