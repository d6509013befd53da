"""Writes the outcome of an attempt: status, event, metrics and log. Used by the operator and the controller."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Literal

from vmafx.api.job import JobView
from vmafx.api.meta import API_VERSION
from vmafx.jobs.metrics import JobMetrics
from vmafx.jobs.outcome import Fail, Outcome, Retry, Succeed, Suspend, failed_attempt, status_after
from vmafx.kube import JOBS, key_of
from vmafx.kube.errors import Invalid
from vmafx.logs import log
from vmafx.runtime.events import EventRecorder, EventSubject
from vmafx.text import one_line

StatusWrite = Callable[[JobView, dict[str, Any]], Awaitable[JobView | None]]  # None: the job was changed meanwhile


class OutcomeWriter:
    """`write` patches the status of a job unless the job was changed since it was read."""

    def __init__(
        self, write: StatusWrite, events: EventRecorder, metrics: JobMetrics, now: Callable[[], datetime]
    ) -> None:
        self._write, self._events, self._metrics, self._now = write, events, metrics, now

    async def end(self, job: JobView, outcome: Outcome) -> bool:
        """Write the outcome, then count it, log it and emit its event; false if the job was changed meanwhile.

        A score that the API server rejects becomes a failed attempt.
        """
        now = self._now()
        try:
            if await self._write(job, status_after(job, outcome, now)) is None:
                return False
        except Invalid as error:
            if not isinstance(outcome, Succeed):
                raise
            return await self.end(job, failed_attempt(job, f"the API server rejected the result: {error}"))
        self._metrics.record_outcome(job, outcome, now)
        _log_outcome(job, outcome)
        _emit_outcome(self._events, job, outcome)
        return True


def _log_outcome(job: JobView, outcome: Outcome) -> None:
    """One line with all facts, so that no reader of the log has to look up the job."""
    status = job.status
    fields: dict[str, Any] = {"job": str(key_of(job))}
    if status.assignedNode:
        fields |= {"node": status.assignedNode, "attempt": status.attempts - 1}
    match outcome:
        case Succeed(result):
            log.info("job succeeded", **fields, score=result.score, frames=result.frames)
        case Fail("DeadlineExceeded", message):
            log.info("deadline exceeded", **fields, error=one_line(message))
        case Fail("Cancelled"):
            log.info("job cancelled", **fields)
        case Fail(reason, message):
            log.info("job failed", **fields, reason=reason, error=one_line(message))
        case Retry(message):
            text = "attempt failed, will retry" if outcome.failed else "attempt disrupted, will retry"
            log.info(text, **fields, error=one_line(message))
        case Suspend():
            log.info("job suspended", **fields)


def _emit_outcome(events: EventRecorder, job: JobView, outcome: Outcome) -> None:
    match outcome:
        case Succeed(result):
            frames = f", {result.frames} frames" if result.frames else ""
            emit_event(events, job, "Normal", "Scored", f"VMAF {result.score:.3f}{frames}")
        case Fail(reason, message):
            emit_event(events, job, "Warning", reason, message)
        case Retry(message):
            emit_event(events, job, "Warning" if outcome.failed else "Normal", "Retrying", message)
        case Suspend():
            emit_event(events, job, "Normal", "Suspended", "stopped because spec.suspend is true")


def emit_event(events: EventRecorder, job: JobView, kind: Literal["Normal", "Warning"], reason: str, note: str) -> None:
    """Emit an event about a job."""
    meta = job.metadata
    events.emit(EventSubject(API_VERSION, JOBS.kind, meta.namespace, meta.name, meta.uid), kind, reason, "Run", note)
