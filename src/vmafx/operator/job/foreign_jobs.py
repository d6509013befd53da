"""Jobs that other controllers run: polled every few seconds while this operator leads."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from vmafx.api.job import FINISHED, JobView
from vmafx.backoff import Backoff
from vmafx.clock import loop_time
from vmafx.jobs.state import is_foreign
from vmafx.kube import ObjectKey
from vmafx.logs import log
from vmafx.operator.job.foreign import ForeignReplies, ForeignReply, ForeignState, follow_intent, should_stop
from vmafx.runtime.store import ObjectChange

if TYPE_CHECKING:
    from vmafx.operator.job.foreign_client import ForeignController

POLL_INTERVAL, MAX_POLL_INTERVAL = 5.0, 30.0  # seconds between questions; the longest when there is no answer
BACKOFF = Backoff(POLL_INTERVAL, MAX_POLL_INTERVAL, spread=0)
MAX_CONCURRENT = 8  # questions to one controller
DEFAULT_ADDRESS = "vmafx-controller.{namespace}.svc.cluster.local:9090"


def parse_address(text: str) -> str:
    """Where controllers are: `host:port`, or `unix:` and a path."""
    host, _, port = text.rpartition(":")
    if text.startswith("unix:") or (host and "/" not in host and port.isdecimal() and 0 < int(port) < 65536):
        return text
    raise ValueError(f"{text!r} must be HOST:PORT, without a scheme, such as {DEFAULT_ADDRESS}")


class ForeignJobs:
    """Knows what other controllers say of their jobs; `look_again` is told whose state is no longer what it was."""

    def __init__(self, at: str, look_again: Callable[[ObjectKey], None]) -> None:
        self._at, self._look_again = at, look_again
        self._lines: dict[str, ControllerPoller] = {}
        self._opened = asyncio.Event()

    def about(self, key: ObjectKey, job: JobView, now: datetime) -> ForeignState:
        """What is known of such a job; what is not known yet is asked for, and what is to be stopped is stopped."""
        at, wanted = self._address_for(key), follow_intent(job, now)
        line = self._lines.get(at)
        if line is None:
            line = self._lines[at] = ControllerPoller(at, self._look_again)
            self._opened.set()
        talk = line.about(key, job.status.controllerJobID or "")
        waited = 0.0
        if should_stop(job, wanted):
            waited = line.stop(talk, for_good=wanted.end is not None)
        else:
            talk.stop_since = None
        return ForeignState(wanted, at, talk.said, waited)

    def job_changed(self, change: ObjectChange[JobView]) -> None:
        """Forget one that is over, gone, or no longer another controller's."""
        job = change.new
        if not self._lines or (job is not None and _is_followed(job)):
            return
        at = self._address_for(change.key)
        if (line := self._lines.get(at)) is not None and line.forget(change.key):
            del self._lines[at]

    async def run(self) -> None:
        """While leading: a task for each controller that has jobs."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._opened.clear()
                for line in self._lines.values():
                    if not line.taken_up:
                        line.taken_up = True
                        group.create_task(line.run())
                await self._opened.wait()

    def _address_for(self, key: ObjectKey) -> str:
        return self._at.replace("{namespace}", key.namespace)


def _is_followed(job: JobView) -> bool:
    return is_foreign(job) and job.status.phase not in FINISHED and job.metadata.deletionTimestamp is None


class ForeignPoll(msgspec.Struct, eq=False):
    """With one controller about one job."""

    job: str  # by the name that it has there
    said: ForeignReplies = ForeignReplies()
    stop_since: float | None = None  # when it was first to be asked to stop the job
    for_good: bool = False  # and not only until it is resumed
    urgent: bool = True

    @property
    def is_over(self) -> bool:
        return self.said.heard.final


class ControllerPoller:
    """One controller, and our talks with it. It ends when there is nothing left to talk about."""

    def __init__(self, at: str, look_again: Callable[[ObjectKey], None]) -> None:
        self._at, self._look_again = at, look_again
        self._talks: dict[ObjectKey, ForeignPoll] = {}
        self._needed = asyncio.Event()
        self._silences = 0  # rounds in a row that it did not answer
        self.taken_up = False

    def about(self, key: ObjectKey, job: str) -> ForeignPoll:
        talk = self._talks.get(key)
        if talk is None or talk.job != job:
            talk = self._talks[key] = ForeignPoll(job)
            self._needed.set()
        return talk

    def stop(self, talk: ForeignPoll, *, for_good: bool) -> float:
        """Let it be asked at once to stop the job, and anew if it is now for good. Seconds since that is so."""
        if talk.stop_since is None or talk.for_good != for_good:
            talk.stop_since, talk.for_good, talk.urgent = loop_time(), for_good, True
            talk.said = msgspec.structs.replace(talk.said, refusal="")
            self._needed.set()
        return loop_time() - talk.stop_since

    def forget(self, key: ObjectKey) -> bool:
        """True if that was the last."""
        if self._talks.pop(key, None) is not None:
            self._needed.set()
        return not self._talks

    async def run(self) -> None:
        """Ask about all every EVERY seconds, less often while it is silent; about what is urgent, at once."""
        from vmafx.operator.job.foreign_client import ForeignController  # noqa: PLC0415 - see there

        controller, due = ForeignController(self._at), loop_time()
        try:
            while self._talks:
                self._needed.clear()
                before, everything = self._silences, loop_time() >= due
                await self._ask_about(controller, everything=everything)
                if self._silences > before:
                    await controller.reopen()
                if self._silences > before or everything:
                    due = loop_time() + BACKOFF.delay(self._silences)
                elif self._silences < before:  # it is back: ask about everything now
                    due = loop_time()
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(due):
                        await self._needed.wait()
        finally:
            await controller.close()

    async def _ask_about(self, controller: "ForeignController", *, everything: bool) -> None:
        """One first: if the controller is silent that one finds out, and the others need not."""
        left = deque(key for key, talk in self._talks.items() if not talk.is_over and (everything or talk.urgent))
        if not left:
            return
        answered = await self._ask(controller, left.popleft())

        async def ask_on() -> None:
            nonlocal answered
            while left and answered:
                answered = await self._ask(controller, left.popleft()) and answered

        async with asyncio.TaskGroup() as group:
            for _ in range(min(MAX_CONCURRENT, len(left))):
                group.create_task(ask_on())
        self._count(answered=answered)
        for key in left:
            self._hear(key, self._talks.get(key), ForeignReplies(ForeignReply("SILENCE")))

    async def _ask(self, controller: "ForeignController", key: ObjectKey) -> bool:
        """Whether there was an answer."""
        talk = self._talks.get(key)
        if talk is None:  # forgotten in the meantime
            return True
        talk.urgent = False
        said = await controller.ask(talk.job, stop=talk.stop_since is not None and not talk.said.stopped)
        self._hear(key, talk, said)
        if said.heard.says != "SILENCE":
            return True
        if self._talks.get(key) is talk:  # next time last: it might be only this job that gets no answer
            self._talks[key] = self._talks.pop(key)
        return False

    def _hear(self, key: ObjectKey, talk: ForeignPoll | None, said: ForeignReplies) -> None:
        if talk is None or self._talks.get(key) is not talk:
            return  # the job is gone, or another's by now
        said = msgspec.structs.replace(said, stopped=said.stopped or talk.said.stopped)
        if said != talk.said:
            talk.said = said
            self._look_again(key)

    def _count(self, *, answered: bool) -> None:
        if not answered and not self._silences:
            log.warn("another controller does not answer; it is asked again until it does", address=self._at)
        elif answered and self._silences:
            log.info("another controller answers again", address=self._at)
        self._silences = 0 if answered else self._silences + 1
