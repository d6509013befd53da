"""The agent's loops: send heartbeats, pull work, run a worker for each job, report results.

An attempt is held from the pull until its result is accepted or rejected. Every heartbeat and pull lists the held
attempts: the controller sends an attempt that is not listed again.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from vmafx.agent import controller_link
from vmafx.agent.controller_link import (
    BACKOFF,
    AgentSession,
    ControllerError,
    ControllerLink,
    InvalidRequest,
    OutageLog,
    SessionRejected,
)
from vmafx.agent.registration import Registration
from vmafx.agent.samples import SampleSender, SampleSpool, SpooledSamples
from vmafx.agent.spool import ResultSpool, SpooledResult
from vmafx.api.scoring import MAX_THREADS
from vmafx.backoff import Retries
from vmafx.clock import loop_time
from vmafx.jobs.attempt import MAX_MESSAGE, AttemptResult
from vmafx.jobs.worker_process import WorkerInterrupted, WorkerProcess, WorkerRunner, WorkerTask
from vmafx.logs import log
from vmafx.tasks import run_unless
from vmafx.text import one_line
from vmafx.training.samples import MAX_BATCH_BYTES
from vmafx.wire import controller_pb2 as wire

HEARTBEAT_INTERVAL = PROGRESS_INTERVAL = 10.0  # seconds
MIN_PULL_INTERVAL = 1.0  # seconds between two pulls without work: an old controller answers immediately
DRAIN_REPORT_TIMEOUT = 5.0  # seconds to tell the controller that the agent is draining
MAX_ENDED = 100  # ended attempts to remember: a controller with a stale cache may assign one again


class Superseded(Exception):
    """Another agent has registered with the same name."""


class HeldAttempt(msgspec.Struct, eq=False):
    """An attempt from its pull until its result is reported."""

    id: str
    name: str  # of the VmafxJob
    samples_token: str = ""  # if its samples are wanted
    working: bool = False  # its worker runs
    finished: bool = False  # its result is on disk, to be reported
    stopping: bool = False
    task: asyncio.Task[None] | None = None


class AgentSpools(NamedTuple):
    """What the agent keeps on disk until the controller has it."""

    results: ResultSpool
    samples: SampleSpool


class Agent:
    """The agent of one machine. `request` describes the machine and its capacity."""

    def __init__(
        self,
        link: ControllerLink,
        request: wire.RegisterNodeRequest,
        runner: WorkerRunner,
        spools: AgentSpools,
        backend: str,
        cores: int,
    ) -> None:
        self._link, self._runner, self._spool = link, runner, spools.results
        self._backend, self._cores = backend, cores
        self._registration = Registration(link, request)
        self._heartbeat_now = asyncio.Event()  # do not wait for the next interval
        self._samples = SampleSender(link, self._registration, spools.samples, self._heartbeat_now.set)
        self._capability = request.capability
        self._draining, self._drain_reported = False, asyncio.Event()
        self._held: dict[str, HeldAttempt] = {}
        self._slots_changed = asyncio.Event()
        self._ended: deque[str] = deque(maxlen=MAX_ENDED)
        self._interrupted: deque[str] = deque(maxlen=MAX_ENDED)
        self._full_pull: asyncio.Task[wire.PullWorkResponse] | None = None  # sent while no slot was free

    async def run(self, stop: asyncio.Event, stop_now: asyncio.Event, drain: float) -> None:
        """Run until `stop`, then drain: finish and report held attempts for `drain` seconds, or until `stop_now`.

        Raises Superseded and InvalidRequest in an exception group.
        """
        async with asyncio.TaskGroup() as group:
            self._group = group
            for done in self._spool.read():
                log.info("found an unreported result", job=done.name, attempt=done.id)
                self._hold(HeldAttempt(done.id, done.name, finished=True), self._report_result(done))
            loops = [
                group.create_task(loop)
                for loop in (self._registration.run(), self._send_heartbeats(), self._samples.run())
            ]
            pulling = group.create_task(self._pull_work())
            await stop.wait()
            pulling.cancel()
            self._draining = True
            self._heartbeat_now.set()
            log.info("draining", jobs=len(self._held), seconds=drain)
            with suppress(TimeoutError):
                async with asyncio.timeout(drain):
                    await run_unless(stop_now, self._wait_until_held(lambda: 0))
            await self._wait_until_drain_reported(stop_now)
            for held in self._held.values():
                kept = "result not reported; it is kept for the next start"
                lost = "job stopped before it finished; it will be placed again"
                log.warn(kept if held.finished else lost, job=held.name, attempt=held.id)
                self._cancel(held)
            for task in loops:
                task.cancel()

    async def _wait_until_drain_reported(self, stop_now: asyncio.Event) -> None:
        """A controller that does not know that the agent drains places jobs on its node until heartbeats are missed."""
        if self._registration.is_registered():
            with suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_REPORT_TIMEOUT):
                    await run_unless(stop_now, self._drain_reported.wait())

    async def _wait_until_held(self, limit: Callable[[], int]) -> None:
        """Wait until at most `limit` attempts are held."""
        while len(self._held) > limit():
            self._slots_changed.clear()
            await self._slots_changed.wait()

    async def _wait_for_free_slots(self, count: int) -> None:
        """0: until no more attempts are held than there are slots, which may have become fewer."""
        await self._wait_until_held(lambda: self._capability.concurrency - count)

    async def _send_heartbeats(self) -> None:
        """Only heartbeats decide whether the session is lost (register again) or superseded (exit)."""
        outage = OutageLog("heartbeat failed; running jobs continue", "heartbeats succeed again")
        while True:
            session = await self._registration.session()
            self._heartbeat_now.clear()
            working, draining = sum(held.working for held in self._held.values()), self._draining
            try:
                response = await self._link.heartbeat(session, self._held_jobs(), working, draining=draining)
            except SessionRejected as error:
                self._registration.lose(session, error)
            except ControllerError as error:
                outage.failed(error)
            else:
                outage.recovered()
                if response.superseded and not response.ok:
                    raise Superseded(
                        f"another agent has registered as {session.node}, and all jobs here were stopped. "
                        "Every machine needs its own name: change this one (--name), or stop the other agent"
                    )
                if response.ok:
                    if draining:
                        self._drain_reported.set()
                    self._stop(response.stop_job_ids)
                    self._resize(response.capacity)
                else:
                    self._registration.lose(session, "the heartbeat was refused")
            with suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_INTERVAL):
                    await self._heartbeat_now.wait()

    async def _pull_work(self) -> None:
        """Pull also while no slot is free: the response lists attempts to stop.

        Not from an old controller, which does not report a capacity: it would assign one job too many.
        """
        outage = OutageLog("cannot pull work; running jobs continue", "pulling work again")
        retries = Retries(BACKOFF)
        known: AgentSession | None = None
        while True:
            session = await self._registration.session()
            if session != known:  # later changes come with heartbeats
                self._resize(session.capacity)
                known = session
            await self._wait_for_free_slots(0 if session.capacity else 1)
            began = loop_time()
            try:
                response = await self._long_poll(session)
            except SessionRejected:
                self._heartbeat_now.set()
            except ControllerError as error:
                outage.failed(error)
            else:
                outage.recovered()
                retries.reset()
                if response is None:
                    continue
                self._stop(response.stop_job_ids)
                if not (response.HasField("job") and self._take(response.job)):
                    await asyncio.sleep(began + MIN_PULL_INTERVAL - loop_time())
                continue
            await asyncio.sleep(retries.next())

    def _resize(self, capacity: int) -> None:
        """Follow the VmafxNode's capacity: jobs are placed by it, and would otherwise wait for a slot here."""
        if capacity and capacity != self._capability.concurrency:
            log.info("capacity set by the VmafxNode", capacity=capacity, before=self._capability.concurrency)
            self._capability.concurrency = capacity
            self._on_slots_changed()

    def _on_slots_changed(self) -> None:
        self._slots_changed.set()
        if self._full_pull is not None:
            self._full_pull.cancel()

    async def _long_poll(self, session: AgentSession) -> wire.PullWorkResponse | None:
        """One pull; None if it was sent while no slot was free, and one has become free since."""
        call = asyncio.ensure_future(self._link.pull(session, self._capability, self._held_jobs()))
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
        """Start the job; False if it has no ID, or is held or ended already."""
        if not job.id or job.id in self._held or job.id in self._ended:
            log.debug("controller sent invalid work", attempt=job.id)
            return False
        log.info("taken", job=job.name, attempt=job.id)
        held = HeldAttempt(job.id, job.name, job.samples_token if self._samples.enabled else "")
        threads = threads_per_job(self._cores, self._capability.concurrency)
        task = controller_link.worker_task(job, self._backend, threads, samples=bool(held.samples_token))
        self._hold(held, self._run_attempt(held, task))
        return True

    async def _run_attempt(self, held: HeldAttempt, task: WorkerTask) -> None:
        batch: bytes | None = None
        try:
            result, batch = await self._score(held, task)
        except WorkerInterrupted:
            if held.id not in self._interrupted:
                self._interrupted.append(held.id)
                log.warn(
                    "worker was stopped; the agent will pull the job again",
                    job=held.name,
                    attempt=held.id,
                )
                return
            result = AttemptResult(
                held.id, fault="NodeFault", message="the worker was stopped twice, and not by the agent"
            )
        if result.fault is None:
            log.info("scored", job=held.name, attempt=held.id, score=result.score, frames=result.frames)
        else:
            log.warn("not scored", job=held.name, attempt=held.id, fault=result.fault, error=result.message)
        if batch is not None:  # before the result: an attempt without a result is repeated, one without samples is not
            self._samples.store(SpooledSamples(held.id, held.samples_token, batch))
        done = SpooledResult(held.id, held.name, result)
        held.finished = self._store(done)
        await self._report_result(done)

    def _store(self, done: SpooledResult) -> bool:
        """Write a result to the disk; whether that succeeded."""
        try:
            self._spool.put(done)
        except OSError as error:
            log.error("cannot write the result to disk; it is lost if the agent exits", error=error.strerror)
            return False
        return True

    async def _score(self, held: HeldAttempt, task: WorkerTask) -> tuple[AttemptResult, bytes | None]:
        """The result, and the samples if the worker was to write any."""
        async with self._runner.start(task) as job:
            held.working = True
            reporting = self._group.create_task(self._report_progress(held, job))
            try:
                result = await job.wait()
                return result, job.samples(MAX_BATCH_BYTES) if task.samples and result.fault is None else None
            finally:
                reporting.cancel()
                held.working = False

    async def _report_progress(self, held: HeldAttempt, job: WorkerProcess) -> None:
        """Every PROGRESS_INTERVAL; stops the attempt once the controller no longer accepts it."""
        while True:
            await asyncio.sleep(PROGRESS_INTERVAL)
            session = await self._registration.session()
            try:
                ok = await self._link.report(
                    session, controller_link.progress_message(held.id, held.name, job.progress())
                )
            except SessionRejected:
                self._heartbeat_now.set()
            except ControllerError as error:
                log.debug("cannot report progress", attempt=held.id, error=str(error))
            else:
                if not ok:
                    self._stop([held.id])
                    return

    async def _report_result(self, done: SpooledResult) -> None:
        """Retry until the controller accepts the result, or says that the attempt has ended.

        A result that it cannot read becomes a failure of this node: without a report, the job would stay Running.
        """
        outage = OutageLog("cannot report a result; it is kept and retried", "results are reported again")
        retries, replaced = Retries(BACKOFF), False
        while True:
            session = await self._registration.session()
            try:
                ok = await self._link.report(session, controller_link.result_message(done))
            except SessionRejected:
                self._heartbeat_now.set()
            except ControllerError as error:
                if isinstance(error, InvalidRequest) and not replaced:
                    message = one_line(f"the controller could not read the result: {error}", MAX_MESSAGE)
                    log.error("result refused; reporting a failure instead", attempt=done.id, error=message)
                    done = SpooledResult(done.id, done.name, AttemptResult(done.id, fault="NodeFault", message=message))
                    replaced = True
                    self._store(done)
                    continue
                outage.failed(error, attempt=done.id)
            else:
                outage.recovered()
                break
            await asyncio.sleep(retries.next())
        log.info("reported" if ok else "result rejected: the attempt has ended", attempt=done.id)
        self._ended.append(done.id)
        self._spool.drop(done.id)

    def _held_jobs(self) -> Iterable[wire.RunningJob]:
        return [wire.RunningJob(id=held.id, name=held.name) for held in self._held.values()]

    def _hold(self, held: HeldAttempt, work: Coroutine[Any, Any, None]) -> None:
        """Hold the attempt until `work` is done or cancelled."""
        self._held[held.id] = held
        held.task = self._group.create_task(work)
        held.task.add_done_callback(lambda _: self._release(held))

    def _release(self, held: HeldAttempt) -> None:
        del self._held[held.id]
        self._on_slots_changed()

    def _stop(self, attempts: Iterable[str]) -> None:
        for attempt in attempts:
            held = self._held.get(attempt)
            if held is not None and not held.stopping:
                write = log.debug if held.finished else log.info  # it may have ended by the result reported from here
                write("job stopped: the attempt has ended", job=held.name, attempt=held.id)
                self._spool.drop(attempt)
                self._cancel(held)

    @staticmethod
    def _cancel(held: HeldAttempt) -> None:
        if held.task is not None and not held.stopping:
            held.stopping = True
            held.task.cancel()


def threads_per_job(cores: int, capacity: int) -> int:
    """An equal share of the cores, so that a full agent runs about one thread on each."""
    return min(max(1, cores // capacity), MAX_THREADS)
