"""Jobs from creation to score, with a real API server, a real worker, and a kubelet that runs it."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Kubectl
from tests.support.fleet import (
    ScoringFleet,
    add_node,
    allow_pods,
    condition,
    has_seen,
    operating,
    phase,
    reaches,
    submit,
)
from tests.support.kubelet import Kubelet
from tests.support.operator_context import context
from tests.support.setting_defaults import defaults
from tests.support.waiting import eventually
from vmafx.api.job import JobSpecView, JobView
from vmafx.api.meta import MetaView, ObjectMeta
from vmafx.api.node import VmafxNode, VmafxNodeSpec
from vmafx.clock import utc_now
from vmafx.jobs.attempt import AttemptResult, encode_result
from vmafx.jobs.cache import jobs_informer
from vmafx.kube import JOBS, NODES, Client, ObjectKey, key_of
from vmafx.kube.core import PODS
from vmafx.operator.job.reconciler import JobReconciler
from vmafx.operator.job.settings import JobSettings
from vmafx.operator.job.steps import RECHECK_INTERVAL, Enqueue
from vmafx.operator.job.ttl import FinishedJobCleaner
from vmafx.runtime.reconcile import ReconcileResult


async def test_a_job_is_scored_and_kubectl_waits_for_it(
    fleet: ScoringFleet, client: Client, namespace: str, clips: Path, kubectl: Kubectl
) -> None:
    keys = [await submit(client, namespace, f"job-{number}", clips) for number in range(5)]
    await asyncio.to_thread(
        kubectl, "wait", "--for=condition=Complete", "--timeout=60s", *(f"vmjob/{key.name}" for key in keys)
    )
    jobs = [await client.get(JOBS, key) for key in keys]
    assert {job.status.phase for job in jobs} == {"Succeeded"}
    assert len({job.status.score for job in jobs}) == 1
    one = jobs[0]
    assert (one.status.frames, one.status.attempts, one.status.failures) == (6, 1, 0)
    assert one.status.assignedNode == "pool"
    assert one.status.metrics["vmaf"].mean == one.status.score
    assert condition(one, "Scheduled") == ("True", "Placed")
    assert sorted(fleet.kubelet.started) == [f"{key.name}-0" for key in keys]
    shown = await asyncio.to_thread(kubectl, "get", "vmjob", "job-0")
    assert str(one.status.score) in shown.stdout


@pytest.mark.parametrize(("distorted", "message"), [("none.mp4", "distorted: there is no file"), ("reference.mkv", "")])
async def test_bad_input_fails_in_one_attempt(
    fleet: ScoringFleet, client: Client, namespace: str, clips: Path, distorted: str, message: str
) -> None:
    spec = {} if message else {"model": "vmaf_v9"}
    key = await submit(client, namespace, "bad", clips, distorted, **spec)
    job = await reaches(client, key, phase("Failed"), "it fails")
    assert condition(job, "Failed") == ("True", "BadInput")
    assert (message or "model: there is no model 'vmaf_v9'") in (job.status.message or "")
    assert fleet.kubelet.started == ["bad-0"]


async def test_a_failed_attempt_is_retried_on_another_node(
    fleet: ScoringFleet, client: Client, namespace: str, clips: Path
) -> None:
    await add_node(client, namespace, "spare")
    await has_seen(fleet.operator, client, ObjectKey(namespace, "spare"))
    key = ObjectKey(namespace, "again")
    uid = ""
    fleet.kubelet.hold.clear()
    await submit(client, namespace, "again", clips)
    job = await reaches(client, key, phase("Running"), "it is placed")
    uid, first = job.metadata.uid, job.status.assignedNode
    fault = AttemptResult(f"{uid}-0", fault="NodeFault", message="the disk is full")
    fleet.kubelet.answers["again-0"] = (4, encode_result(fault).decode())
    fleet.kubelet.hold.set()
    job = await reaches(client, key, lambda one: one.status.failures == 1, "the failure is counted")
    assert (job.status.phase, job.status.assignedNode, job.status.excludedNodes) == ("Pending", None, (first,))
    assert condition(job, "Scheduled") == ("False", "Retrying")
    job = await reaches(client, key, phase("Succeeded"), "it is scored on the other node after ten seconds")
    assert (job.status.attempts, job.status.failures) == (2, 1)
    assert job.status.assignedNode == ({"pool", "spare"} - {first}).pop()


@pytest.mark.parametrize("result", ["", "garbage", '{"id": "other-0", "score": 50}'])
async def test_an_invalid_result_fails_the_attempt(
    fleet: ScoringFleet, client: Client, namespace: str, clips: Path, result: str
) -> None:
    fleet.kubelet.answers["odd-0"] = (0, result)
    key = await submit(client, namespace, "odd", clips, retryLimit=0)
    job = await reaches(client, key, phase("Failed"), "it fails")
    assert condition(job, "Failed") == ("True", "RetriesExhausted")
    assert job.status.score is None


async def test_a_suspended_job_is_stopped_and_starts_anew_when_resumed(
    fleet: ScoringFleet, client: Client, namespace: str, clips: Path
) -> None:
    key = await submit(client, namespace, "pause", clips, "long.mkv", options=None)
    await reaches(client, key, phase("Running"), "it runs")
    await eventually(lambda: fleet.kubelet.started == ["pause-0"], "its Pod runs")
    await client.merge_patch(JOBS, key, {"spec": {"suspend": True}})
    job = await reaches(client, key, phase("Pending"), "it stops")
    assert (job.status.assignedNode, job.status.controllerJobID, job.status.startedAt) == (None, None, None)
    assert condition(job, "Scheduled") == ("False", "Suspended")

    async def deleted() -> bool:
        return (await client.list(PODS, namespace)).items == []

    await eventually(deleted, "its Pod is deleted")
    await client.merge_patch(JOBS, key, {"spec": {"suspend": False}})
    job = await reaches(client, key, phase("Succeeded"), "it is scored")
    assert (job.status.attempts, job.status.failures, fleet.kubelet.started) == (2, 0, ["pause-0", "pause-1"])


async def test_a_cancelled_job_fails_and_its_pod_is_deleted(
    fleet: ScoringFleet, client: Client, namespace: str, clips: Path
) -> None:
    key = await submit(client, namespace, "stop", clips, "long.mkv")
    await eventually(lambda: fleet.kubelet.started == ["stop-0"], "its Pod runs")
    await client.merge_patch(JOBS, key, {"spec": {"cancel": True}})
    job = await reaches(client, key, phase("Failed"), "it ends")
    assert condition(job, "Failed") == ("True", "Cancelled")

    async def deleted() -> bool:
        return (await client.list(PODS, namespace)).items == []

    await eventually(deleted, "its Pod is deleted")


async def test_a_job_fails_when_its_deadline_is_exceeded(
    fleet: ScoringFleet, client: Client, namespace: str, clips: Path
) -> None:
    fleet.kubelet.hold.clear()
    key = await submit(client, namespace, "late", clips, activeDeadlineSeconds=2)
    job = await reaches(client, key, phase("Failed"), "it ends")
    assert condition(job, "Failed") == ("True", "DeadlineExceeded")


async def test_a_waiting_job_says_why_and_runs_once_a_node_fits(
    fleet: ScoringFleet, client: Client, namespace: str, clips: Path
) -> None:
    key = await submit(client, namespace, "rack-b", clips, nodeSelector={"rack": "b"})
    job = await reaches(client, key, lambda one: bool(one.status.conditions), "it says why it waits")
    assert condition(job, "Scheduled") == ("False", "NoNodes")
    node = VmafxNode(metadata=ObjectMeta(name="gpu", labels={"rack": "b"}), spec=VmafxNodeSpec("nvidia"))
    await client.create(NODES, node, namespace)
    await client.patch_status(NODES, ObjectKey(namespace, "gpu"), {"healthy": True})
    job = await reaches(client, key, phase("Succeeded"), "a GPU node scores a job without a backend")
    assert job.status.assignedNode == "gpu"


async def test_a_backend_without_an_engine_fails_the_job_and_its_message_says_so(
    fleet: ScoringFleet, client: Client, namespace: str, clips: Path
) -> None:
    """The job waits for a node with the GPU, is placed there, and is never scored on the CPU instead."""
    key = await submit(client, namespace, "gpu", clips, backend="cuda", retryLimit=0)
    job = await reaches(client, key, lambda one: bool(one.status.conditions), "it says why it waits")
    assert condition(job, "Scheduled") == ("False", "BackendUnavailable")
    node = VmafxNode(metadata=ObjectMeta(name="gpu"), spec=VmafxNodeSpec("nvidia"))
    await client.create(NODES, node, namespace)
    await client.patch_status(NODES, ObjectKey(namespace, "gpu"), {"healthy": True})
    job = await reaches(client, key, phase("Failed"), "it fails")
    assert condition(job, "Failed") == ("True", "RetriesExhausted")
    assert (job.status.assignedNode, job.status.score, fleet.kubelet.started) == ("gpu", None, ["gpu-0"])
    assert "NodeFault: this machine has no engine for the backend cuda (an NVIDIA GPU): torch is not installed" in (
        job.status.message or ""
    )


async def test_slots_are_not_exceeded_and_higher_priority_runs_first(
    fleet: ScoringFleet, client: Client, namespace: str, clips: Path
) -> None:
    await client.merge_patch(NODES, ObjectKey(namespace, "pool"), {"spec": {"unschedulable": True}})
    await has_seen(fleet.operator, client, ObjectKey(namespace, "pool"))
    keys = [
        await submit(client, namespace, f"job-{number}", clips, priority=priority)
        for number, priority in enumerate((0, 5, 9, 5))
    ]
    for key in keys:  # all are queued before there is a slot
        await reaches(client, key, lambda one: bool(one.status.conditions), "it waits")
    fleet.kubelet.hold.clear()
    await client.merge_patch(NODES, ObjectKey(namespace, "pool"), {"spec": {"unschedulable": False}})

    async def running() -> list[str]:
        page = await client.list(JOBS, namespace, fields="status.phase=Running")
        return sorted(job.metadata.name for job in page.items)

    async def two() -> bool:
        return len(await running()) == 2

    await eventually(two, "both slots are taken")
    assert await running() == ["job-1", "job-2"]
    waiting = await client.get(JOBS, ObjectKey(namespace, "job-3"))
    assert condition(waiting, "Scheduled")[0] == "False"
    fleet.kubelet.hold.set()
    for key in keys:
        await reaches(client, key, phase("Succeeded"), "all are scored")


async def test_a_placement_by_another_scheduler_is_used(
    fleet: ScoringFleet, client: Client, namespace: str, clips: Path
) -> None:
    key = await submit(client, namespace, "other", clips, schedulerName="other")
    job = await reaches(client, key, lambda one: bool(one.status.conditions), "it waits for the other scheduler")
    assert condition(job, "Scheduled") == ("False", "AwaitingScheduler")
    await client.patch_status(JOBS, key, {"assignedNode": "late"})
    await reaches(client, key, lambda one: condition(one, "Scheduled")[1] == "NoNodes", "its node does not exist")
    await add_node(client, namespace, "late")
    job = await reaches(client, key, phase("Succeeded"), "it is scored once its node exists")
    assert job.status.assignedNode == "late"


async def test_deleting_the_pod_of_a_job_fails_the_attempt(
    fleet: ScoringFleet, client: Client, namespace: str, clips: Path
) -> None:
    key = await submit(client, namespace, "deleted", clips, "long.mkv", retryLimit=1)
    await eventually(lambda: fleet.kubelet.started == ["deleted-0"], "its Pod runs")
    await client.delete(PODS, ObjectKey(namespace, "deleted-0"))
    job = await reaches(client, key, lambda one: one.status.failures == 1, "the failure is counted")
    assert "its Pod" in (job.status.message or "")


async def test_a_restarted_operator_continues_without_new_attempts(
    client: Client, namespace: str, clips: Path, tmp_path: Path
) -> None:
    await allow_pods(client, namespace)
    await add_node(client, namespace, "pool", capacity=2)
    async with Kubelet(client, namespace, tmp_path) as kubelet:
        kubelet.hold.clear()
        async with operating(client, namespace):
            keys = [await submit(client, namespace, f"job-{number}", clips) for number in range(4)]
            await reaches(client, keys[0], phase("Running"), "one runs")
        kubelet.hold.set()
        async with operating(client, namespace):
            for key in keys:
                job = await reaches(client, key, phase("Succeeded"), "all are scored")
                assert job.status.attempts == 1
    assert sorted(kubelet.started) == [f"job-{number}-0" for number in range(4)]


async def test_a_finished_job_is_deleted_after_its_ttl_and_kept_without_one(
    fleet: ScoringFleet, client: Client, namespace: str, clips: Path
) -> None:
    stays = await submit(client, namespace, "stays", clips)
    short = await submit(client, namespace, "short", clips, ttlSecondsAfterFinished=1)
    longer = await submit(client, namespace, "longer", clips, ttlSecondsAfterFinished=3600)
    for key in (stays, longer):
        await reaches(client, key, phase("Succeeded"), "it is scored")

    async def names() -> set[str]:
        return {job.metadata.name for job in (await client.list(JOBS, namespace)).items}

    async def deleted() -> bool:
        return await names() == {"stays", "longer"}

    await eventually(deleted, f"{short} is deleted")
    await client.merge_patch(JOBS, longer, {"spec": {"ttlSecondsAfterFinished": 0}})  # the TTL may be changed later

    async def both_deleted() -> bool:
        return await names() == {"stays"}

    await eventually(both_deleted, "the other is deleted too")


async def test_jobs_that_finished_before_the_operator_started_are_deleted_too(
    client: Client, namespace: str, clips: Path
) -> None:
    specs: dict[str, dict[str, Any]] = {
        "a": {"ttlSecondsAfterFinished": 1},
        "b": {"ttlSecondsAfterFinished": 0},
        "c": {},
    }
    for name, spec in specs.items():
        key = await submit(client, namespace, name, clips, **spec)
        await client.patch_status(JOBS, key, {"phase": "Failed", "finishedAt": "2026-01-01T00:00:00Z"})
    with_ttl = await client.list(JOBS, namespace, fields="status.phase=Failed,spec.ttlSecondsAfterFinished!=")
    assert [job.metadata.name for job in with_ttl.items] == ["a", "b"]

    async def deleted() -> bool:
        return [job.metadata.name for job in (await client.list(JOBS, namespace)).items] == ["c"]

    async with operating(client, namespace):
        await eventually(deleted, "those with a TTL are deleted")


async def test_a_ttl_set_while_the_watch_is_interrupted_is_not_missed(
    client: Client, namespace: str, clips: Path
) -> None:
    """There is no event of it, and the list after the interruption leaves out finished jobs."""
    finished = {"phase": "Failed", "finishedAt": "2026-01-01T00:00:00Z"}
    first = await submit(client, namespace, "first", clips, ttlSecondsAfterFinished=0)
    late = await submit(client, namespace, "late", clips)
    for key in (first, late):
        await client.patch_status(JOBS, key, finished)
    jobs = jobs_informer(client, namespace)
    cleaner = FinishedJobCleaner(client, jobs, utc_now)
    jobs.on_change(cleaner.job_changed)

    def exist(*names: str) -> Callable[[], Awaitable[bool]]:
        async def check() -> bool:
            return [job.metadata.name for job in (await client.list(JOBS, namespace)).items] == list(names)

        return check

    cleaning, watching = asyncio.create_task(cleaner.run()), asyncio.create_task(jobs.run())
    try:
        await jobs.synced.wait()
        await eventually(exist("late"), "the first is deleted: finished jobs were listed")
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await client.merge_patch(JOBS, late, {"spec": {"ttlSecondsAfterFinished": 0}})
        watching = asyncio.create_task(jobs.run())
        await eventually(exist(), "the other is deleted, too")
    finally:
        for task in (cleaning, watching):
            task.cancel()
        await asyncio.gather(cleaning, watching, return_exceptions=True)


async def test_the_status_of_a_node_counts_its_jobs(
    fleet: ScoringFleet, client: Client, namespace: str, clips: Path
) -> None:
    fleet.kubelet.hold.clear()
    for number in range(3):
        await submit(client, namespace, f"job-{number}", clips)

    async def assigned(count: int) -> bool:
        return (await client.get(NODES, ObjectKey(namespace, "pool"))).status.assignedJobs == count

    await eventually(lambda: assigned(2), "two of the three are assigned")
    fleet.kubelet.hold.set()
    await eventually(lambda: assigned(0), "none is left")


async def test_a_job_whose_gate_opens_while_it_is_looked_at_is_looked_at_again(client: Client, namespace: str) -> None:
    """The scheduler was told that the job waits for its retry; a moment later, it could be placed."""
    reconciler = JobReconciler(context(client, namespace), defaults(JobSettings, worker_image="worker:1"))
    view = JobView(MetaView("job", namespace, "uid"), JobSpecView("s3://b/r", "s3://b/d"))
    result = await reconciler._act(key_of(view), view, None, Enqueue())
    assert result == ReconcileResult.after(RECHECK_INTERVAL)
