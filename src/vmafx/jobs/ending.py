"""Writes how attempts end: one way, for whoever learns of it. The operator does for Pods, the controller for agents."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

from vmafx.api.job import JobView
from vmafx.jobs.events import tell_end
from vmafx.jobs.metrics import JobMetrics
from vmafx.jobs.outcomes import Fail, Leaving, Succeed, Suspend, TryAgain, failed
from vmafx.jobs.status import left
from vmafx.kube import Key
from vmafx.kube.errors import Invalid
from vmafx.logs import log
from vmafx.plain import plain
from vmafx.runtime.events import EventRecorder

Write = Callable[[JobView, dict[str, Any]], Awaitable[JobView | None]]  # None: somebody else wrote first


class Ending:
    """`write` puts changes into a job's status, if nobody wrote since."""

    def __init__(self, write: Write, events: EventRecorder, metrics: JobMetrics, now: Callable[[], datetime]) -> None:
        self._write, self._events, self._metrics, self._now = write, events, metrics, now

    async def end(self, job: JobView, step: Leaving) -> bool:
        """The attempt is over, and maybe the job: written, then counted, logged and told; False if it was not written.

        A result that the server refuses to keep is a failure of whoever gave it.
        """
        now = self._now()
        try:
            if await self._write(job, left(job, step, now)) is None:
                return False
        except Invalid as error:
            if not isinstance(step, Succeed):
                raise
            return await self.end(job, failed(job, f"its result cannot be kept: {error}"))
        self._metrics.left(job, step, now)
        _log_end(job, step)
        tell_end(self._events, job, step)
        return True


def _log_end(job: JobView, step: Leaving) -> None:
    """One line. Who reads the log of all jobs need not look up what a single one says."""
    status = job.status
    about: dict[str, Any] = {"job": str(Key(job.metadata.namespace, job.metadata.name))}
    if status.assignedNode:
        about |= {"node": status.assignedNode, "attempt": status.attempts}
    match step:
        case Succeed(answer):
            log.info("job succeeded", **about, score=answer.score, frames=answer.frames)
        case Fail("DeadlineExceeded", message):
            log.info("deadline exceeded", **about, error=plain(message))
        case Fail("Cancelled"):
            log.info("job cancelled", **about)
        case Fail(reason, message):
            log.info("job failed", **about, reason=reason, error=plain(message))
        case TryAgain(message):
            text = "attempt failed, will retry" if step.failed else "attempt disrupted, will retry"
            log.info(text, **about, error=plain(message))
        case Suspend():
            log.info("job suspended", **about)
