"""Reports of agents: the progress and the result of an attempt, written to the job's status."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from vmafx.api.job import JobProgress, JobView
from vmafx.auth.cache import ExpiringCache
from vmafx.clock import loop_time, utc_now
from vmafx.controller.caches import ControllerCaches
from vmafx.controller.sessions import Session
from vmafx.http.errors import StatusError
from vmafx.jobs.attempt import AttemptResult, uid_of
from vmafx.jobs.metrics import JobMetrics
from vmafx.jobs.outcome import failed_attempt, outcome_of
from vmafx.jobs.outcome_writer import OutcomeWriter
from vmafx.jobs.state import is_current_attempt
from vmafx.kube import JOBS, Client, ObjectKey, key_of
from vmafx.kube.errors import Conflict, Invalid, NotFound
from vmafx.runtime.events import EventRecorder
from vmafx.runtime.metrics import Metrics

JOB_VIEW = JOBS.decoded_as(JobView)
PROGRESS_WRITE_INTERVAL = 20.0  # seconds, at least, between two writes of a job's progress
MAX_PROGRESS_JOBS = 100_000  # whose last write of progress is remembered
MAX_TRIES = 8
LIST_INTERVAL = 1.0  # seconds, at least, between two lists of a node's jobs
LISTS_TTL, MAX_LISTED_NODES = 60.0, 10_000


class _PlacedJobs:
    """The running jobs of one node, as last listed."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.tried = self.started = float("-inf")  # when the last list was started, and the last that succeeded
        self.jobs: Sequence[JobView] = ()


class ResultRecorder:
    """The only writer of results of agents. It accepts reports for a job's current attempt only."""

    def __init__(
        self,
        client: Client,
        caches: ControllerCaches,
        events: EventRecorder,
        metrics: Metrics,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._client, self._caches, self._now = client, caches, now
        self._outcomes = OutcomeWriter(self._patch_status, events, JobMetrics(metrics), now)
        # By attempt: this replica has written its progress within PROGRESS_WRITE_INTERVAL.
        self._progress_written: ExpiringCache[str, bool] = ExpiringCache(MAX_PROGRESS_JOBS, loop_time)
        self._placed: ExpiringCache[ObjectKey, _PlacedJobs] = ExpiringCache(MAX_LISTED_NODES, loop_time)

    async def record_progress(self, session: Session, attempt: str, name: str, progress: JobProgress) -> bool:
        """Write the progress, at most once per PROGRESS_WRITE_INTERVAL, and claimedAt with the first report.

        False if the attempt is not the job's current one.
        """
        job = await self._find_job(session, attempt, name)
        if job is None or not is_current_attempt(job, attempt, session.node):
            return False
        if job.status.claimedAt is not None and self._progress_written.get(attempt):
            return True
        self._progress_written.put(attempt, True, loop_time() + PROGRESS_WRITE_INTERVAL)
        while True:
            try:
                await self._client.json_patch(
                    JOB_VIEW, key_of(job), self._progress_patch(job, attempt, progress), "status"
                )
            except (Invalid, NotFound):  # the attempt has ended, it is claimed already, or the value is rejected
                latest = await self._get(key_of(job))
                if latest is None or not is_current_attempt(latest, attempt, session.node):
                    return False
                if job.status.claimedAt is not None or latest.status.claimedAt is None:
                    return True
                job = latest  # the cache was stale
            else:
                return True

    def _progress_patch(self, job: JobView, attempt: str, progress: JobProgress) -> list[dict[str, Any]]:
        """It is rejected if the cache is stale: an attempt ends once, and is claimed once."""
        operations: list[dict[str, Any]] = [
            {"op": "test", "path": "/metadata/uid", "value": job.metadata.uid},
            {"op": "test", "path": "/status/controllerJobID", "value": attempt},
            {"op": "test", "path": "/status/phase", "value": "Running"},
            {"op": "add", "path": "/status/progress", "value": msgspec.to_builtins(progress)},
        ]
        if job.status.claimedAt is None:
            operations += [
                {"op": "test", "path": "/status/claimedAt", "value": None},  # is absent
                {"op": "add", "path": "/status/claimedAt", "value": self._now()},
            ]
        return operations

    async def record_result(self, session: Session, attempt: str, name: str, result: AttemptResult | None) -> bool:
        """End the attempt: the job finishes or is retried. `result` is None if it could not be decoded.

        False if the attempt is not the job's current one.
        """
        job = await self._find_job(session, attempt, name)
        for _ in range(MAX_TRIES):
            if job is None:
                return False
            if not is_current_attempt(job, attempt, session.node):
                return _is_repeated(job, attempt, result)
            if result is not None:
                outcome = outcome_of(job, result)
            else:
                outcome = failed_attempt(job, "the agent sent an invalid result")
            try:
                await self._outcomes.end(job, outcome)
            except Conflict:
                job = await self._get(key_of(job))
            except NotFound:
                return False
            else:
                return True
        raise StatusError("ABORTED", f"the job {name or attempt} is being changed by others; report the result again")

    async def _patch_status(self, job: JobView, changes: dict[str, Any]) -> JobView:
        return await self._client.patch_status(JOB_VIEW, key_of(job), changes, job.metadata.resourceVersion)

    async def _find_job(self, session: Session, attempt: str, name: str) -> JobView | None:
        """The job of an attempt, from the cache, or from the API server if the cache is stale."""
        job = self._caches.find_job(attempt)
        if job is not None and is_current_attempt(job, attempt, session.node):
            return job
        if name or job is not None:
            key = ObjectKey(session.node.namespace, name or (job.metadata.name if job is not None else ""))
            job = await self._get(key)
        else:  # old agents do not send the name
            job = await self._find_placed(session.node, uid_of(attempt))
        return job if job is not None and job.metadata.uid == uid_of(attempt) else None

    async def _find_placed(self, node: ObjectKey, uid: str) -> JobView | None:
        """List the jobs of the node. Reports that wait share the next list, so that an agent cannot cause many."""
        called_at, placed = loop_time(), self._placed.get(node) or _PlacedJobs()
        self._placed.put(node, placed, called_at + LISTS_TTL)
        async with placed.lock:
            if placed.started < called_at:  # the job may have been placed since
                await asyncio.sleep(placed.tried + LIST_INTERVAL - loop_time())
                placed.tried = loop_time()
                fields = f"status.assignedNode={node.name},status.phase=Running"
                placed.jobs = (await self._client.list(JOB_VIEW, node.namespace, fields=fields)).items
                placed.started = placed.tried
            return next((job for job in placed.jobs if job.metadata.uid == uid), None)

    async def _get(self, key: ObjectKey) -> JobView | None:
        try:
            return await self._client.get(JOB_VIEW, key)
        except (NotFound, ValueError):
            return None


def _is_repeated(job: JobView, attempt: str, result: AttemptResult | None) -> bool:
    """Whether this result has already ended the job: an agent repeats a report if it got no reply."""
    if job.status.controllerJobID != attempt:
        return False
    if result is not None and result.score is not None:
        return job.status.phase == "Succeeded"
    reasons = {condition.reason for condition in job.status.conditions if condition.type == "Failed"}
    return bool(reasons & {"BadInput", "RetriesExhausted"})
