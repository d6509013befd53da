"""Writes to jobs why they wait for a node: the least urgent of the operator's writes, and with a backlog the most."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import datetime
from itertools import chain
from typing import Any, TypeVar

from vmafx.api.job import JobView
from vmafx.jobs.outcome_writer import emit_event
from vmafx.kube import ObjectKey
from vmafx.kube.errors import KubeError, ServerError, TooManyRequests, Unreachable
from vmafx.logs import log
from vmafx.operator.job.placement import Placer
from vmafx.operator.job.status import is_waiting_for, waiting_status
from vmafx.runtime.conditions import has_condition
from vmafx.runtime.events import EventRecorder
from vmafx.runtime.store import Store
from vmafx.scheduling.requirements import NamespacedName, PendingCause, PendingReason, Requirements

REPORT_DELAY = 3.0  # seconds that a job waits before its reason is written
CHECK_DELAY = 1.0  # seconds between a change of a node and the check whether jobs now wait for other reasons
EVENT_DELAY = 30.0  # seconds from that write until an event says so, too
NO_FREE_SLOT: PendingReason = "InsufficientCapacity"  # ordinary queueing: shown in the status, without an event
FULL = PendingCause(NO_FREE_SLOT, "")
MAX_CONCURRENT_REPORTS = 2
MAX_PAUSES, PAUSE = 50, 0.02  # of a report while the operator has other work; seconds
BATCH = 500  # jobs that are queued without a pause for other tasks

K = TypeVar("K")
Write = Callable[[JobView, dict[str, Any]], Awaitable[JobView | None]]


class WaitReporter:
    """Reports on jobs that still wait after REPORT_DELAY, and on those whose reason changed.

    `is_busy` tells whether the operator has other work, such as the health of nodes and placements: it comes first.
    """

    def __init__(
        self,
        jobs: Store[JobView],
        placer: Placer,
        write: Write,
        events: EventRecorder,
        is_busy: Callable[[], bool],
        now: Callable[[], datetime],
        clock: Callable[[], float],
    ) -> None:
        self._jobs, self._placer, self._write, self._events = jobs, placer, write, events
        self._is_busy, self._now, self._clock = is_busy, now, clock
        # By job: when it is due. All delays of one dict are equal, so that the first key is due first.
        self._reports: dict[ObjectKey, float] = {}
        self._announcements: dict[ObjectKey, float] = {}  # events about jobs that no node can take
        self._checks: dict[str, float] = {}  # by namespace, after a change of its nodes
        self._reasons: dict[str, dict[Requirements, PendingCause]] = {}  # by namespace, as of the last check
        self._added = asyncio.Event()

    def job_waits(self, key: ObjectKey) -> None:
        """The job has no node: report it after REPORT_DELAY if that is still so."""
        self._add(self._reports, key, REPORT_DELAY)

    def nodes_changed(self, namespace: str) -> None:
        """Check, once for all changes within CHECK_DELAY, which jobs wait for other reasons now."""
        self._add(self._checks, namespace, CHECK_DELAY)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(MAX_CONCURRENT_REPORTS):
                group.create_task(self._report_all())

    async def _report_all(self) -> None:
        while True:
            if (namespace := self._take_due(self._checks)) is not None:
                await self._check(namespace)
            elif (announced := self._take_due(self._announcements)) is not None:
                self._announce(announced)
            elif (reported := self._take_due(self._reports)) is not None:
                await self._report(reported)
            else:
                await self._sleep()
            await asyncio.sleep(0)  # most jobs need no write: other tasks must have their turn between them

    async def _report(self, key: ObjectKey) -> None:
        if self._unreported(key) is None:
            return
        await self._let_other_work_finish()
        if (found := self._unreported(key)) is None:
            return
        job, cause = found
        try:
            written = await self._write(job, waiting_status(job, cause.reason, cause.message, self._now()))
        except (Unreachable, ServerError, TooManyRequests) as error:
            log.warn("could not write why a job waits, will retry", job=str(key), error=str(error))
            self.job_waits(key)
            await asyncio.sleep(REPORT_DELAY)
        except KubeError as error:  # such as an admission policy: tried again when the job or its reason changes
            log.warn("could not write why a job waits", job=str(key), error=str(error))
        else:
            if written is None:  # the job changed meanwhile
                self.job_waits(key)
            elif cause.reason != NO_FREE_SLOT and not is_waiting_for(job, cause.reason):
                self._add(self._announcements, key, EVENT_DELAY)

    def _unreported(self, key: ObjectKey) -> tuple[JobView, PendingCause] | None:
        """A job and why it waits; None if it does not wait, or has that in its status."""
        job, cause = self._jobs.get(key), self._placer.cause(key)
        if job is None or cause is None:
            return None
        if cause.reason == NO_FREE_SLOT:  # the number of slots changes too often
            is_reported = is_waiting_for(job, cause.reason)
        else:
            is_reported = has_condition(job, "Scheduled", "False", cause.reason, cause.message)
        return None if is_reported else (job, cause)

    def _announce(self, key: ObjectKey) -> None:
        job, cause = self._jobs.get(key), self._placer.cause(key)
        if job is not None and cause is not None and cause.reason != NO_FREE_SLOT:
            emit_event(self._events, job, "Warning", cause.reason, f"waits for a node: {cause.message}")

    async def _check(self, namespace: str) -> None:
        """Report on the jobs whose reason is not that of the last check."""
        before, now = self._reasons.pop(namespace, {}), dict[Requirements, PendingCause]()
        changed = list[list[NamespacedName]]()
        for requirements, cause, jobs in self._placer.scheduler.pending_groups(namespace):
            now[requirements] = FULL if cause.reason == NO_FREE_SLOT else cause
            if before.get(requirements) != now[requirements]:
                changed.append(list(jobs))
        if now:
            self._reasons[namespace] = now
        for number, job in enumerate(chain.from_iterable(changed)):
            self.job_waits(ObjectKey(*job))
            if number % BATCH == BATCH - 1:
                await asyncio.sleep(0)

    async def _let_other_work_finish(self) -> None:
        """Wait until the operator is not busy; a job must not wait for its reason for ever, though."""
        for _ in range(MAX_PAUSES):
            if not self._is_busy():
                break
            await asyncio.sleep(PAUSE)

    async def _sleep(self) -> None:
        """Until something is due or added."""
        due = min(self._first_due(self._reports), self._first_due(self._announcements), self._first_due(self._checks))
        self._added.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(None if due == math.inf else due - self._clock()):
                await self._added.wait()

    def _add(self, queue: dict[K, float], key: K, delay: float) -> None:
        if not queue:  # otherwise an earlier key is due first
            self._added.set()
        queue.setdefault(key, self._clock() + delay)

    def _first_due(self, queue: Mapping[Any, float]) -> float:
        return next(iter(queue.values()), math.inf)

    def _take_due(self, queue: dict[K, float]) -> K | None:
        """Remove the first key and return it, if it is due."""
        if self._first_due(queue) > self._clock():
            return None
        key = next(iter(queue))
        del queue[key]
        return key
