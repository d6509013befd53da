"""The timing of an agent's calls, over hours of virtual time."""

import asyncio
import io
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.support.virtual import run
from vmafx import logs
from vmafx.agent.agent import DRAIN_REPORT_TIMEOUT, Agent, AgentSpools, threads_per_job
from vmafx.agent.controller_link import (
    AgentSession,
    ControllerError,
    ControllerLink,
    ControllerUnreachable,
    InvalidRequest,
    SessionRejected,
)
from vmafx.agent.samples import SampleSpool
from vmafx.agent.spool import ResultSpool, SpooledResult
from vmafx.clock import loop_time
from vmafx.jobs.attempt import AttemptResult
from vmafx.jobs.worker_process import WorkerInterrupted, WorkerProcess, WorkerRunner, WorkerTask
from vmafx.scoring.result import Progress
from vmafx.wire import controller_pb2 as wire

HOUR = 3600.0
CORES = 8


class Controller(ControllerLink):
    """Replaces the connection to the controller: records each call with its time, and answers it."""

    def __init__(self) -> None:
        self.error: ControllerError | None = None
        self.jobs: list[str] = []
        self.samples_token = ""  # of every job
        self.capacity = 0  # of the VmafxNode; 0: not reported
        self.stops: list[str] = []
        self.accepts: Callable[[str], bool] = lambda _: True
        self.unreadable: Callable[[wire.ReportResultRequest], bool] = lambda _: False
        self.calls: list[tuple[float, str, Any]] = []
        self.results: dict[str, float] = {}
        self.sessions = Counter[str]()

    def times(self, method: str) -> list[float]:
        return [time for time, called, _ in self.calls if called == method]

    async def _record(self, method: str, about: Any) -> None:
        self.calls.append((loop_time(), method, about))
        await asyncio.sleep(0.01)
        if self.error is not None and not (method == "register" and isinstance(self.error, SessionRejected)):
            raise self.error

    async def register(self, request: wire.RegisterNodeRequest) -> AgentSession:
        await self._record("register", request)
        self.sessions["made"] += 1
        return AgentSession("ns/machine", str(self.sessions["made"]), self.capacity)

    async def heartbeat(
        self, session: AgentSession, jobs: Any, working: int, *, draining: bool
    ) -> wire.HeartbeatResponse:
        await self._record("heartbeat", ({job.id for job in jobs}, working))
        return wire.HeartbeatResponse(ok=True, stop_job_ids=self.stops, capacity=self.capacity)

    async def pull(self, session: AgentSession, capability: wire.NodeCapability, jobs: Any) -> wire.PullWorkResponse:
        held = {job.id for job in jobs}
        await self._record("pull", held)
        until = loop_time() + 30
        while loop_time() < until:
            waiting = [job for job in self.jobs if job not in held and job not in self.results]
            if waiting and len(held) < capability.concurrency:
                return wire.PullWorkResponse(job=wire.Job(id=waiting[0], name="job", samples_token=self.samples_token))
            await asyncio.sleep(0.5)
        return wire.PullWorkResponse()

    async def report(self, session: AgentSession, request: wire.ReportResultRequest) -> bool:
        await self._record("result" if request.final else "progress", request.job_id)
        if self.unreadable(request):
            raise InvalidRequest("answer: too long")
        if request.final:
            self.calls.append((loop_time(), "accepted", request))
            self.results[request.job_id] = loop_time()
        return self.accepts(request.job_id)

    async def push_samples(self, session: AgentSession, token: str, samples: bytes) -> wire.PushSamplesResponse:
        await self._record("samples", token)
        return wire.PushSamplesResponse(result=wire.PushSamplesResponse.RETRY)


class Workers(WorkerRunner):
    """Runs no processes: each attempt takes `seconds` and gets a score."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.running = self.max_running = 0
        self.threads: list[int | None] = []  # of each worker

    @asynccontextmanager
    async def start(self, task: WorkerTask) -> AsyncIterator[WorkerProcess]:
        self.running += 1
        self.threads.append(task.threads)
        self.max_running = max(self.max_running, self.running)
        try:
            yield RunningWorker(task, self.seconds)
        finally:
            self.running -= 1


class RunningWorker(WorkerProcess):
    def __init__(self, task: WorkerTask, seconds: float) -> None:
        self._task, self._seconds = task, seconds

    async def wait(self) -> AttemptResult:
        await asyncio.sleep(self._seconds)
        if self._task.id == "stopped":
            raise WorkerInterrupted(self._task.id)
        return AttemptResult(self._task.id, 90.0, 100)

    def progress(self) -> Progress | None:
        return Progress("scoring", 10, 100, 5.0)

    def samples(self, max_bytes: int) -> bytes | None:
        return b"samples"


Scene = Callable[[Controller, Workers, asyncio.Event, "asyncio.Task[None]"], Coroutine[Any, Any, None]]


def play(scene: Scene, folder: Path, seconds: float = 60.0, capacity: int = 1, drain: float = HOUR) -> Controller:
    controller, workers = Controller(), Workers(seconds)

    async def run_scene() -> None:
        capability = wire.NodeCapability(gpu_vendor="cpu", backends=["cpu"], concurrency=capacity)
        request = wire.RegisterNodeRequest(name="machine", capability=capability)
        spools = AgentSpools(ResultSpool(folder), SampleSpool(folder / "samples", 1 << 20))
        agent, stop = Agent(controller, request, workers, spools, "cpu", CORES), asyncio.Event()
        running = asyncio.create_task(agent.run(stop, asyncio.Event(), drain))
        await scene(controller, workers, stop, running)
        stop.set()
        await running
        assert workers.running == 0
        assert workers.max_running <= max(capacity, controller.capacity)

    run(run_scene())
    return controller


@pytest.fixture(autouse=True)
def log_output(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    out = io.StringIO()
    monkeypatch.setattr(logs, "_sink", logs._Sink())
    logs._sink.out = out
    return out


def test_a_free_slot_is_reported_while_a_pull_waits(tmp_path: Path) -> None:
    async def scene(controller: Controller, *_: object) -> None:
        controller.jobs = ["a", "b", "c"]
        await asyncio.sleep(10)

    controller = play(scene, tmp_path, seconds=2.0)
    assert list(controller.results) == ["a", "b", "c"]
    # A pull that was sent without a free slot is replaced as soon as there is one.
    assert controller.results["c"] - controller.calls[0][0] < 7.0
    assert controller.times("progress") == []


def test_samples_are_on_disk_before_the_result_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill between the two costs another attempt; in the other order, it would cost the samples."""
    stored, put = list[int](), ResultSpool.put

    def put_result(spool: ResultSpool, done: SpooledResult) -> None:
        stored.append(sum(path.stat().st_size for path in (tmp_path / "samples").glob("*.segment")))
        put(spool, done)

    async def scene(controller: Controller, *_: object) -> None:
        controller.jobs, controller.samples_token = ["a", "b"], "token"
        await asyncio.sleep(10)

    monkeypatch.setattr(ResultSpool, "put", put_result)
    controller = play(scene, tmp_path, seconds=2.0)
    assert list(controller.results) == ["a", "b"]
    assert 0 < stored[0] < stored[1]
    assert controller.times("samples")


def test_progress_is_reported_every_ten_seconds(tmp_path: Path) -> None:
    async def scene(controller: Controller, *_: object) -> None:
        controller.jobs = ["a"]
        await asyncio.sleep(60)

    controller = play(scene, tmp_path, seconds=35.0)
    began = controller.results["a"] - 35.0
    assert [round(time - began) for time in controller.times("progress")] == [10, 20, 30]


def test_a_rejected_progress_report_stops_the_job(tmp_path: Path) -> None:
    async def scene(controller: Controller, workers: Workers, *_: object) -> None:
        controller.jobs = ["a"]
        controller.accepts = lambda _: False
        await asyncio.sleep(5)
        assert workers.running == 1
        controller.jobs = []
        await asyncio.sleep(10)
        assert workers.running == 0

    assert play(scene, tmp_path, seconds=HOUR).results == {}


def test_heartbeats_are_sent_every_ten_seconds_also_while_draining(tmp_path: Path) -> None:
    async def scene(controller: Controller, _: Workers, stop: asyncio.Event, running: "asyncio.Task[None]") -> None:
        controller.jobs = ["a"]
        await asyncio.sleep(100)
        stop.set()
        controller.jobs.append("b")
        await running

    controller = play(scene, tmp_path, seconds=300.0, capacity=2)
    assert set(controller.results) == {"a"}
    beats = controller.times("heartbeat")
    assert {round(after - before) for before, after in pairwise(beats)} == {10}
    assert 29 <= len(beats) <= 31
    assert [about for _, method, about in controller.calls if method == "heartbeat"][-1] == ({"a"}, 1)


def test_the_capacity_of_the_vmafxnode_overrides_that_of_the_agent(tmp_path: Path) -> None:
    async def scene(controller: Controller, workers: Workers, *_: object) -> None:
        controller.jobs = ["a", "b", "c", "d"]
        await asyncio.sleep(15)
        assert workers.running == 1
        controller.capacity = 3  # a user edits the VmafxNode
        await asyncio.sleep(15)
        assert workers.running == 3
        await asyncio.sleep(15)  # it does not fall back to the capacity of the registration
        assert workers.running == 3

    play(scene, tmp_path, seconds=HOUR, drain=1.0)


def test_workers_share_the_cores_by_capacity(tmp_path: Path) -> None:
    async def scene(controller: Controller, workers: Workers, *_: object) -> None:
        controller.jobs = ["a", "b", "c"]
        await asyncio.sleep(15)
        assert workers.threads == [CORES // 2] * 2
        controller.capacity = 3
        await asyncio.sleep(15)
        assert workers.threads == [CORES // 2, CORES // 2, CORES // 3]

    play(scene, tmp_path, seconds=HOUR, capacity=2, drain=1.0)


@pytest.mark.parametrize(("cores", "capacity", "threads"), [(8, 1, 8), (7, 2, 3), (2, 5, 1), (256, 1, 128)])
def test_a_worker_gets_at_least_one_thread_and_no_more_than_a_job_may_have(
    cores: int, capacity: int, threads: int
) -> None:
    assert threads_per_job(cores, capacity) == threads


def test_a_worker_that_is_stopped_twice_is_a_failure_of_the_node(tmp_path: Path) -> None:
    async def scene(controller: Controller, *_: object) -> None:
        controller.jobs = ["stopped"]
        await asyncio.sleep(60)

    controller = play(scene, tmp_path, seconds=1.0)
    assert list(controller.results) == ["stopped"]
    assert len([about for _, method, about in controller.calls if method == "result"]) == 1


def test_a_drain_does_not_wait_long_for_an_unreachable_controller(tmp_path: Path) -> None:
    async def scene(
        controller: Controller, _workers: Workers, stop: asyncio.Event, running: "asyncio.Task[None]"
    ) -> None:
        await asyncio.sleep(15)
        controller.error = ControllerUnreachable("connection refused")
        stop.set()
        await asyncio.wait([running], timeout=DRAIN_REPORT_TIMEOUT + 1)
        assert running.done()

    play(scene, tmp_path)


def test_a_drain_ends_after_its_time_limit(tmp_path: Path) -> None:
    async def scene(controller: Controller, _: Workers, stop: asyncio.Event, running: "asyncio.Task[None]") -> None:
        controller.jobs = ["a"]
        await asyncio.sleep(5)
        stop.set()
        before = loop_time()
        await running
        assert 45 <= loop_time() - before <= 46

    assert play(scene, tmp_path, seconds=HOUR, drain=45.0).results == {}


def test_a_result_is_reported_after_hours_without_a_controller(tmp_path: Path, log_output: io.StringIO) -> None:
    async def scene(controller: Controller, *_: object) -> None:
        controller.jobs = ["a"]
        await asyncio.sleep(5)
        controller.error = ControllerUnreachable("connection refused")
        await asyncio.sleep(12 * HOUR)
        assert len(list(tmp_path.iterdir())) == 1
        returned = loop_time()
        controller.error = None
        controller.jobs.append("b")
        await asyncio.sleep(31 + 60)
        assert controller.results["a"] - returned < 31
        assert list(controller.results) == ["a", "b"]

    controller = play(scene, tmp_path)
    reports = controller.times("result")
    assert 12 * 3600 / 31 < len(reports) < 12 * 3600 / 20
    assert all(after - before < 30.1 for before, after in pairwise(reports[:-1]))
    assert len(controller.times("heartbeat")) > 12 * 360 * 0.99
    assert len(controller.times("register")) == 1
    assert len(log_output.getvalue().splitlines()) < 20
    assert list(tmp_path.iterdir()) == []


def test_a_result_that_the_controller_cannot_read_is_reported_as_a_failure(tmp_path: Path) -> None:
    """Without a report, the job would stay Running for ever."""

    async def scene(controller: Controller, *_: object) -> None:
        controller.jobs, controller.unreadable = ["a"], lambda request: not request.error
        await asyncio.sleep(65)

    controller = play(scene, tmp_path)
    (report,) = [about for _, method, about in controller.calls if method == "accepted"]
    assert report.error.startswith("NodeFault: the controller could not read the result: ")
    assert list(tmp_path.iterdir()) == []


def test_a_failure_that_the_controller_cannot_read_is_reported_once_it_can(tmp_path: Path) -> None:
    async def scene(controller: Controller, *_: object) -> None:
        controller.jobs, controller.unreadable = ["a"], lambda _: True
        await asyncio.sleep(HOUR)
        assert len(list(tmp_path.iterdir())) == 1
        controller.unreadable = lambda _: False
        await asyncio.sleep(31)

    controller = play(scene, tmp_path)
    assert len([about for _, method, about in controller.calls if method == "accepted"]) == 1
    assert len(controller.times("result")) < HOUR / 20
    assert list(tmp_path.iterdir()) == []


def test_an_agent_backs_off_from_a_controller_that_rejects_its_sessions(tmp_path: Path) -> None:
    async def scene(controller: Controller, *_: object) -> None:
        controller.jobs = ["a"]
        await asyncio.sleep(5)
        controller.error = SessionRejected("unknown session")
        await asyncio.sleep(HOUR)
        assert controller.sessions["made"] < 200
        controller.error = None
        await asyncio.sleep(100)

    assert list(play(scene, tmp_path).results) == ["a"]


def test_a_job_that_is_stopped_at_once_is_released(tmp_path: Path) -> None:
    async def scene(controller: Controller, workers: Workers, *_: object) -> None:
        controller.jobs, controller.stops = ["a"], ["a"]
        await asyncio.sleep(100)
        controller.jobs = []
        await asyncio.sleep(30)
        assert workers.running == 0

    controller = play(scene, tmp_path, seconds=HOUR)
    assert controller.results == {}
    assert [about for _, method, about in controller.calls if method == "pull"][-1] == set()
