"""Who is asked, and when: hours of it, in virtual time."""

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
from vmafx.kube import ObjectKey
from vmafx.operator.job import foreign_client
from vmafx.operator.job.foreign import STOP_TIMEOUT, ForeignReplies, ForeignReply, ReplyKind, decide_foreign
from vmafx.operator.job.foreign_jobs import MAX_CONCURRENT, MAX_POLL_INTERVAL, POLL_INTERVAL, ForeignJobs, parse_address
from vmafx.operator.job.steps import KeepPending, MirrorForeign, NoAction, Step
from vmafx.runtime.store import ObjectChange

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CANCELLED = Fail("Cancelled", "cancelled while another controller had it")


class Controllers:
    """Stands for the connections to all controllers: what each says of which job, and what it was asked when."""

    def __init__(self) -> None:
        self.says: dict[str, ReplyKind] = {}
        self.silent: set[str] = set()  # addresses, or jobs
        self.refuses: set[str] = set()
        self.asked: list[tuple[float, str, str, bool]] = []
        self.open: Counter[str] = Counter()
        self.reopened = self.at_once = self.most_at_once = 0

    def connect(self, at: str) -> "Connection":
        self.open[at] += 1
        return Connection(self, at)

    def times(self, job: str) -> list[float]:
        return [time for time, _, asked, _ in self.asked if asked == job]


class Connection:
    def __init__(self, all_of_them: Controllers, at: str) -> None:
        self._all, self._at = all_of_them, at

    async def ask(self, job: str, *, stop: bool) -> ForeignReplies:
        known = self._all
        known.asked.append((loop_time(), self._at, job, stop))
        known.at_once += 1
        known.most_at_once = max(known.at_once, known.most_at_once)
        silent = bool({self._at, job} & known.silent)
        await asyncio.sleep(5.0 if silent else 0.01)
        known.at_once -= 1
        if silent:
            return ForeignReplies(ForeignReply("SILENCE"))
        heard, refuses = ForeignReply(known.says.get(job, "RUNNING")), job in known.refuses
        return ForeignReplies(heard, stopped=stop and not refuses, refusal="no" if stop and refuses else "")

    async def reopen(self) -> None:
        assert self._all.at_once == 0
        self._all.reopened += 1

    async def close(self) -> None:
        self._all.open[self._at] -= 1


@pytest.fixture
def controllers(monkeypatch: pytest.MonkeyPatch) -> Controllers:
    made = Controllers()
    monkeypatch.setattr(foreign_client, "ForeignController", made.connect)
    return made


class Jobs:
    """What the reconciler does with it."""

    def __init__(self, at: str) -> None:
        self.told: list[tuple[float, str]] = []
        self.following = ForeignJobs(at, lambda key: self.told.append((loop_time(), key.name)))

    def look(self, name: str, *, cancel: bool = False, namespace: str = "x") -> Step:
        return self.look_at(job(name, namespace, cancel=cancel))

    def look_at(self, one: JobView) -> Step:
        key = ObjectKey(one.metadata.namespace, one.metadata.name)
        return decide_foreign(one, self.following.about(key, one, NOW))

    def gone(self, name: str, namespace: str = "x") -> None:
        self.following.job_changed(ObjectChange(ObjectKey(namespace, name), job(name, namespace), None))


def job(name: str, namespace: str = "x", *, cancel: bool = False) -> JobView:
    meta = MetaView(name, namespace, "u1")
    return JobView(meta, JobSpecView("s3://r", "s3://d", cancel=cancel), JobStatusView(controllerJobID=name))


def suspended(name: str) -> JobView:
    began = Condition("Scheduled", "False", datetime(2026, 1, 1, tzinfo=UTC), "Suspending", "")
    status = JobStatusView(controllerJobID=name, conditions=(began,))
    return JobView(MetaView(name, "x", "u1"), JobSpecView("s3://r", "s3://d", suspend=True), status)


@asynccontextmanager
async def following(at: str = "c:1") -> AsyncIterator[Jobs]:
    jobs = Jobs(at)
    loop = asyncio.create_task(jobs.following.run())
    try:
        yield jobs
    finally:
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)


def gaps(times: list[float]) -> list[float]:
    return [float(round(later - earlier)) for earlier, later in pairwise(times)]


def test_every_five_seconds_and_a_word_only_on_change(controllers: Controllers) -> None:
    async def hour() -> None:
        async with following() as jobs:
            jobs.look("a")
            await asyncio.sleep(3600)
            assert set(gaps(controllers.times("a"))) == {POLL_INTERVAL}
            assert len(jobs.told) == 1
            controllers.says["a"] = "PENDING"
            await asyncio.sleep(6)
            assert len(jobs.told) == 2

    run(hour())


def test_a_controller_that_is_silent_is_asked_about_one_job_and_ever_less_often(controllers: Controllers) -> None:
    async def hour() -> None:
        controllers.silent.add("c:1")
        async with following() as jobs:
            for number in range(100):
                jobs.look(str(number))
            await asyncio.sleep(600)
            times = [time for time, *_ in controllers.asked]
            assert gaps(times)[:4] == [10.0, 15.0, 25.0, 35.0]  # a question takes its five seconds, then the pause
            assert set(gaps(times)[4:]) == {MAX_POLL_INTERVAL + 5.0}
            assert controllers.reopened == pytest.approx(len(times), abs=1)
            assert sorted(name for _, name in jobs.told) == sorted(map(str, range(100)))  # each hears of it, once
            controllers.silent.clear()
            await asyncio.sleep(MAX_POLL_INTERVAL + 10)
            assert len({job for _, _, job, _ in controllers.asked}) == 100
            assert len(jobs.told) == 200
            assert controllers.most_at_once == MAX_CONCURRENT
            assert gaps(controllers.times("7"))[-1] == POLL_INTERVAL

    run(hour())


def test_a_new_job_finds_out_that_the_controller_is_back(controllers: Controllers) -> None:
    async def body() -> None:
        controllers.silent.add("c:1")
        async with following() as jobs:
            jobs.look("old")
            await asyncio.sleep(300)
            before = len(controllers.asked)
            controllers.silent.clear()
            jobs.look("new")
            await asyncio.sleep(1)
            assert sorted({asked for _, _, asked, _ in controllers.asked[before:]}) == ["new", "old"]

    run(body())


def test_one_job_without_an_answer_does_not_keep_the_others_from_theirs(controllers: Controllers) -> None:
    async def body() -> None:
        controllers.silent.add("bad")
        async with following() as jobs:
            for name in ("bad", "good", "fine"):
                jobs.look(name)
            await asyncio.sleep(600)
            for name in ("good", "fine"):
                assert len(controllers.times(name)) >= 600 / (MAX_POLL_INTERVAL + POLL_INTERVAL) - 1
                assert jobs.following._lines["c:1"].about(ObjectKey("x", name), name).said.heard == ForeignReply(
                    "RUNNING"
                )

    run(body())


def test_one_connection_for_each_controller_and_none_for_what_is_gone(controllers: Controllers) -> None:
    async def body() -> None:
        controllers.silent.add("b:1")
        async with following("{namespace}:1") as jobs:
            for namespace in ("a", "b"):
                for number in range(20):
                    jobs.look(f"{namespace}{number}", namespace=namespace)
            await asyncio.sleep(60)
            assert +controllers.open == Counter({"a:1": 1, "b:1": 1})
            assert set(gaps(controllers.times("a3"))[1:]) == {POLL_INTERVAL}  # whatever b does
            assert {at for _, at, job, _ in controllers.asked if job.startswith("a")} == {"a:1"}
            for number in range(20):
                jobs.gone(f"a{number}", "a")
            await asyncio.sleep(6)
            assert +controllers.open == Counter({"b:1": 1})
            asked = len(controllers.times("a3"))
            jobs.look("a3", namespace="a")  # and there may be one again
            await asyncio.sleep(6)
            assert len(controllers.times("a3")) > asked
        assert +controllers.open == Counter()

    run(body())


def test_a_stop_is_asked_for_at_once_and_once_if_it_is_agreed_to(controllers: Controllers) -> None:
    async def body() -> None:
        async with following() as jobs:
            jobs.look("a")
            await asyncio.sleep(POLL_INTERVAL / 2)
            jobs.look("a", cancel=True)
            await asyncio.sleep(0.1)
            assert jobs.look("a", cancel=True) == CANCELLED
            await asyncio.sleep(60)
            assert [stop for *_, stop in controllers.asked].count(True) == 1

    run(body())


def test_cancel_is_asked_for_anew_after_a_suspension_that_was_refused(controllers: Controllers) -> None:
    async def body() -> None:
        async with following() as jobs:
            controllers.refuses.add("a")
            jobs.look_at(suspended("a"))
            await asyncio.sleep(3600)
            assert isinstance(jobs.look_at(suspended("a")), KeepPending)
            controllers.says["a"] = "COMPLETED"
            assert jobs.look("a", cancel=True) == NoAction(STOP_TIMEOUT)
            await asyncio.sleep(0.1)
            assert isinstance(jobs.look("a", cancel=True), MirrorForeign)  # on its way to Succeeded: the result wins

    run(body())


def test_what_is_final_is_not_asked_about_again_and_not_forgotten(controllers: Controllers) -> None:
    async def body() -> None:
        async with following() as jobs:
            controllers.says["a"] = "FAILED"
            jobs.look("a")
            await asyncio.sleep(1)
            controllers.silent.add("c:1")
            jobs.look("b")
            await asyncio.sleep(600)
            assert len(controllers.times("a")) == 1
            assert isinstance(jobs.look("a"), Fail)

    run(body())


def test_another_name_for_a_job_is_another_talk(controllers: Controllers) -> None:
    async def body() -> None:
        async with following() as jobs:
            controllers.says["a"] = "FAILED"
            jobs.look("a")
            await asyncio.sleep(1)
            again = JobView(MetaView("a", "x", "u1"), JobSpecView("r", "d"), JobStatusView(controllerJobID="other"))
            assert not isinstance(jobs.look_at(again), Fail)
            await asyncio.sleep(1)
            assert len(controllers.times("other")) == 1

    run(body())


@pytest.mark.parametrize("good", ["c:1", "[::1]:9090", "vmafx-controller.{namespace}.svc:9090", "unix:/run/c.sock"])
def test_addresses(good: str) -> None:
    assert parse_address(good) == good


@pytest.mark.parametrize("bad", ["", "c", "c:", ":1", "c:x", "c:0", "c:65536", "http://c:1", "https://c", "c:1/x"])
def test_addresses_that_lead_nowhere(bad: str) -> None:
    with pytest.raises(ValueError, match="must be HOST:PORT"):
        parse_address(bad)
