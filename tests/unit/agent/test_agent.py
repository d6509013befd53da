"""When an agent says what: hours of it, in virtual time."""

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
from vmafx.agent.agent import REPORT_TIMEOUT, Agent
from vmafx.agent.controller_link import (
    AgentSession,
    ControllerError,
    ControllerLink,
    ControllerUnreachable,
    SessionRejected,
)
from vmafx.agent.spool import ResultSpool
from vmafx.clock import loop_time
from vmafx.jobs.attempt import AttemptResult
from vmafx.jobs.worker_process import WorkerInterrupted, WorkerProcess, WorkerRunner, WorkerTask
from vmafx.scoring.result import Progress
from vmafx.wire import controller_pb2 as wire

HOUR = 3600.0


class Controller(ControllerLink):
    """Stands for the connection: what is said over it, when, and what comes back."""

    def __init__(self) -> None:
        self.fails: ControllerError | None = None
        self.jobs: list[str] = []
        self.capacity = 0  # of the VmafxNode, if told
        self.stops: list[str] = []
        self.wanted: Callable[[str], bool] = lambda _: True
        self.said: list[tuple[float, str, Any]] = []
        self.results: dict[str, float] = {}
        self.sessions = Counter[str]()

    def times(self, method: str) -> list[float]:
        return [time for time, said, _ in self.said if said == method]

    async def _hear(self, method: str, about: Any) -> None:
        self.said.append((loop_time(), method, about))
        await asyncio.sleep(0.01)
        if self.fails is not None and not (method == "register" and isinstance(self.fails, SessionRejected)):
            raise self.fails

    async def register(self, request: wire.RegisterNodeRequest) -> AgentSession:
        await self._hear("register", request)
        self.sessions["made"] += 1
        return AgentSession("ns/machine", str(self.sessions["made"]), self.capacity)

    async def heartbeat(
        self, session: AgentSession, jobs: Any, working: int, *, draining: bool
    ) -> wire.HeartbeatResponse:
        await self._hear("heartbeat", ({job.id for job in jobs}, working))
        return wire.HeartbeatResponse(ok=True, stop_job_ids=self.stops, capacity=self.capacity)

    async def pull(self, session: AgentSession, capability: wire.NodeCapability, jobs: Any) -> wire.PullWorkResponse:
        held = {job.id for job in jobs}
        await self._hear("pull", held)
        until = loop_time() + 30
        while loop_time() < until:
            waiting = [job for job in self.jobs if job not in held and job not in self.results]
            if waiting and len(held) < capability.concurrency:
                return wire.PullWorkResponse(job=wire.Job(id=waiting[0], name="job"))
            await asyncio.sleep(0.5)
        return wire.PullWorkResponse()

    async def report(self, session: AgentSession, request: wire.ReportResultRequest) -> bool:
        await self._hear("result" if request.final else "progress", request.job_id)
        if request.final:
            self.results[request.job_id] = loop_time()
        return self.wanted(request.job_id)


class Work(WorkerRunner):
    """Takes a while, and comes to a score."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.running = self.most = 0

    @asynccontextmanager
    async def start(self, task: WorkerTask) -> AsyncIterator[WorkerProcess]:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            yield Doing(task, self.seconds)
        finally:
            self.running -= 1


class Doing(WorkerProcess):
    def __init__(self, task: WorkerTask, seconds: float) -> None:
        self._task, self._seconds = task, seconds

    async def wait(self) -> AttemptResult:
        await asyncio.sleep(self._seconds)
        if self._task.id == "stopped":
            raise WorkerInterrupted(self._task.id)
        return AttemptResult(self._task.id, 90.0, 100)

    def progress(self) -> Progress | None:
        return Progress("scoring", 10, 100, 5.0)


Scene = Callable[[Controller, Work, asyncio.Event, "asyncio.Task[None]"], Coroutine[Any, Any, None]]


def play(scene: Scene, folder: Path, seconds: float = 60.0, capacity: int = 1, drain: float = HOUR) -> Controller:
    controller, work = Controller(), Work(seconds)

    async def all_of_it() -> None:
        can = wire.NodeCapability(gpu_vendor="cpu", backends=["cpu"], concurrency=capacity)
        request = wire.RegisterNodeRequest(name="machine", capability=can)
        agent, stop = Agent(controller, request, work, ResultSpool(folder), "cpu"), asyncio.Event()
        running = asyncio.create_task(agent.run(stop, asyncio.Event(), drain))
        await scene(controller, work, stop, running)
        stop.set()
        await running
        assert work.running == 0
        assert work.most <= max(capacity, controller.capacity)

    run(all_of_it())
    return controller


@pytest.fixture(autouse=True)
def said(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    out = io.StringIO()
    monkeypatch.setattr(logs, "_sink", logs._Sink())
    logs._sink.out = out
    return out


def test_a_job_takes_two_seconds_and_says_so_at_once(tmp_path: Path) -> None:
    async def scene(controller: Controller, *_: object) -> None:
        controller.jobs = ["a", "b", "c"]
        await asyncio.sleep(10)

    controller = play(scene, tmp_path, seconds=2.0)
    assert list(controller.results) == ["a", "b", "c"]
    # A slot that becomes free is told at once, though the pull before it was still waiting.
    assert controller.results["c"] - controller.said[0][0] < 7.0
    assert controller.times("progress") == []


def test_progress_after_ten_seconds_and_every_ten(tmp_path: Path) -> None:
    async def scene(controller: Controller, *_: object) -> None:
        controller.jobs = ["a"]
        await asyncio.sleep(60)

    controller = play(scene, tmp_path, seconds=35.0)
    began = controller.results["a"] - 35.0
    assert [round(time - began) for time in controller.times("progress")] == [10, 20, 30]


def test_progress_that_does_not_count_ends_the_work(tmp_path: Path) -> None:
    async def scene(controller: Controller, work: Work, *_: object) -> None:
        controller.jobs = ["a"]
        controller.wanted = lambda _: False
        await asyncio.sleep(5)
        assert work.running == 1
        controller.jobs = []
        await asyncio.sleep(10)
        assert work.running == 0

    assert play(scene, tmp_path, seconds=HOUR).results == {}


def test_heartbeats_every_ten_seconds_also_when_draining(tmp_path: Path) -> None:
    async def scene(controller: Controller, _: Work, stop: asyncio.Event, running: "asyncio.Task[None]") -> None:
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
    assert [about for _, method, about in controller.said if method == "heartbeat"][-1] == ({"a"}, 1)


def test_the_nodes_capacity_counts_and_may_change(tmp_path: Path) -> None:
    async def scene(controller: Controller, work: Work, *_: object) -> None:
        controller.jobs = ["a", "b", "c", "d"]
        await asyncio.sleep(15)
        assert work.running == 1
        controller.capacity = 3  # somebody edits the VmafxNode
        await asyncio.sleep(15)
        assert work.running == 3
        await asyncio.sleep(15)  # and it stays so, whatever was said at the registration
        assert work.running == 3

    play(scene, tmp_path, seconds=HOUR, drain=1.0)


def test_a_worker_that_somebody_stops_again_and_again_is_a_failure_of_the_node(tmp_path: Path) -> None:
    async def scene(controller: Controller, *_: object) -> None:
        controller.jobs = ["stopped"]
        await asyncio.sleep(60)

    controller = play(scene, tmp_path, seconds=1.0)
    assert list(controller.results) == ["stopped"]
    assert len([about for _, method, about in controller.said if method == "result"]) == 1


def test_nobody_to_say_goodbye_to_is_not_waited_for(tmp_path: Path) -> None:
    async def scene(controller: Controller, _work: Work, stop: asyncio.Event, running: "asyncio.Task[None]") -> None:
        await asyncio.sleep(15)
        controller.fails = ControllerUnreachable("nobody there")
        stop.set()
        await asyncio.wait([running], timeout=REPORT_TIMEOUT + 1)
        assert running.done()

    play(scene, tmp_path)


def test_a_drain_has_its_limit(tmp_path: Path) -> None:
    async def scene(controller: Controller, _: Work, stop: asyncio.Event, running: "asyncio.Task[None]") -> None:
        controller.jobs = ["a"]
        await asyncio.sleep(5)
        stop.set()
        before = loop_time()
        await running
        assert 45 <= loop_time() - before <= 46

    assert play(scene, tmp_path, seconds=HOUR, drain=45.0).results == {}


def test_hours_without_a_controller(tmp_path: Path, said: io.StringIO) -> None:
    async def scene(controller: Controller, *_: object) -> None:
        controller.jobs = ["a"]
        await asyncio.sleep(5)
        controller.fails = ControllerUnreachable("gone")
        await asyncio.sleep(12 * HOUR)
        assert len(list(tmp_path.iterdir())) == 1
        back = loop_time()
        controller.fails = None
        controller.jobs.append("b")
        await asyncio.sleep(31 + 60)
        assert controller.results["a"] - back < 31
        assert list(controller.results) == ["a", "b"]

    controller = play(scene, tmp_path)
    tries = controller.times("result")
    assert 12 * 3600 / 31 < len(tries) < 12 * 3600 / 20
    assert all(after - before < 30.1 for before, after in pairwise(tries[:-1]))
    assert len(controller.times("heartbeat")) > 12 * 360 * 0.99
    assert len(controller.times("register")) == 1
    assert len(said.getvalue().splitlines()) < 20
    assert list(tmp_path.iterdir()) == []


def test_a_controller_that_knows_nobody_is_not_overrun(tmp_path: Path) -> None:
    async def scene(controller: Controller, *_: object) -> None:
        controller.jobs = ["a"]
        await asyncio.sleep(5)
        controller.fails = SessionRejected("who?")
        await asyncio.sleep(HOUR)
        assert controller.sessions["made"] < 200
        controller.fails = None
        await asyncio.sleep(100)

    assert list(play(scene, tmp_path).results) == ["a"]


def test_what_is_stopped_before_it_began_is_gone(tmp_path: Path) -> None:
    async def scene(controller: Controller, work: Work, *_: object) -> None:
        controller.jobs, controller.stops = ["a"], ["a"]
        await asyncio.sleep(100)
        controller.jobs = []
        await asyncio.sleep(30)
        assert work.running == 0

    controller = play(scene, tmp_path, seconds=HOUR)
    assert controller.results == {}
    assert [about for _, method, about in controller.said if method == "pull"][-1] == set()
