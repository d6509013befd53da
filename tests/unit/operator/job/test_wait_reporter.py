"""When jobs are told why they wait: late, seldom, and after all other work."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, cast

import msgspec

from tests.support.virtual import run
from vmafx.api.job import JobSpecView, JobView
from vmafx.api.meta import MetaView
from vmafx.api.node import NodeStatusView, NodeView, VmafxNodeSpec
from vmafx.clock import loop_time
from vmafx.jobs.state import age_at
from vmafx.kube import ObjectKey
from vmafx.kube.errors import KubeError, Unreachable, UnreadableResponse
from vmafx.operator.job.placement import Placer
from vmafx.operator.job.wait_reporter import (
    CHECK_DELAY,
    EVENT_DELAY,
    MAX_CONCURRENT_REPORTS,
    MAX_PAUSES,
    PAUSE,
    REPORT_DELAY,
    WaitReporter,
)
from vmafx.runtime.events import EventRecorder
from vmafx.runtime.store import ObjectChange, Store

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
MOMENT = 0.1  # seconds


class Cluster:
    """Jobs and nodes, and what a WaitReporter writes about them."""

    def __init__(self) -> None:
        self.jobs: Store[JobView] = Store()
        self.placer = Placer(lambda _: age_at(NOW), self._place, self._offers_changed)
        self.reporter = WaitReporter(
            self.jobs, self.placer, self._write, cast("EventRecorder", self), lambda: self.busy, lambda: NOW, loop_time
        )
        self.busy, self.write_seconds, self.writing, self.most_writing = False, 0.0, 0, 0
        self.error: KubeError | None = None  # of all writes
        self.written: list[tuple[float, str, str]] = []  # when, job, reason
        self.events: list[tuple[float, str, str]] = []
        self.placed: list[ObjectKey] = []

    def add_job(self, number: int, namespace: str = "x") -> ObjectKey:
        view = JobView(MetaView(f"job-{number:04}", namespace, f"u{number}"), JobSpecView("s3://b/r", "s3://b/d"))
        key = ObjectKey(namespace, view.metadata.name)
        self.placer.job_changed(self.jobs.put(key, view))
        self.reporter.job_waits(key)
        return key

    def remove_job(self, key: ObjectKey) -> None:
        removed = self.jobs.remove(key)
        assert removed is not None
        self.placer.job_changed(removed)

    def set_node(self, *, healthy: bool, capacity: int = 2, namespace: str = "x", unschedulable: bool = False) -> None:
        spec = VmafxNodeSpec("cpu", capacity=capacity, unschedulable=unschedulable)
        status = NodeStatusView(healthy=healthy)
        node = NodeView(MetaView("n", namespace), spec, status)
        self.placer.node_changed(ObjectChange(ObjectKey(namespace, "n"), None, node))

    def remove_node(self, namespace: str) -> None:
        self.placer.node_changed(ObjectChange(ObjectKey(namespace, "n"), None, None))

    def emit(self, regarding: Any, _type: str, reason: str, *_: str) -> None:
        """As of an EventRecorder."""
        self.events.append((loop_time(), regarding.name, reason))

    def _offers_changed(self, namespace: str) -> None:
        self.reporter.nodes_changed(namespace)

    def _place(self, key: ObjectKey) -> None:
        self.placed.append(key)

    async def _write(self, job: JobView, changes: dict[str, Any]) -> JobView | None:
        if self.error is not None:
            raise self.error
        self.writing += 1
        self.most_writing = max(self.most_writing, self.writing)
        await asyncio.sleep(self.write_seconds)
        self.writing -= 1
        self.written.append((loop_time(), job.metadata.name, changes["conditions"][0].reason))
        status = msgspec.structs.replace(job.status, conditions=tuple(changes["conditions"]))
        new = msgspec.structs.replace(job, status=status)
        key = ObjectKey(job.metadata.namespace, job.metadata.name)
        self.placer.job_changed(self.jobs.put(key, new))
        self.reporter.job_waits(key)  # its watch event triggers a reconciliation
        return new


def play(scenario: Callable[[Cluster], Awaitable[None]]) -> Cluster:
    """Run a scenario in virtual time beside a reporter."""

    async def main() -> Cluster:
        cluster = Cluster()
        cluster.placer.lead()
        reporting = asyncio.create_task(cluster.reporter.run())
        await scenario(cluster)
        assert not reporting.done()
        reporting.cancel()
        return cluster

    return run(main())


def test_a_job_is_told_once_why_it_waits_if_it_still_does_after_a_while() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.set_node(healthy=False)
        started = loop_time()
        cluster.add_job(1)
        await asyncio.sleep(REPORT_DELAY - MOMENT)
        assert cluster.written == []
        await asyncio.sleep(2 * MOMENT)
        assert [(name, reason) for _, name, reason in cluster.written] == [("job-0001", "NoHealthyNode")]
        assert cluster.written[0][0] - started >= REPORT_DELAY
        await asyncio.sleep(1000)

    assert len(play(scenario).written) == 1


def test_a_job_that_gets_a_node_soon_is_told_nothing() -> None:
    async def scenario(cluster: Cluster) -> None:
        placed, gone = cluster.add_job(1), cluster.add_job(2)
        await asyncio.sleep(1)
        cluster.remove_job(gone)
        cluster.set_node(healthy=True)
        await asyncio.sleep(1000)
        assert cluster.placed == [placed]

    cluster = play(scenario)
    assert (cluster.written, cluster.events) == ([], [])


def test_jobs_are_told_again_only_when_the_reason_changes() -> None:
    async def scenario(cluster: Cluster) -> None:
        for number in range(10):
            cluster.add_job(number)
        await asyncio.sleep(60)
        assert [reason for _, _, reason in cluster.written] == ["NoNodes"] * 10
        for capacity in range(2, 7):  # more slots change the message, but not the reason
            cluster.set_node(healthy=True, capacity=capacity)
            await asyncio.sleep(CHECK_DELAY + REPORT_DELAY + MOMENT)
        assert len(cluster.placed) == 6
        assert [reason for _, _, reason in cluster.written[10:]] == ["InsufficientCapacity"] * 8

    play(scenario)


def test_a_message_that_is_no_longer_true_is_replaced_without_another_event() -> None:
    async def scenario(cluster: Cluster) -> None:
        key = cluster.add_job(1)
        cluster.set_node(healthy=False)
        await asyncio.sleep(60)
        cluster.set_node(healthy=False, unschedulable=True)
        await asyncio.sleep(60)
        job = cluster.jobs.get(key)
        assert job is not None
        assert job.status.conditions[0].message.startswith("the one node that fits, n, is cordoned")

    cluster = play(scenario)
    assert [reason for _, _, reason in cluster.written] == ["NoHealthyNode"] * 2
    assert len(cluster.events) == 1


def test_reasons_wait_for_other_work_but_not_for_ever() -> None:
    async def scenario(cluster: Cluster) -> None:
        for number in range(100):
            cluster.add_job(number)
        cluster.busy = True
        await asyncio.sleep(REPORT_DELAY + 10 * MAX_PAUSES * PAUSE + MOMENT)
        assert len(cluster.written) == 10 * MAX_CONCURRENT_REPORTS
        cluster.busy = False
        await asyncio.sleep(MAX_PAUSES * PAUSE)
        assert len(cluster.written) == 100

    play(scenario)


def test_other_tasks_have_their_turn_while_reasons_are_checked() -> None:
    async def scenario(cluster: Cluster) -> None:
        keys = [cluster.add_job(number) for number in range(1000)]
        await asyncio.sleep(60)
        for key in keys:
            cluster.reporter.job_waits(key)
        await asyncio.sleep(REPORT_DELAY)
        turns = 0
        while cluster.reporter._reports:
            await asyncio.sleep(0)
            turns += 1
        assert turns > len(keys) // MAX_CONCURRENT_REPORTS // 2

    assert len(play(scenario).written) == 1000


def test_jobs_that_need_no_report_do_not_wait_for_other_work() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.busy = True
        for key in [cluster.add_job(number) for number in range(1000)]:
            cluster.remove_job(key)
        await asyncio.sleep(REPORT_DELAY + MOMENT)
        assert cluster.reporter._reports == {}

    play(scenario)


def test_few_reasons_are_written_at_a_time() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.write_seconds = 0.01
        for number in range(100):
            cluster.add_job(number)
        await asyncio.sleep(60)

    cluster = play(scenario)
    assert (len(cluster.written), cluster.most_writing) == (100, MAX_CONCURRENT_REPORTS)


def test_a_reason_that_is_refused_for_good_does_not_delay_others() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.error = UnreadableResponse("not JSON")
        for number in range(100):
            cluster.add_job(number)
        await asyncio.sleep(REPORT_DELAY + MOMENT)
        assert (cluster.written, cluster.reporter._reports) == ([], {})
        cluster.error = None
        cluster.add_job(100)
        await asyncio.sleep(REPORT_DELAY + MOMENT)
        assert len(cluster.written) == 1

    play(scenario)


def test_reasons_are_written_when_the_api_server_is_back() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.error = Unreachable("connection refused", sent=False)
        for number in range(10):
            cluster.add_job(number)
        await asyncio.sleep(60)
        assert cluster.written == []
        cluster.error = None
        await asyncio.sleep(3 * REPORT_DELAY)
        assert len(cluster.written) == 10

    play(scenario)


def test_an_event_says_that_no_node_can_take_the_job_but_not_that_it_queues() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.set_node(healthy=True, capacity=1)
        for number in range(2):
            cluster.add_job(number)
        cluster.add_job(3, "elsewhere")
        await asyncio.sleep(REPORT_DELAY + EVENT_DELAY - MOMENT)
        assert cluster.events == []
        await asyncio.sleep(1000)

    cluster = play(scenario)
    assert sorted(reason for _, _, reason in cluster.written) == ["InsufficientCapacity", "NoNodes"]
    assert [(name, reason) for _, name, reason in cluster.events] == [("job-0003", "NoNodes")]


def test_nothing_is_remembered_about_namespaces_without_waiting_jobs() -> None:
    async def scenario(cluster: Cluster) -> None:
        for number in range(20):
            namespace = f"team-{number}"
            key = cluster.add_job(1, namespace)
            cluster.set_node(healthy=False, namespace=namespace)
            await asyncio.sleep(2 * CHECK_DELAY)
            assert cluster.reporter._reasons.keys() == {namespace}
            cluster.remove_job(key)
            cluster.remove_node(namespace)
            await asyncio.sleep(2 * CHECK_DELAY)
            assert not cluster.reporter._reasons
        await asyncio.sleep(1000)
        assert (cluster.reporter._reports, cluster.reporter._announcements, cluster.reporter._checks) == ({}, {}, {})

    play(scenario)
