"""The metrics and events of jobs."""

import asyncio
from datetime import timedelta
from pathlib import Path

from tests.support.fleet import add_node, allow_pods, condition, operating, phase, reaches, submit
from tests.support.kubelet import Kubelet
from tests.support.waiting import eventually
from vmafx.clock import loop_time, utc_now
from vmafx.jobs.cache import jobs_informer
from vmafx.kube import JOBS, NODES, Client, ObjectKey
from vmafx.kube.core import EVENTS
from vmafx.kube.resources import UntypedObject
from vmafx.operator.job.counts import FinishedCounter
from vmafx.runtime.metrics import Metrics


def read(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


async def test_the_gauges_and_counters_follow_the_fleet(
    client: Client, namespace: str, clips: Path, tmp_path: Path
) -> None:
    await allow_pods(client, namespace)
    for name, ended in (("old", "Succeeded"), ("older", "Failed")):
        await client.patch_status(JOBS, await submit(client, namespace, name, clips), {"phase": ended})
    await add_node(client, namespace, "pool", capacity=2)
    await add_node(client, namespace, "apart", unschedulable=True)
    metrics = Metrics()
    async with (
        Kubelet(client, namespace, tmp_path) as kubelet,
        operating(client, namespace, metrics=metrics),
    ):
        assert read(metrics, "vmafx_job_attempts_total", outcome="disrupted") == 0  # present from the start
        await eventually(lambda: read(metrics, "vmafx_jobs", phase="Succeeded") == 1, "the old ones are counted")
        assert read(metrics, "vmafx_jobs", phase="Failed") == 1
        kubelet.hold.clear()
        keys = [await submit(client, namespace, f"job-{number}", clips) for number in range(3)]
        await eventually(lambda: read(metrics, "vmafx_jobs", phase="Running") == 2, "two of three are placed")
        await eventually(lambda: read(metrics, "vmafx_jobs", phase="Pending") == 1, "the third waits")
        assert read(metrics, "vmafx_slots", vendor="cpu", state="used") == 2
        assert read(metrics, "vmafx_slots", vendor="cpu", state="free") == 1
        assert read(metrics, "vmafx_nodes", vendor="cpu", health="healthy") == 1
        assert read(metrics, "vmafx_nodes", vendor="cpu", health="cordoned") == 1
        assert read(metrics, "vmafx_nodes", vendor="nvidia", health="healthy") == 0
        bad = await submit(client, namespace, "bad", clips, "none.mp4", priority=9)
        kubelet.hold.set()
        for key in keys:
            await reaches(client, key, phase("Succeeded"), "it is scored")
        await reaches(client, bad, phase("Failed"), "it fails")
        await eventually(lambda: read(metrics, "vmafx_jobs", phase="Succeeded") == 4, "all are counted")
        await eventually(lambda: read(metrics, "vmafx_jobs", phase="Failed") == 2, "the bad one too")
        assert read(metrics, "vmafx_jobs", phase="Running") == 0
        # The operator counts an end after the reply to its write, which may come after the watch event.
        why = {"phase": "Failed", "reason": "BadInput"}
        await eventually(lambda: read(metrics, "vmafx_jobs_finished_total", **why) == 1, "its reason is counted")
        await eventually(lambda: read(metrics, "vmafx_frames_scored_total") == 18, "the frames are counted")
        assert read(metrics, "vmafx_job_queue_wait_seconds_count") == 4
        assert read(metrics, "vmafx_job_run_seconds_count") == 3
        assert read(metrics, "vmafx_job_attempts_total", outcome="succeeded") == 3
        assert read(metrics, "vmafx_job_attempts_total", outcome="refused") == 1
        await client.delete(JOBS, ObjectKey(namespace, "old"))
        await eventually(lambda: read(metrics, "vmafx_jobs", phase="Succeeded") == 3, "a deleted one is not counted")


async def test_finished_jobs_are_counted_correctly_while_the_cache_lags(
    client: Client, namespace: str, clips: Path
) -> None:
    jobs = jobs_informer(client, namespace)
    counter = FinishedCounter(client, jobs)
    jobs.on_change(counter.job_changed)
    keys = [await submit(client, namespace, f"job-{number}", clips) for number in range(5)]
    await client.patch_status(JOBS, keys[0], {"phase": "Succeeded"})
    await client.patch_status(JOBS, keys[1], {"phase": "Failed"})
    await counter._count()  # the cache is still empty
    watching = asyncio.create_task(jobs.run())
    try:
        await eventually(jobs.synced.is_set, "the cache has them")
        assert counter.counts() == {"Succeeded": 1, "Failed": 1}
        await client.patch_status(JOBS, keys[2], {"phase": "Failed"})
        await client.patch_status(JOBS, keys[3], {"phase": "Succeeded"})
        await client.merge_patch(JOBS, keys[0], {"metadata": {"labels": {"label": "changed"}}})
        await eventually(lambda: counter.counts() == {"Succeeded": 2, "Failed": 2}, "jobs that finish are counted")
        for key in keys[1:4]:
            await client.delete(JOBS, key)
        await submit(client, namespace, "another", clips)
        await eventually(lambda: counter.counts() == {"Succeeded": 1, "Failed": 0}, "deleted jobs are not counted")
        await eventually(lambda: len(jobs.store) == 2, "the cache is up to date")
        assert counter.counts() == {"Succeeded": 1, "Failed": 0}
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def test_a_long_wait_is_reported_by_one_event_and_a_short_one_by_none(
    client: Client, namespace: str, clips: Path
) -> None:
    ahead = timedelta()  # of the operator's clocks
    await add_node(client, namespace, "pool", unschedulable=True)

    async def events() -> list[UntypedObject]:
        return [one for one in (await client.list(EVENTS, namespace)).items if one["regarding"]["name"] == "patient"]

    async with operating(
        client, namespace, lambda: utc_now() + ahead, lambda: loop_time() + ahead.total_seconds()
    ) as operator:

        def is_seen(priority: int) -> bool:
            job = operator._jobs.store.get(key)
            return job is not None and job.spec.priority == priority

        key = await submit(client, namespace, "patient", clips)
        await reaches(client, key, lambda one: bool(one.status.conditions), "its condition says why it waits")
        await client.merge_patch(JOBS, key, {"spec": {"priority": 1}})
        assert await events() == []
        for seconds in (31, 90):
            ahead = timedelta(seconds=seconds)
            await client.merge_patch(JOBS, key, {"spec": {"priority": seconds}})  # triggers a reconciliation
            await eventually(lambda: is_seen(seconds), "the operator has seen it")  # noqa: B023
            await eventually(events, "an event reports it")
        await client.merge_patch(NODES, ObjectKey(namespace, "pool"), {"spec": {"unschedulable": False}})
        await reaches(client, key, phase("Running"), "it runs")
        (event,) = [one for one in await events() if one["reason"] != "NotStarted"]  # its Pod is late too
        assert (event["reason"], event.get("series")) == ("NoHealthyNode", None)  # once
        assert event["note"].startswith("waits for a node: the one node that fits, pool, is cordoned")


async def test_waiting_for_a_free_slot_emits_no_event(client: Client, namespace: str, clips: Path) -> None:
    ahead = timedelta()
    await allow_pods(client, namespace)
    await add_node(client, namespace, "pool")
    async with operating(
        client, namespace, lambda: utc_now() + ahead, lambda: loop_time() + ahead.total_seconds()
    ) as operator:
        await submit(client, namespace, "first", clips)
        await reaches(client, ObjectKey(namespace, "first"), phase("Running"), "it has the only slot")
        full = await submit(client, namespace, "full", clips)
        unplaceable = await submit(client, namespace, "unplaceable", clips, backend="cuda")
        for key, reason in ((full, "InsufficientCapacity"), (unplaceable, "BackendUnavailable")):
            await reaches(client, key, lambda one: bool(one.status.conditions), "its condition says why it waits")
            assert condition(await client.get(JOBS, key), "Scheduled") == ("False", reason)
        ahead = timedelta(seconds=90)
        for key in (full, unplaceable):  # reconciled in this order
            operator._requeue(key)

        async def events() -> set[tuple[str, str, str]]:
            listed = (await client.list(EVENTS, namespace)).items
            found = {(one["regarding"]["name"], one["type"], one["reason"]) for one in listed}
            return {one for one in found if one[0] in {"full", "unplaceable"}}

        async def warned() -> bool:
            return ("unplaceable", "Warning", "BackendUnavailable") in await events()

        await eventually(warned, "an event reports the job that no node can take")
        await eventually(lambda: not len(operator.loop.queue), "the queue is empty")
        assert await events() == {("unplaceable", "Warning", "BackendUnavailable")}
