"""When external controllers are polled, over hours of virtual time."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import pairwise

import pytest

from tests.support.virtual import run
from vmafx.api.job import JobSpecView, JobStatusView, JobView
from vmafx.api.meta import Condition, MetaView
from vmafx.clock import loop_time
from vmafx.jobs.outcome import Fail
from vmafx.jobs.state import age_at
from vmafx.kube import ObjectKey
from vmafx.operator.job.external import client
from vmafx.operator.job.external.decide import STOP_TIMEOUT, ExternalReply, PollResult, ReplyState, decide_external
from vmafx.operator.job.external.poller import (
    MAX_CONCURRENT,
    MAX_POLL_INTERVAL,
    POLL_INTERVAL,
    ExternalJobs,
    parse_address,
)
from vmafx.operator.job.steps import KeepPending, MirrorExternal, NoAction, Step
from vmafx.runtime.store import ObjectChange

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CANCELLED = Fail("Cancelled", "cancelled while an external controller was running it")


class Controllers:
    """Stands in for the connections to all controllers; records what they were asked and when."""

    def __init__(self) -> None:
        self.states: dict[str, ReplyState] = {}
        self.silent: set[str] = set()  # addresses, or jobs
        self.refusing: set[str] = set()  # jobs
        self.asked: list[tuple[float, str, str, bool]] = []
        self.open: Counter[str] = Counter()
        self.reopened = self.concurrent = self.max_concurrent = 0

    def connect(self, address: str) -> "Connection":
        self.open[address] += 1
        return Connection(self, address)

    def times(self, job: str) -> list[float]:
        return [time for time, _, asked, _ in self.asked if asked == job]


class Connection:
    def __init__(self, controllers: Controllers, address: str) -> None:
        self._all, self._address = controllers, address

    async def poll(self, job: str, *, stop: bool) -> PollResult:
        self._all.asked.append((loop_time(), self._address, job, stop))
        self._all.concurrent += 1
        self._all.max_concurrent = max(self._all.concurrent, self._all.max_concurrent)
        silent = bool({self._address, job} & self._all.silent)
        await asyncio.sleep(5.0 if silent else 0.01)
        self._all.concurrent -= 1
        if silent:
            return PollResult(ExternalReply("NO_REPLY"))
        reply, refuses = ExternalReply(self._all.states.get(job, "RUNNING")), job in self._all.refusing
        return PollResult(reply, stopped=stop and not refuses, refusal="no" if stop and refuses else "")

    async def reopen(self) -> None:
        assert self._all.concurrent == 0
        self._all.reopened += 1

    async def close(self) -> None:
        self._all.open[self._address] -= 1


@pytest.fixture
def controllers(monkeypatch: pytest.MonkeyPatch) -> Controllers:
    controllers = Controllers()
    monkeypatch.setattr(client, "ExternalController", controllers.connect)
    return controllers


class Jobs:
    """Uses ExternalJobs as the reconciler does."""

    def __init__(self, address: str) -> None:
        self.requeued: list[str] = []
        self.external = ExternalJobs(address, lambda key: self.requeued.append(key.name))

    def step(self, name: str, *, cancel: bool = False, namespace: str = "x") -> Step:
        return self.step_for(job(name, namespace, cancel=cancel))

    def step_for(self, one: JobView) -> Step:
        key = ObjectKey(one.metadata.namespace, one.metadata.name)
        return decide_external(one, self.external.state(key, one, age_at(NOW)))

    def delete(self, name: str, namespace: str = "x") -> None:
        self.external.job_changed(ObjectChange(ObjectKey(namespace, name), job(name, namespace), None))


def job(name: str, namespace: str = "x", *, cancel: bool = False) -> JobView:
    meta = MetaView(name, namespace, "u1")
    return JobView(meta, JobSpecView("s3://r", "s3://d", cancel=cancel), JobStatusView(controllerJobID=name))


def suspended(name: str) -> JobView:
    began = Condition("Scheduled", "False", datetime(2026, 1, 1, tzinfo=UTC), "Suspending", "")
    status = JobStatusView(controllerJobID=name, conditions=(began,))
    return JobView(MetaView(name, "x", "u1"), JobSpecView("s3://r", "s3://d", suspend=True), status)


@asynccontextmanager
async def polling(address: str = "c:1") -> AsyncIterator[Jobs]:
    jobs = Jobs(address)
    loop = asyncio.create_task(jobs.external.run())
    try:
        yield jobs
    finally:
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)


def gaps(times: list[float]) -> list[float]:
    return [float(round(later - earlier)) for earlier, later in pairwise(times)]


def test_a_job_is_polled_every_five_seconds_and_requeued_only_on_change(controllers: Controllers) -> None:
    async def hour() -> None:
        async with polling() as jobs:
            jobs.step("a")
            await asyncio.sleep(3600)
            assert set(gaps(controllers.times("a"))) == {POLL_INTERVAL}
            assert len(jobs.requeued) == 1
            controllers.states["a"] = "PENDING"
            await asyncio.sleep(6)
            assert len(jobs.requeued) == 2

    run(hour())


def test_a_controller_that_does_not_answer_is_polled_about_one_job_with_backoff(controllers: Controllers) -> None:
    async def hour() -> None:
        controllers.silent.add("c:1")
        async with polling() as jobs:
            for number in range(100):
                jobs.step(str(number))
            await asyncio.sleep(600)
            times = [time for time, *_ in controllers.asked]
            assert gaps(times)[:4] == [10.0, 15.0, 25.0, 35.0]  # the timeout of five seconds, then the backoff
            assert set(gaps(times)[4:]) == {MAX_POLL_INTERVAL + 5.0}
            assert controllers.reopened == pytest.approx(len(times), abs=1)
            assert sorted(jobs.requeued) == sorted(map(str, range(100)))  # each once
            controllers.silent.clear()
            await asyncio.sleep(MAX_POLL_INTERVAL + 10)
            assert len({job for _, _, job, _ in controllers.asked}) == 100
            assert len(jobs.requeued) == 200
            assert controllers.max_concurrent == MAX_CONCURRENT
            assert gaps(controllers.times("7"))[-1] == POLL_INTERVAL

    run(hour())


def test_polling_a_new_job_finds_that_the_controller_answers_again(controllers: Controllers) -> None:
    async def body() -> None:
        controllers.silent.add("c:1")
        async with polling() as jobs:
            jobs.step("old")
            await asyncio.sleep(300)
            before = len(controllers.asked)
            controllers.silent.clear()
            jobs.step("new")
            await asyncio.sleep(1)
            assert sorted({asked for _, _, asked, _ in controllers.asked[before:]}) == ["new", "old"]

    run(body())


def test_a_job_without_a_reply_does_not_block_the_others(controllers: Controllers) -> None:
    async def body() -> None:
        controllers.silent.add("bad")
        async with polling() as jobs:
            for name in ("bad", "good", "fine"):
                jobs.step(name)
            await asyncio.sleep(600)
            for name in ("good", "fine"):
                assert len(controllers.times(name)) >= 600 / (MAX_POLL_INTERVAL + POLL_INTERVAL) - 1
                assert jobs.external._pollers["c:1"].follow(ObjectKey("x", name), name).result.reply == ExternalReply(
                    "RUNNING"
                )

    run(body())


def test_each_controller_with_jobs_has_one_connection(controllers: Controllers) -> None:
    async def body() -> None:
        controllers.silent.add("b:1")
        async with polling("{namespace}:1") as jobs:
            for namespace in ("a", "b"):
                for number in range(20):
                    jobs.step(f"{namespace}{number}", namespace=namespace)
            await asyncio.sleep(60)
            assert +controllers.open == Counter({"a:1": 1, "b:1": 1})
            assert set(gaps(controllers.times("a3"))[1:]) == {POLL_INTERVAL}  # unaffected by b
            assert {at for _, at, job, _ in controllers.asked if job.startswith("a")} == {"a:1"}
            for number in range(20):
                jobs.delete(f"a{number}", "a")
            await asyncio.sleep(6)
            assert +controllers.open == Counter({"b:1": 1})
            asked = len(controllers.times("a3"))
            jobs.step("a3", namespace="a")  # a job again
            await asyncio.sleep(6)
            assert len(controllers.times("a3")) > asked
        assert +controllers.open == Counter()

    run(body())


def test_a_stop_is_requested_at_once_and_not_repeated_once_confirmed(controllers: Controllers) -> None:
    async def body() -> None:
        async with polling() as jobs:
            jobs.step("a")
            await asyncio.sleep(POLL_INTERVAL / 2)
            jobs.step("a", cancel=True)
            await asyncio.sleep(0.1)
            assert jobs.step("a", cancel=True) == CANCELLED
            await asyncio.sleep(60)
            assert [stop for *_, stop in controllers.asked].count(True) == 1

    run(body())


def test_a_cancel_is_requested_again_after_a_refused_suspension(controllers: Controllers) -> None:
    async def body() -> None:
        async with polling() as jobs:
            controllers.refusing.add("a")
            jobs.step_for(suspended("a"))
            await asyncio.sleep(3600)
            assert isinstance(jobs.step_for(suspended("a")), KeepPending)
            controllers.states["a"] = "COMPLETED"
            assert jobs.step("a", cancel=True) == NoAction(STOP_TIMEOUT)
            await asyncio.sleep(0.1)
            assert isinstance(
                jobs.step("a", cancel=True), MirrorExternal
            )  # on its way to Succeeded: a result takes precedence

    run(body())


def test_a_final_reply_is_kept_and_not_polled_again(controllers: Controllers) -> None:
    async def body() -> None:
        async with polling() as jobs:
            controllers.states["a"] = "FAILED"
            jobs.step("a")
            await asyncio.sleep(1)
            controllers.silent.add("c:1")
            jobs.step("b")
            await asyncio.sleep(600)
            assert len(controllers.times("a")) == 1
            assert isinstance(jobs.step("a"), Fail)

    run(body())


def test_a_job_with_a_new_id_is_polled_anew(controllers: Controllers) -> None:
    async def body() -> None:
        async with polling() as jobs:
            controllers.states["a"] = "FAILED"
            jobs.step("a")
            await asyncio.sleep(1)
            again = JobView(MetaView("a", "x", "u1"), JobSpecView("r", "d"), JobStatusView(controllerJobID="other"))
            assert not isinstance(jobs.step_for(again), Fail)
            await asyncio.sleep(1)
            assert len(controllers.times("other")) == 1

    run(body())


@pytest.mark.parametrize("good", ["c:1", "[::1]:9090", "vmafx-controller.{namespace}.svc:9090", "unix:/run/c.sock"])
def test_a_valid_address_is_accepted(good: str) -> None:
    assert parse_address(good) == good


@pytest.mark.parametrize("bad", ["", "c", "c:", ":1", "c:x", "c:0", "c:65536", "http://c:1", "https://c", "c:1/x"])
def test_an_invalid_address_is_rejected(bad: str) -> None:
    with pytest.raises(ValueError, match="must be HOST:PORT"):
        parse_address(bad)
