"""The loops: heartbeats, work pulled and done, answers reported; and what is in hand.

Everything in hand is told with every heartbeat and pull, from when it was handed out until its result was taken or
refused: what is not told, the controller hands out again.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any

import msgspec

from vmafx.agent import controller_link
from vmafx.agent.controller_link import (
    AgentSession,
    ControllerError,
    ControllerLink,
    RegistrationInvalid,
    SessionRejected,
)
from vmafx.agent.registration import Registration
from vmafx.agent.spool import ResultSpool, SpooledResult
from vmafx.backoff import Backoff, Retries
from vmafx.clock import loop_time
from vmafx.jobs.attempt import AttemptResult
from vmafx.jobs.worker_process import WorkerInterrupted, WorkerProcess, WorkerRunner, WorkerTask
from vmafx.logs import log
from vmafx.tasks import run_unless
from vmafx.wire import controller_pb2 as wire

HEARTBEAT_INTERVAL = PROGRESS_INTERVAL = 10.0  # seconds
MIN_PULL_INTERVAL = 1.0  # seconds between two pulls that bring nothing: an old controller answers at once
BACKOFF = Backoff(0.5, 26.0, spread=0.25)  # so that a controller that is back is found within 30 s
REPORT_TIMEOUT = 5.0  # seconds for the last word, that no more work is wanted
MAX_REMEMBERED = 100  # attempts that are over; a controller whose cache lags may hand one out once more


class Superseded(Exception):
    """Another agent has our name."""


class RunningAttempt(msgspec.Struct, eq=False):
    """An attempt in hand, from pull to result."""

    id: str
    name: str
    working: bool = False  # its worker runs
    finished: bool = False  # and only has to be reported
    stopping: bool = False
    doing: asyncio.Task[None] | None = None


class Agent:
    """One machine's. `capability` says what it can do, and how many jobs at once."""

    def __init__(
        self,
        link: ControllerLink,
        request: wire.RegisterNodeRequest,
        runner: WorkerRunner,
        spool: ResultSpool,
        backend: str,
    ) -> None:
        self._link, self._runner, self._spool, self._backend = link, runner, spool, backend
        self._membership = Registration(link, request)
        self._capability = request.capability
        self._draining, self._told = False, asyncio.Event()  # told: the controller has heard of it
        self._held: dict[str, RunningAttempt] = {}
        self._left = asyncio.Event()  # something is no longer in hand
        self._doubt = asyncio.Event()  # a call was answered as if our session did not count
        self._over: deque[str] = deque(maxlen=MAX_REMEMBERED)
        self._interrupted: deque[str] = deque(maxlen=MAX_REMEMBERED)
        self._full_pull: asyncio.Task[wire.PullWorkResponse] | None = None  # that was sent with no slot free

    async def run(self, stop: asyncio.Event, at_once: asyncio.Event, drain: float) -> None:
        """Until `stop`, and then until all in hand is done and reported: for `drain` seconds, or until `at_once`.

        Superseded and link.Wrong are raised, in a group.
        """
        async with asyncio.TaskGroup() as group:
            self._group = group
            for done in self._spool.read():
                log.info("an answer was left from before", job=done.id, name=done.name)
                self._hold(RunningAttempt(done.id, done.name, finished=True), self._deliver(done))
            loops = [group.create_task(loop) for loop in (self._membership.run(), self._beat())]
            pulling = group.create_task(self._pull())
            await stop.wait()
            pulling.cancel()
            self._draining = True
            self._doubt.set()  # to be told at once
            log.info("draining: no more work is taken", jobs=len(self._held), seconds=drain)
            with suppress(TimeoutError):
                async with asyncio.timeout(drain):
                    await run_unless(at_once, self._until_held(lambda: 0))
            await self._say_goodbye(at_once)
            for held in self._held.values():
                kept = "not reported; the next start of this agent does it"
                lost = "left unfinished; the controller hands it out again"
                log.warn(kept if held.finished else lost, job=held.id, name=held.name)
                self._cancel(held)
            for task in loops:
                task.cancel()

    async def _say_goodbye(self, at_once: asyncio.Event) -> None:
        """Until the controller has heard that we drain: else our node is given jobs until its silence is noticed."""
        if self._membership.is_known():
            with suppress(TimeoutError):
                async with asyncio.timeout(REPORT_TIMEOUT):
                    await run_unless(at_once, self._told.wait())

    async def _until_held(self, most: Callable[[], int]) -> None:
        while len(self._held) > most():
            self._left.clear()
            await self._left.wait()

    async def _until_room(self, spare: int) -> None:
        """For what was handed out already, and so many more."""
        await self._until_held(lambda: self._capability.concurrency - spare)

    async def _beat(self) -> None:
        """Heartbeats; and only they tell whether we are forgotten, and register again, or superseded, and end."""
        trouble = OutageLog("heartbeats are not answered; work goes on", "heartbeats are answered again")
        while True:
            session = await self._membership.session()
            self._doubt.clear()
            working, draining = sum(held.working for held in self._held.values()), self._draining
            try:
                said = await self._link.heartbeat(session, self._running(), working, draining=draining)
            except SessionRejected as error:
                self._membership.lose(session, error)
            except ControllerError as error:
                trouble.met(error)
            else:
                trouble.over()
                if said.superseded and not said.ok:
                    raise Superseded(
                        f"another agent has registered as {session.node} since. Every machine needs a name of its own: "
                        "give this one another (--name), or stop the other. All work here was stopped"
                    )
                if said.ok:
                    if draining:
                        self._told.set()
                    self._stop(said.stop_job_ids)
                    self._resize(said.capacity)
                else:
                    self._membership.lose(session, "the heartbeat was refused")
            with suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_INTERVAL):
                    await self._doubt.wait()

    async def _pull(self) -> None:
        """Also with no slot free, to hear what to stop; but an old controller would hand out a job too many."""
        trouble = OutageLog("no work can be pulled; work in hand goes on", "work can be pulled again")
        retries = Retries(BACKOFF)
        known: AgentSession | None = None
        while True:
            session = await self._membership.session()
            if session != known:  # heartbeats tell what it has become since
                self._resize(session.capacity)
                known = session
            spare = 0 if session.capacity else 1
            await self._until_room(spare)
            began = loop_time()
            try:
                said = await self._long_poll(session)
            except SessionRejected:
                self._doubt.set()
            except ControllerError as error:
                trouble.met(error)
            else:
                trouble.over()
                retries.reset()
                if said is None:
                    continue
                self._stop(said.stop_job_ids)
                if not (said.HasField("job") and self._take(said.job)):
                    await asyncio.sleep(began + MIN_PULL_INTERVAL - loop_time())
                continue
            await asyncio.sleep(retries.next())

    def _resize(self, capacity: int) -> None:
        """The VmafxNode says how many jobs we get: were it more than we take, those would wait for us in vain."""
        if capacity and capacity != self._capability.concurrency:
            log.info("the VmafxNode's capacity counts", capacity=capacity, before=self._capability.concurrency)
            self._capability.concurrency = capacity
            self._left.set()
            if self._full_pull is not None:
                self._full_pull.cancel()

    async def _long_poll(self, session: AgentSession) -> wire.PullWorkResponse | None:
        """None if it was given up: it said that there is no slot free, and now there is one."""
        call = asyncio.ensure_future(self._link.pull(session, self._capability, self._running()))
        if len(self._held) >= self._capability.concurrency:
            self._full_pull = call
        try:
            await asyncio.wait([call])
        finally:
            self._full_pull = None
            call.cancel()
        with suppress(asyncio.CancelledError):
            return call.result()
        return None

    def _take(self, job: wire.Job) -> bool:
        """Whether there is something new to do."""
        if not job.id or job.id in self._held or job.id in self._over:
            log.debug("work that is none was handed out", job=job.id)
            return False
        log.info("taken", job=job.id, name=job.name)
        held = RunningAttempt(job.id, job.name)
        self._hold(held, self._do(held, controller_link.worker_task(job, self._backend)))
        return True

    async def _do(self, held: RunningAttempt, task: WorkerTask) -> None:
        try:
            answer = await self._worked(held, task)
        except WorkerInterrupted:
            if held.id not in self._interrupted:
                self._interrupted.append(held.id)
                log.warn("its worker was stopped; the controller hands it out again", job=held.id, name=held.name)
                return
            answer = AttemptResult(
                held.id, fault="NodeFault", message="its worker was stopped twice, and not by the agent"
            )
        if answer.fault is None:
            log.info("scored", job=held.id, name=held.name, score=answer.score, frames=answer.frames)
        else:
            log.warn("not scored", job=held.id, name=held.name, fault=answer.fault, why=answer.message)
        done = SpooledResult(held.id, held.name, answer)
        try:
            self._spool.put(done)
        except OSError as error:
            log.error("an answer cannot be kept on disk; it is lost if the agent ends", error=error.strerror)
        else:
            held.finished = True
        await self._deliver(done)

    async def _worked(self, held: RunningAttempt, task: WorkerTask) -> AttemptResult:
        async with self._runner.start(task) as job:
            held.working = True
            telling = self._group.create_task(self._tell(held, job))
            try:
                return await job.wait()
            finally:
                telling.cancel()
                held.working = False

    async def _tell(self, held: RunningAttempt, job: WorkerProcess) -> None:
        """How far it is, now and then; the answer tells whether it is still wanted."""
        while True:
            await asyncio.sleep(PROGRESS_INTERVAL)
            session = await self._membership.session()
            try:
                ok = await self._link.report(
                    session, controller_link.progress_message(held.id, held.name, job.progress())
                )
            except SessionRejected:
                self._doubt.set()
            except ControllerError as error:
                log.debug("progress was not heard", job=held.id, error=str(error))
            else:
                if not ok:
                    self._stop([held.id])
                    return

    async def _deliver(self, done: SpooledResult) -> None:
        """For as long as it takes."""
        trouble = OutageLog("a result cannot be reported; it is kept and tried again", "a result can be reported again")
        retries = Retries(BACKOFF)
        while True:
            session = await self._membership.session()
            try:
                ok = await self._link.report(session, controller_link.result_message(done))
            except SessionRejected:
                self._doubt.set()
            except RegistrationInvalid as error:
                log.error("a result is not taken, and never will be", job=done.id, why=str(error))
                ok = False
                break
            except ControllerError as error:
                trouble.met(error, job=done.id)
            else:
                trouble.over()
                break
            await asyncio.sleep(retries.next())
        log.info("reported" if ok else "the result does not count: the attempt was over", job=done.id)
        self._over.append(done.id)
        self._spool.drop(done.id)

    def _running(self) -> Iterable[wire.RunningJob]:
        return [wire.RunningJob(id=held.id, name=held.name) for held in self._held.values()]

    def _hold(self, held: RunningAttempt, doing: Coroutine[Any, Any, None]) -> None:
        """In hand until that is done, or was stopped."""
        self._held[held.id] = held
        held.doing = self._group.create_task(doing)
        held.doing.add_done_callback(lambda _: self._forget(held))

    def _forget(self, held: RunningAttempt) -> None:
        del self._held[held.id]
        self._left.set()
        if self._full_pull is not None:
            self._full_pull.cancel()

    def _stop(self, attempts: Iterable[str]) -> None:
        for attempt in attempts:
            held = self._held.get(attempt)
            if held is not None and not held.stopping:
                say = log.debug if held.finished else log.info  # of our own result it may have heard already
                say("stopped: the attempt is over", job=held.id, name=held.name)
                self._spool.drop(attempt)
                self._cancel(held)

    @staticmethod
    def _cancel(held: RunningAttempt) -> None:
        if held.doing is not None and not held.stopping:
            held.stopping = True
            held.doing.cancel()


class OutageLog:
    """Told when it begins, and when it is over; an outage of hours is two lines, not thousands."""

    def __init__(self, what: str, over: str) -> None:
        self._what, self._over = what, over
        self._kind: type[ControllerError] | None = None

    def met(self, error: ControllerError, **fields: str) -> None:
        say = log.debug if type(error) is self._kind else log.warn
        self._kind = type(error)
        say(self._what, error=str(error), **fields)

    def over(self) -> None:
        if self._kind is not None:
            log.info(self._over)
            self._kind = None
