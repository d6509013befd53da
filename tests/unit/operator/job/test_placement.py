"""Which jobs are placed when jobs and nodes change."""

import asyncio
from datetime import UTC, datetime

import msgspec

from tests.support.virtual import run
from vmafx.api.job import JobSpecView, JobView
from vmafx.api.meta import MetaView
from vmafx.api.node import NodeStatusView, NodeView, VmafxNodeSpec
from vmafx.jobs.state import age_at
from vmafx.kube import ObjectKey
from vmafx.operator.job.placement import BATCH, Placer
from vmafx.runtime.store import ObjectChange
from vmafx.scheduling.requirements import NamespacedName

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
SLOTS = 2


def job(number: int) -> ObjectChange[JobView]:
    view = JobView(MetaView(f"job-{number:04}", "x", f"u{number}"), JobSpecView("s3://b/r", "s3://b/d"))
    return ObjectChange(ObjectKey("x", view.metadata.name), None, view)


def node(*, healthy: bool, capacity: int = SLOTS) -> ObjectChange[NodeView]:
    spec, status = VmafxNodeSpec("cpu", capacity=capacity), NodeStatusView(healthy=healthy)
    return ObjectChange(ObjectKey("x", "n"), None, NodeView(MetaView("n", "x"), spec, status))


def test_a_node_change_requeues_the_jobs_that_are_placed_and_tells_where_others_may_wait_for_another_reason() -> None:
    async def scenario() -> None:
        placed, changed = list[ObjectKey](), list[str]()
        placer = Placer(lambda _: age_at(NOW), placed.append, changed.append)
        placer.lead()
        jobs = [job(number) for number in range(20)]
        placer.node_changed(node(healthy=False))
        for change in jobs:
            placer.job_changed(change)
        await asyncio.sleep(1)
        assert (placed, changed) == ([], ["x"])
        placer.node_changed(node(healthy=True))
        await asyncio.sleep(1)
        assert (placed, changed) == ([change.key for change in jobs[:SLOTS]], ["x", "x"])
        placer.node_changed(node(healthy=True))  # a heartbeat
        assert changed == ["x", "x"]

    run(scenario())


def test_other_tasks_have_their_turn_while_many_jobs_are_placed() -> None:
    async def scenario() -> None:
        placed = list[ObjectKey]()
        placer = Placer(lambda _: age_at(NOW), placed.append, lambda _: None)
        placer.lead()
        for number in range(3 * BATCH):
            placer.job_changed(job(number))
        placer.node_changed(node(healthy=True, capacity=4 * BATCH))
        counts = []
        while len(placed) < 3 * BATCH:
            await asyncio.sleep(0)
            counts.append(len(placed))
        assert BATCH in counts
        assert 2 * BATCH in counts

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
