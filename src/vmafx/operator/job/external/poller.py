"""Polls external controllers about their jobs, every few seconds while this operator leads."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from vmafx.api.job import FINISHED, JobView
from vmafx.backoff import Backoff
from vmafx.clock import loop_time
from vmafx.jobs.state import Age, is_external
from vmafx.kube import ObjectKey
from vmafx.logs import log
from vmafx.operator.job.external.decide import ExternalReply, ExternalState, PollResult, external_intent, should_stop
from vmafx.runtime.store import ObjectChange

if TYPE_CHECKING:
    from vmafx.operator.job.external.client import ExternalController

POLL_INTERVAL, MAX_POLL_INTERVAL = 5.0, 30.0  # seconds; the longer one while a controller does not answer
BACKOFF = Backoff(POLL_INTERVAL, MAX_POLL_INTERVAL, spread=0)
MAX_CONCURRENT = 8  # polls of one controller
DEFAULT_ADDRESS = "vmafx-controller.{namespace}.svc.cluster.local:9090"


def parse_address(text: str) -> str:
    """The address of a controller: `host:port`, or `unix:` and a path."""
    host, _, port = text.rpartition(":")
    if text.startswith("unix:") or (host and "/" not in host and port.isdecimal() and 0 < int(port) < 65536):
        return text
    raise ValueError(f"{text!r} must be HOST:PORT, without a scheme, such as {DEFAULT_ADDRESS}")


class ExternalJobs:
    """The state of all external jobs. Calls `requeue` with the key of a job whose state changed."""

    def __init__(self, address: str, requeue: Callable[[ObjectKey], None]) -> None:
        self._address, self._requeue = address, requeue
        self._pollers: dict[str, ControllerPoller] = {}
        self._poller_added = asyncio.Event()

    def state(self, key: ObjectKey, job: JobView, age: Age) -> ExternalState:
        """What is known about an external job. Starts polling it, and asks its controller to stop it if it should."""
        address, intent = self._address_for(key), external_intent(job, age)
        poller = self._pollers.get(address)
        if poller is None:
            poller = self._pollers[address] = ControllerPoller(address, self._requeue)
            self._poller_added.set()
        polled = poller.follow(key, job.status.controllerJobID or "")
        stopping_for = 0.0
        if should_stop(job, intent):
            stopping_for = poller.stop(polled, for_good=intent.end is not None)
        else:
            polled.stop_since = None
        return ExternalState(intent, address, polled.result, stopping_for)

    def job_changed(self, change: ObjectChange[JobView]) -> None:
        """Stop polling a job that is finished, deleted, or no longer external."""
        job = change.new
        if not self._pollers or (job is not None and _is_followed(job)):
            return
        address = self._address_for(change.key)
        if (poller := self._pollers.get(address)) is not None and poller.forget(change.key):
            del self._pollers[address]

    async def run(self) -> None:
        """Run a task for each controller that has jobs; leader only."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._poller_added.clear()
                for poller in self._pollers.values():
                    if not poller.started:
                        poller.started = True
                        group.create_task(poller.run())
                await self._poller_added.wait()

    def _address_for(self, key: ObjectKey) -> str:
        return self._address.replace("{namespace}", key.namespace)


def _is_followed(job: JobView) -> bool:
    return is_external(job) and job.status.phase not in FINISHED and job.metadata.deletionTimestamp is None


class PolledJob(msgspec.Struct, eq=False):
    """One job that a controller is polled about."""

    job: str  # its id at that controller
    result: PollResult = PollResult()
    stop_since: float | None = None  # when a stop was first requested
    for_good: bool = False  # the stop is an end, not a suspension
    urgent: bool = True  # poll at once


class ControllerPoller:
    """Polls one controller. Its task ends when no job is left."""

    def __init__(self, address: str, requeue: Callable[[ObjectKey], None]) -> None:
        self._address, self._requeue = address, requeue
        self._jobs: dict[ObjectKey, PolledJob] = {}
        self._wake = asyncio.Event()
        self._failed_rounds = 0  # in a row, without any reply
        self.started = False

    def follow(self, key: ObjectKey, job: str) -> PolledJob:
        polled = self._jobs.get(key)
        if polled is None or polled.job != job:
            polled = self._jobs[key] = PolledJob(job)
            self._wake.set()
        return polled

    def stop(self, polled: PolledJob, *, for_good: bool) -> float:
        """Have the next poll ask the controller to stop the job; returns the seconds since the first such request.

        A change between suspension and end counts as a new request.
        """
        if polled.stop_since is None or polled.for_good != for_good:
            polled.stop_since, polled.for_good, polled.urgent = loop_time(), for_good, True
            polled.result = msgspec.structs.replace(polled.result, refusal="")
            self._wake.set()
        return loop_time() - polled.stop_since

    def forget(self, key: ObjectKey) -> bool:
        """Stop polling a job; True if it was the last."""
        if self._jobs.pop(key, None) is not None:
            self._wake.set()
        return not self._jobs

    async def run(self) -> None:
        """Poll all jobs every POLL_INTERVAL, less often while there is no reply; urgent jobs at once."""
        from vmafx.operator.job.external.client import ExternalController  # noqa: PLC0415 - imports grpc

        controller, due = ExternalController(self._address), loop_time()
        try:
            while self._jobs:
                self._wake.clear()
                failed_before, everything = self._failed_rounds, loop_time() >= due
                await self._poll_round(controller, everything=everything)
                if self._failed_rounds > failed_before:
                    await controller.reopen()
                if self._failed_rounds > failed_before or everything:
                    due = loop_time() + BACKOFF.delay(self._failed_rounds)
                elif self._failed_rounds < failed_before:  # it answers again: poll all jobs now
                    due = loop_time()
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(due):
                        await self._wake.wait()
        finally:
            await controller.close()

    async def _poll_round(self, controller: "ExternalController", *, everything: bool) -> None:
        """Poll one job first: if it gets no reply, the others are not polled and count as unanswered."""
        keys = deque(
            key
            for key, polled in self._jobs.items()
            if not polled.result.reply.is_final and (everything or polled.urgent)
        )
        if not keys:
            return
        answered = await self._poll(controller, keys.popleft())

        async def poll_rest() -> None:
            nonlocal answered
            while keys and answered:
                answered = await self._poll(controller, keys.popleft()) and answered

        async with asyncio.TaskGroup() as group:
            for _ in range(min(MAX_CONCURRENT, len(keys))):
                group.create_task(poll_rest())
        if not answered and not self._failed_rounds:
            log.warn("external controller does not answer, retrying", address=self._address)
        elif answered and self._failed_rounds:
            log.info("external controller answers again", address=self._address)
        self._failed_rounds = 0 if answered else self._failed_rounds + 1
        for key in keys:
            self._record(key, self._jobs.get(key), PollResult(ExternalReply("NO_REPLY")))

    async def _poll(self, controller: "ExternalController", key: ObjectKey) -> bool:
        """Whether there was a reply."""
        polled = self._jobs.get(key)
        if polled is None:  # forgotten meanwhile
            return True
        polled.urgent = False
        result = await controller.poll(polled.job, stop=polled.stop_since is not None and not polled.result.stopped)
        self._record(key, polled, result)
        if result.reply.state != "NO_REPLY":
            return True
        if self._jobs.get(key) is polled:  # last in the next round: perhaps only this job gets no reply
            self._jobs[key] = self._jobs.pop(key)
        return False

    def _record(self, key: ObjectKey, polled: PolledJob | None, result: PollResult) -> None:
        if polled is None or self._jobs.get(key) is not polled:
            return  # the job was forgotten, or has another id by now
        result = msgspec.structs.replace(result, stopped=result.stopped or polled.result.stopped)
        if result != polled.result:
            polled.result = result
            self._requeue(key)
