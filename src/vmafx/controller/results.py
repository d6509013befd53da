"""What agents report: how far they are, and how it ended. One patch ends a job, or lets it be tried elsewhere."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from vmafx.api.job import JobProgress, JobView
from vmafx.clock import loop_time, utc_now
from vmafx.controller.caches import ControllerCaches, key_of
from vmafx.controller.sessions import Session
from vmafx.http.errors import CallRefused
from vmafx.jobs.attempt import AttemptResult
from vmafx.jobs.metrics import JobMetrics
from vmafx.jobs.outcome import failed_attempt, outcome_of
from vmafx.jobs.outcome_writer import OutcomeWriter
from vmafx.jobs.state import is_current_attempt, uid_of
from vmafx.kube import JOBS, Client, ObjectKey
from vmafx.kube.errors import Conflict, Invalid, NotFound
from vmafx.runtime.events import EventRecorder
from vmafx.runtime.metrics import Metrics
from vmafx.runtime.store import ObjectChange

JOB_VIEW = JOBS.seen_as(JobView)
PROGRESS_WRITE_INTERVAL = 20.0  # seconds between two writes of a job's progress, at least
MAX_TRIES = 8


class ResultRecorder:
    """The one writer of how jobs end that agents run. The name of the attempt is the fence: any other is too late."""

    def __init__(
        self,
        client: Client,
        caches: ControllerCaches,
        events: EventRecorder,
        metrics: Metrics,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._client, self._caches, self._now = client, caches, now
        self._ending = OutcomeWriter(self._write, events, JobMetrics(metrics), now)
        self._told: dict[str, float] = {}  # jobs by uid, and when we last wrote how far they are
        caches.jobs.on_change(self._job_changed)

    def _job_changed(self, change: ObjectChange[JobView]) -> None:
        if change.old is not None and (change.new is None or change.new.status.phase != "Running"):
            self._told.pop(change.old.metadata.uid, None)

    async def progress(self, session: Session, attempt: str, name: str, so_far: JobProgress) -> bool:
        """Write it down now and then; the first time also says that the job was taken."""
        job = await self._job(session, attempt, name)
        if job is None or not is_current_attempt(job, attempt, session.node):
            return False
        uid, now = job.metadata.uid, loop_time()
        if (
            job.status.claimedAt is not None
            and now - self._told.get(uid, now - PROGRESS_WRITE_INTERVAL) < PROGRESS_WRITE_INTERVAL
        ):
            return True
        self._told[uid] = now
        operations: list[dict[str, Any]] = [
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "test", "path": "/status/controllerJobID", "value": attempt},
            {"op": "test", "path": "/status/phase", "value": "Running"},  # the cache may not show yet that it ended
            {"op": "add", "path": "/status/progress", "value": msgspec.to_builtins(so_far)},
        ]
        if job.status.claimedAt is None:
            operations.append({"op": "add", "path": "/status/claimedAt", "value": self._now()})
        try:
            await self._client.json_patch(JOB_VIEW, key_of(job), operations, "status")
        except (Invalid, NotFound):  # it has been given to another, or is over; or this progress cannot be kept
            now_is = await self._live(key_of(job))
            return now_is is not None and is_current_attempt(now_is, attempt, session.node)
        return True

    async def final(self, session: Session, attempt: str, name: str, answer: AttemptResult | None) -> bool:
        """The end of an attempt; False if it came too late. `answer` is None where it makes no sense."""
        job = await self._job(session, attempt, name)
        for _ in range(MAX_TRIES):
            if job is None:
                return False
            if not is_current_attempt(job, attempt, session.node):
                return _heard_already(job, attempt, answer)
            step = (
                outcome_of(job, answer)
                if answer is not None
                else failed_attempt(job, "its agent's answer makes no sense")
            )
            try:
                await self._ending.end(job, step)
            except Conflict:
                job = await self._live(key_of(job))
            except NotFound:
                return False
            else:
                return True
        raise CallRefused("ABORTED", f"the job {name or attempt} is being written by others; report it again")

    async def _write(self, job: JobView, changes: dict[str, Any]) -> JobView:
        return await self._client.patch_status(JOB_VIEW, key_of(job), changes, job.metadata.resourceVersion)

    async def _job(self, session: Session, attempt: str, name: str) -> JobView | None:
        """The job of this attempt: as the cache has it, or, where that does not fit, as the server has."""
        job = self._caches.job(attempt)
        if job is not None and is_current_attempt(job, attempt, session.node):
            return job
        if name or job is not None:
            key = ObjectKey(session.node.namespace, name or (job.metadata.name if job is not None else ""))
            job = await self._live(key)
        else:  # from an old agent, of a job that the cache does not show
            job = await self._placed(session.node, uid_of(attempt))
        return job if job is not None and job.metadata.uid == uid_of(attempt) else None

    async def _placed(self, node: ObjectKey, uid: str) -> JobView | None:
        fields = f"status.assignedNode={node.name},status.phase=Running"
        jobs = (await self._client.list(JOB_VIEW, node.namespace, fields=fields)).items
        return next((job for job in jobs if job.metadata.uid == uid), None)

    async def _live(self, key: ObjectKey) -> JobView | None:
        try:
            return await self._client.get(JOB_VIEW, key)
        except (NotFound, ValueError):
            return None


def _heard_already(job: JobView, attempt: str, answer: AttemptResult | None) -> bool:
    """Whether the job ended by this very answer, of which only our thanks were lost."""
    if job.status.controllerJobID != attempt:
        return False
    if answer is not None and answer.score is not None:
        return job.status.phase == "Succeeded"
    reasons = {one.reason for one in job.status.conditions if one.type == "Failed"}
    return bool(reasons & {"BadInput", "RetriesExhausted"})
