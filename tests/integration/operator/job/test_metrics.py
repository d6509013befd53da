"""What the operator tells of its jobs beside their status: numbers for Prometheus, events for people."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.support.fleet import add_node, allow_pods, condition, operating, phase, reaches, submit
from tests.support.kubelet import Kubelet
from tests.support.waiting import eventually
from vmafx.jobs.cache import jobs_informer
from vmafx.kube import JOBS, NODES, Client, ObjectKey
from vmafx.kube.core import EVENTS
from vmafx.kube.resources import UntypedObject
from vmafx.operator.job.counts import FinishedCounter
from vmafx.runtime.metrics import Metrics


def read(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


async def test_the_fleet_in_numbers(client: Client, namespace: str, clips: Path, tmp_path: Path) -> None:
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
        assert read(metrics, "vmafx_job_attempts_total", outcome="disrupted") == 0  # there before it ever happened
        await eventually(lambda: read(metrics, "vmafx_jobs", phase="Succeeded") == 1, "the old ones are counted")
        assert read(metrics, "vmafx_jobs", phase="Failed") == 1
        kubelet.hold.clear()
        keys = [await submit(client, namespace, f"job-{number}", clips) for number in range(3)]
        await eventually(lambda: read(metrics, "vmafx_jobs", phase="Running") == 2, "two of three have a place")
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
        # An end is counted when its write is answered, which may be later than it is seen.
        why = {"phase": "Failed", "reason": "BadInput"}
        await eventually(lambda: read(metrics, "vmafx_jobs_finished_total", **why) == 1, "why it failed is counted")
        await eventually(lambda: read(metrics, "vmafx_frames_scored_total") == 18, "the frames are counted")
        assert read(metrics, "vmafx_job_queue_wait_seconds_count") == 4
        assert read(metrics, "vmafx_job_run_seconds_count") == 3
        assert read(metrics, "vmafx_job_attempts_total", outcome="succeeded") == 3
        assert read(metrics, "vmafx_job_attempts_total", outcome="refused") == 1
        await client.delete(JOBS, ObjectKey(namespace, "old"))
        await eventually(lambda: read(metrics, "vmafx_jobs", phase="Succeeded") == 3, "a deleted one is not counted")


async def test_what_is_over_is_counted_right_by_a_cache_that_is_behind(
    client: Client, namespace: str, clips: Path
) -> None:
    jobs = jobs_informer(client, namespace)
    tally = FinishedCounter(client, jobs)
    jobs.on_change(tally.job_changed)
    keys = [await submit(client, namespace, f"job-{number}", clips) for number in range(5)]
    await client.patch_status(JOBS, keys[0], {"phase": "Succeeded"})
    await client.patch_status(JOBS, keys[1], {"phase": "Failed"})
    await tally._ask()  # the cache has none of them yet
    following = asyncio.create_task(jobs.run())
    try:
        await eventually(jobs.synced.is_set, "the cache has them")
        assert tally.counts() == {"Succeeded": 1, "Failed": 1}
        await client.patch_status(JOBS, keys[2], {"phase": "Failed"})
        await client.patch_status(JOBS, keys[3], {"phase": "Succeeded"})
        await client.merge_patch(JOBS, keys[0], {"metadata": {"labels": {"looked": "at"}}})
        await eventually(lambda: tally.counts() == {"Succeeded": 2, "Failed": 2}, "what ends is counted along")
        for key in keys[1:4]:
            await client.delete(JOBS, key)
        await submit(client, namespace, "another", clips)
        await eventually(lambda: tally.counts() == {"Succeeded": 1, "Failed": 0}, "what goes is no longer counted")
        await eventually(lambda: len(jobs.store) == 2, "all is seen")
        assert tally.counts() == {"Succeeded": 1, "Failed": 0}
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def test_a_long_wait_is_told_once_and_a_short_one_not(client: Client, namespace: str, clips: Path) -> None:
    began, ahead = datetime.now(UTC), timedelta()  # only we let time pass: half a minute is soon over elsewhere
    await add_node(client, namespace, "pool", unschedulable=True)

    async def told() -> list[UntypedObject]:
        return [one for one in (await client.list(EVENTS, namespace)).items if one["regarding"]["name"] == "patient"]

    async with operating(client, namespace, lambda: began + ahead) as operator:

        def is_seen(priority: int) -> bool:
            job = operator._jobs.store.get(key)
            return job is not None and job.spec.priority == priority

        key = await submit(client, namespace, "patient", clips)
        await reaches(client, key, lambda one: bool(one.status.conditions), "it says why it waits")
        await client.merge_patch(JOBS, key, {"spec": {"priority": 1}})
        assert await told() == []
        for seconds in (31, 90):
            ahead = timedelta(seconds=seconds)
            await client.merge_patch(JOBS, key, {"spec": {"priority": seconds}})  # looked at again, as in 30 s
            await eventually(lambda: is_seen(seconds), "it is looked at")  # noqa: B023
            await eventually(told, "it is told")
        await client.merge_patch(NODES, ObjectKey(namespace, "pool"), {"spec": {"unschedulable": False}})
        await reaches(client, key, phase("Running"), "it goes on")
        (event,) = [one for one in await told() if one["reason"] != "NotStarted"]  # by our clock, its Pod is late too
        assert (event["reason"], event.get("series")) == ("NoHealthyNode", None)  # the same again would be a series
        assert event["note"].startswith("waits for a node: the one node that fits, pool, is cordoned")


async def test_to_wait_for_a_free_slot_is_told_by_no_event(client: Client, namespace: str, clips: Path) -> None:
    began, ahead = datetime.now(UTC), timedelta()
    await allow_pods(client, namespace)
    await add_node(client, namespace, "pool")
    async with operating(client, namespace, lambda: began + ahead) as operator:
        await submit(client, namespace, "first", clips)
        await reaches(client, ObjectKey(namespace, "first"), phase("Running"), "it has the only slot")
        full = await submit(client, namespace, "full", clips)
        unplaceable = await submit(client, namespace, "unplaceable", clips, backend="cuda")
        for key, reason in ((full, "InsufficientCapacity"), (unplaceable, "BackendUnavailable")):
            await reaches(client, key, lambda one: bool(one.status.conditions), "it says why it waits")
            assert condition(await client.get(JOBS, key), "Scheduled") == ("False", reason)
        ahead = timedelta(seconds=90)
        for key in (full, unplaceable):  # looked at again, in this order
            operator._look_again(key)

        async def told() -> set[tuple[str, str, str]]:
            events = (await client.list(EVENTS, namespace)).items
            found = {(one["regarding"]["name"], one["type"], one["reason"]) for one in events}
            return {one for one in found if one[0] in {"full", "unplaceable"}}

        async def warned() -> bool:
            return ("unplaceable", "Warning", "BackendUnavailable") in await told()

        await eventually(warned, "an event tells of the one that no node can take")
        await eventually(lambda: not len(operator.loop.queue), "all was looked at")
        assert await told() == {("unplaceable", "Warning", "BackendUnavailable")}
