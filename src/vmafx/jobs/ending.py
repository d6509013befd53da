"""Writes how attempts end: one way, for whoever learns of it. The operator does for Pods, the controller for agents."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

from vmafx.api.job import JobView
from vmafx.jobs.events import tell_end
from vmafx.jobs.metrics import JobMetrics
from vmafx.jobs.outcomes import Leaving, Succeed, failed
from vmafx.jobs.status import left
from vmafx.kube.errors import Invalid
from vmafx.runtime.events import EventRecorder

Write = Callable[[JobView, dict[str, Any]], Awaitable[JobView | None]]  # None: somebody else wrote first


class Ending:
    """`write` puts changes into a job's status, if nobody wrote since."""

    def __init__(self, write: Write, events: EventRecorder, metrics: JobMetrics, now: Callable[[], datetime]) -> None:
        self._write, self._events, self._metrics, self._now = write, events, metrics, now

    async def end(self, job: JobView, step: Leaving) -> bool:
        """The attempt is over, and maybe the job: written, counted, and told unless all went well; False if it was not.

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
        tell_end(self._events, job, step)
        return True
