"""Who is looked at when a node comes and goes, and how soon."""

import asyncio
from datetime import UTC, datetime

import msgspec

from tests.support.virtual import run
from vmafx.api.job import JobSpecView, JobView
from vmafx.api.meta import MetaView
from vmafx.api.node import NodeStatusView, NodeView, VmafxNodeSpec
from vmafx.kube import ObjectKey
from vmafx.operator.job.placement import REASON_DELAY, Placer
from vmafx.runtime.store import ObjectChange
from vmafx.scheduling.requirements import NamespacedName

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
FULL = 2  # slots


def job(number: int) -> ObjectChange[JobView]:
    view = JobView(MetaView(f"job-{number:02}", "x", f"u{number}"), JobSpecView("s3://b/r", "s3://b/d"))
    return ObjectChange(ObjectKey("x", view.metadata.name), None, view)


def node(*, healthy: bool) -> ObjectChange[NodeView]:
    spec, status = VmafxNodeSpec("cpu", capacity=FULL), NodeStatusView(healthy=healthy)
    return ObjectChange(ObjectKey("x", "n"), None, NodeView(MetaView("n", "x"), spec, status))


def test_a_node_that_comes_and_goes_hurries_nobody_but_those_who_get_a_place() -> None:
    async def scenario() -> None:
        soon, in_time = list[ObjectKey](), list[ObjectKey]()
        placing = Placer(lambda: NOW, soon.append, in_time.append)
        placing.lead()
        jobs = [job(number) for number in range(20)]
        placing.node_changed(node(healthy=False))
        for change in jobs:
            placing.job_changed(change)
        await asyncio.sleep(2 * REASON_DELAY)
        assert (soon, len(in_time)) == ([], len(jobs))
        in_time.clear()
        placing.node_changed(node(healthy=True))
        await asyncio.sleep(2 * REASON_DELAY)
        assert soon == [change.key for change in jobs[:FULL]]
        assert sorted(in_time) == [change.key for change in jobs[FULL:]]

    run(scenario())


def test_a_job_that_is_being_deleted_is_given_no_place() -> None:
    async def scenario() -> None:
        placing = Placer(lambda: NOW, lambda _: None, lambda _: None)
        placing.lead()
        placing.node_changed(node(healthy=True))
        first, second = job(1), job(2)
        assert first.new is not None
        assert second.new is not None
        meta = msgspec.structs.replace(first.new.metadata, deletionTimestamp=NOW)
        assert placing.ask_for(first.key, msgspec.structs.replace(first.new, metadata=meta)) is None
        assert placing.scheduler.used_slots(NamespacedName("x", "n")) == 0
        assert placing.ask_for(second.key, second.new) == "n"

    run(scenario())
