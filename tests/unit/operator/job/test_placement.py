"""Which jobs are placed and requeued when jobs and nodes change."""

import asyncio
from datetime import UTC, datetime

import msgspec

from tests.support.virtual import run
from vmafx.api.job import JobSpecView, JobView
from vmafx.api.meta import MetaView
from vmafx.api.node import NodeStatusView, NodeView, VmafxNodeSpec
from vmafx.jobs.state import age_at
from vmafx.kube import ObjectKey
from vmafx.operator.job.placement import REASON_DELAY, Placer
from vmafx.runtime.store import ObjectChange
from vmafx.scheduling.requirements import NamespacedName

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
SLOTS = 2


def job(number: int, namespace: str = "x") -> ObjectChange[JobView]:
    view = JobView(MetaView(f"job-{number:02}", namespace, f"u{number}"), JobSpecView("s3://b/r", "s3://b/d"))
    return ObjectChange(ObjectKey(namespace, view.metadata.name), None, view)


def node(*, healthy: bool, namespace: str = "x") -> ObjectChange[NodeView]:
    spec, status = VmafxNodeSpec("cpu", capacity=SLOTS), NodeStatusView(healthy=healthy)
    return ObjectChange(ObjectKey(namespace, "n"), None, NodeView(MetaView("n", namespace), spec, status))


def test_a_node_change_requeues_placed_jobs_at_once_and_waiting_jobs_with_low_priority() -> None:
    async def scenario() -> None:
        placed, waiting = list[ObjectKey](), list[ObjectKey]()
        placer = Placer(lambda _: age_at(NOW), placed.append, waiting.append)
        placer.lead()
        jobs = [job(number) for number in range(20)]
        placer.node_changed(node(healthy=False))
        for change in jobs:
            placer.job_changed(change)
        await asyncio.sleep(2 * REASON_DELAY)
        assert (placed, len(waiting)) == ([], len(jobs))
        waiting.clear()
        placer.node_changed(node(healthy=True))
        await asyncio.sleep(2 * REASON_DELAY)
        assert placed == [change.key for change in jobs[:SLOTS]]
        assert sorted(waiting) == [change.key for change in jobs[SLOTS:]]

    run(scenario())


def test_a_job_that_is_being_deleted_is_not_placed() -> None:
    async def scenario() -> None:
        placer = Placer(lambda _: age_at(NOW), lambda _: None, lambda _: None)
        placer.lead()
        placer.node_changed(node(healthy=True))
        first, second = job(1), job(2)
        assert first.new is not None
        assert second.new is not None
        meta = msgspec.structs.replace(first.new.metadata, deletionTimestamp=NOW)
        assert placer.place(first.key, msgspec.structs.replace(first.new, metadata=meta)) is None
        assert placer.scheduler.used_slots(NamespacedName("x", "n")) == 0
        assert placer.place(second.key, second.new) == "n"

    run(scenario())


def test_nothing_is_remembered_about_namespaces_without_waiting_jobs() -> None:
    async def scenario() -> None:
        placer = Placer(lambda _: age_at(NOW), lambda _: None, lambda _: None)
        placer.lead()
        for number in range(20):
            namespace = f"team-{number}"
            added, waits = node(healthy=False, namespace=namespace), job(1, namespace)
            placer.job_changed(waits)
            placer.node_changed(added)
            await asyncio.sleep(2 * REASON_DELAY)
            assert placer._reasons.keys() == {namespace}
            placer.job_changed(ObjectChange(waits.key, waits.new, None))
            placer.node_changed(ObjectChange(added.key, added.new, None))
            await asyncio.sleep(2 * REASON_DELAY)
            assert not placer._reasons

    run(scenario())
