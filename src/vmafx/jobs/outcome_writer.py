"""Writes the outcome of an attempt: status, event, metrics and log; for the operator and the controller alike."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Literal

from vmafx.api.job import JobView
from vmafx.api.meta import API_VERSION
from vmafx.jobs.metrics import JobMetrics
from vmafx.jobs.outcome import Fail, Outcome, Retry, Succeed, Suspend, failed_attempt, status_after
from vmafx.kube import JOBS, ObjectKey
from vmafx.kube.errors import Invalid
from vmafx.logs import log
from vmafx.runtime.events import EventRecorder, EventSubject
from vmafx.text import one_line


def emit_outcome(events: EventRecorder, job: JobView, step: Outcome) -> None:
    match step:
        case Succeed(answer):
            frames = f", {answer.frames} frames" if answer.frames else ""
            emit_event(events, job, "Normal", "Scored", f"VMAF {answer.score:.3f}{frames}")
        case Fail(reason, message):
            emit_event(events, job, "Warning", reason, message)
        case Retry(message):
            emit_event(events, job, "Warning" if step.failed else "Normal", "Retrying", message)
        case Suspend():
            emit_event(events, job, "Normal", "Suspended", "stopped, since spec.suspend is true")


def emit_event(events: EventRecorder, job: JobView, kind: Literal["Normal", "Warning"], reason: str, note: str) -> None:
    meta = job.metadata
    events.emit(EventSubject(API_VERSION, JOBS.kind, meta.namespace, meta.name, meta.uid), kind, reason, "Run", note)


StatusWrite = Callable[[JobView, dict[str, Any]], Awaitable[JobView | None]]  # None: somebody else wrote first


class OutcomeWriter:
    """`write` puts changes into a job's status, if nobody wrote since."""

    def __init__(
        self, write: StatusWrite, events: EventRecorder, metrics: JobMetrics, now: Callable[[], datetime]
    ) -> None:
        self._write, self._events, self._metrics, self._now = write, events, metrics, now

    async def end(self, job: JobView, step: Outcome) -> bool:
        """The attempt is over, and maybe the job: written, then counted, logged and told; False if it was not written.

        A result that the server refuses to keep is a failure of whoever gave it.
        """
        now = self._now()
        try:
            if await self._write(job, status_after(job, step, now)) is None:
                return False
        except Invalid as error:
            if not isinstance(step, Succeed):
                raise
            return await self.end(job, failed_attempt(job, f"its result cannot be kept: {error}"))
        self._metrics.record_outcome(job, step, now)
        _log_end(job, step)
        emit_outcome(self._events, job, step)
        return True


def _log_end(job: JobView, step: Outcome) -> None:
    """One line. Who reads the log of all jobs need not look up what a single one says."""
    status = job.status
    about: dict[str, Any] = {"job": str(ObjectKey(job.metadata.namespace, job.metadata.name))}
    if status.assignedNode:
        about |= {"node": status.assignedNode, "attempt": status.attempts}
    match step:
        case Succeed(answer):
            log.info("job succeeded", **about, score=answer.score, frames=answer.frames)
        case Fail("DeadlineExceeded", message):
            log.info("deadline exceeded", **about, error=one_line(message))
        case Fail("Cancelled"):
            log.info("job cancelled", **about)
        case Fail(reason, message):
            log.info("job failed", **about, reason=reason, error=one_line(message))
        case Retry(message):
            text = "attempt failed, will retry" if step.failed else "attempt disrupted, will retry"
            log.info(text, **about, error=one_line(message))
        case Suspend():
            log.info("job suspended", **about)
