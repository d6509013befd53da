"""What happens to a job when its Pod or its node fails."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.fleet import add_node, allow_pods, condition, has_seen, operating, phase, reaches, submit
from tests.support.kubelet import ENDS, LOW_ON_MEMORY, End, Fate, Kubelet
from tests.support.operator_context import context
from tests.support.setting_defaults import defaults
from tests.support.waiting import eventually
from vmafx.api.job import JobView, VmafxJob
from vmafx.clock import loop_time, utc_now
from vmafx.jobs.attempt import AttemptResult, encode_result
from vmafx.jobs.outcome import Retry
from vmafx.jobs.state import age_at
from vmafx.kube import JOBS, NODES, Client, ObjectKey, Resource
from vmafx.kube.core import EVENTS, PODS
from vmafx.kube.errors import Forbidden, Invalid
from vmafx.kube.resources import UntypedObject
from vmafx.operator.job.decide import DISRUPTED, Observation, decide
from vmafx.operator.job.pod_cache import ATTEMPT_LABEL, JOB_LABEL, pods_informer
from vmafx.operator.job.reconciler import JobReconciler
from vmafx.operator.job.settings import JobSettings
from vmafx.operator.job.steps import RECHECK_INTERVAL, CreatePod, NoAction


class Fleet:
    """One node of two slots, a kubelet, and an operator whose clocks can be set ahead."""

    def __init__(self, client: Client, namespace: str, kubelet: Kubelet, clips: Path) -> None:
        self.client, self.namespace, self.kubelet, self._clips = client, namespace, kubelet, clips
        self.ahead = timedelta()
        self.operator: JobReconciler

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def clock(self) -> float:
        return loop_time() + self.ahead.total_seconds()

    def set_fates(self, **fates: Fate) -> None:
        """How the Pods of these names end, with _ for -."""
        self.kubelet.fate = lambda pod: fates.get(pod.replace("-", "_"))

    async def submit(self, name: str, distorted: str = "", **spec: Any) -> ObjectKey:
        return await submit(self.client, self.namespace, name, self._clips, distorted, **spec)

    async def has_pod(self, name: str) -> None:
        """Wait until the Pod has a machine, and the operator's cache has its latest version."""

        async def known() -> bool:
            there = await self.client.list(PODS, self.namespace, fields=f"metadata.name={name}")
            cached = self.operator.pods.store.get(ObjectKey(self.namespace, name))
            versions = [one["metadata"]["resourceVersion"] for one in there.items if one["spec"].get("nodeName")]
            return cached is not None and versions == [cached.metadata.resourceVersion]

        await eventually(known, f"the operator has seen {name}")

    async def events(self, name: str) -> list[tuple[str, str]]:
        found = (await self.client.list(EVENTS, self.namespace)).items
        return [(one["type"], one["reason"]) for one in found if one["regarding"]["name"] == name]


@pytest.fixture
async def timed_fleet(client: Client, namespace: str, tmp_path: Path, clips: Path) -> AsyncIterator[Fleet]:
    await allow_pods(client, namespace)
    await add_node(client, namespace, "pool", capacity=2)
    async with Kubelet(client, namespace, tmp_path) as kubelet:
        timed_fleet = Fleet(client, namespace, kubelet, clips)
        async with operating(client, namespace, timed_fleet.now, timed_fleet.clock) as timed_fleet.operator:
            yield timed_fleet


async def test_a_job_that_exhausts_its_machine_fails(timed_fleet: Fleet) -> None:
    """The kubelet evicts its Pod, each time; otherwise the job would be retried for ever."""
    timed_fleet.set_fates(large_0="evicted")
    key = await timed_fleet.submit("large", retryLimit=0)
    job = await reaches(timed_fleet.client, key, lambda one: one.status.message is not None, "its attempt ends")
    assert (job.status.phase, job.status.failures) == ("Failed", 1)
    assert condition(job, "Failed") == ("True", "RetriesExhausted")
    assert job.status.message == f"its Pod was evicted: {LOW_ON_MEMORY}"


@pytest.mark.parametrize("fate", ["drained", "shut down"])
async def test_a_disrupted_pod_is_retried_without_a_failure(timed_fleet: Fleet, fate: Fate) -> None:
    timed_fleet.set_fates(moved_0=fate)
    key = await timed_fleet.submit("moved", retryLimit=0)
    job = await reaches(timed_fleet.client, key, phase("Succeeded"), "it is scored at the second attempt")
    assert (job.status.attempts, job.status.failures, job.status.excludedNodes) == (2, 0, ())

    async def reported() -> bool:
        return sorted(await timed_fleet.events("moved")) == [("Normal", "Retrying"), ("Normal", "Scored")]

    await eventually(reported, "events report the retry and the score")


@pytest.mark.parametrize(
    ("fate", "message"),
    [
        ("oom", "the worker exited with code 137 (OOMKilled) and left no result"),
        ("killed", "the worker exited with code 137 (Error) and left no result"),
        ("empty", "the worker exited with code 0 but left no valid result"),
        ("garbage", "the worker exited with code 0 but left no valid result"),
    ],
)
async def test_a_worker_that_died_is_retried_after_a_backoff(timed_fleet: Fleet, fate: Fate, message: str) -> None:
    timed_fleet.set_fates(died_0=fate)
    # With a long clip, the worker is killed before it is done.
    key = await timed_fleet.submit("died", "long.mkv" if fate == "killed" else "", retryLimit=1)
    job = await reaches(timed_fleet.client, key, lambda one: one.status.failures == 1, "the failure is counted")
    assert (job.status.phase, job.status.message, job.status.excludedNodes) == ("Pending", message, ("pool",))
    timed_fleet.ahead = timedelta(seconds=11)
    await timed_fleet.client.merge_patch(JOBS, key, {"spec": {"priority": 1}})  # triggers a reconciliation
    job = await reaches(timed_fleet.client, key, phase("Succeeded"), "it is scored, on the only node")
    assert (job.status.attempts, job.status.failures) == (2, 1)


async def test_a_pod_that_does_not_start_fails_the_attempt(timed_fleet: Fleet) -> None:
    timed_fleet.set_fates(stuck_0="stuck")
    key = await timed_fleet.submit("stuck", retryLimit=0)
    pod = ObjectKey(timed_fleet.namespace, "stuck-0")
    await timed_fleet.has_pod("stuck-0")
    waiting = {"name": "worker", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
    waiting["state"] = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    await timed_fleet.client.patch_status(PODS, pod, {"containerStatuses": [waiting]})
    await timed_fleet.has_pod("stuck-0")
    timed_fleet.ahead = timedelta(seconds=31)
    await timed_fleet.client.merge_patch(JOBS, key, {"spec": {"priority": 2}})  # triggers a reconciliation
    waiting_job = await reaches(timed_fleet.client, key, lambda one: bool(one.status.message), "the message says why")
    assert (waiting_job.status.phase, waiting_job.status.message) == (
        "Running",
        "its Pod has not started: ImagePullBackOff: no such image",
    )
    await eventually(lambda: timed_fleet.events("stuck"), "and an event")
    assert await timed_fleet.events("stuck") == [("Warning", "NotStarted")]
    timed_fleet.ahead = timedelta(minutes=10, seconds=1)
    await timed_fleet.client.merge_patch(JOBS, key, {"spec": {"priority": 1}})  # triggers a reconciliation
    job = await reaches(timed_fleet.client, key, phase("Failed"), "it fails")
    assert condition(job, "Failed") == ("True", "RetriesExhausted")
    assert job.status.message == "its Pod did not start within 10 minutes (ImagePullBackOff: no such image)"

    async def deleted() -> bool:
        return (await timed_fleet.client.list(PODS, timed_fleet.namespace)).items == []

    await eventually(deleted, "its Pod is deleted")


async def test_a_deleted_pod_that_does_not_terminate_fails_the_attempt(
    timed_fleet: Fleet, client: Client, namespace: str
) -> None:
    """Its machine is down and does not confirm the deletion. A Pod without a machine would be deleted at once."""
    timed_fleet.set_fates(lost_0="stuck")
    key, pod = await timed_fleet.submit("lost", retryLimit=0), ObjectKey(namespace, "lost-0")
    await timed_fleet.has_pod("lost-0")
    await client.merge_patch(PODS, pod, {"metadata": {"finalizers": ["test/keeps-it"]}})
    await client.delete(PODS, pod)
    job = await client.get(JOBS, key)
    assert job.status.phase == "Running"  # it may still report a score
    timed_fleet.ahead = timedelta(seconds=61)
    await client.merge_patch(PODS, pod, {"metadata": {"labels": {"touched": "yes"}}})
    job = await reaches(client, key, phase("Failed"), "it fails")
    assert job.status.message == "its Pod was deleted but does not terminate"
    await client.merge_patch(PODS, pod, {"metadata": {"finalizers": None}})


@pytest.mark.parametrize("harm", ["deleted", "cordoned", "unhealthy"])
async def test_a_running_pod_is_not_affected_by_changes_of_its_node(timed_fleet: Fleet, harm: str) -> None:
    key, node = await timed_fleet.submit("runs", "long.mkv"), ObjectKey(timed_fleet.namespace, "pool")
    await eventually(lambda: timed_fleet.kubelet.started == ["runs-0"], "its Pod runs")
    await timed_fleet.has_pod("runs-0")
    if harm == "deleted":
        await timed_fleet.client.delete(NODES, node)
    elif harm == "cordoned":
        await timed_fleet.client.merge_patch(NODES, node, {"spec": {"unschedulable": True}})
    else:
        await timed_fleet.client.patch_status(NODES, node, {"healthy": False})
    await has_seen(timed_fleet.operator, timed_fleet.client, node)
    next_one = await timed_fleet.submit("next")
    waits = await reaches(timed_fleet.client, next_one, lambda one: bool(one.status.conditions), "the next one waits")
    wanted = "NoNodes" if harm == "deleted" else "NoHealthyNode"
    assert condition(waits, "Scheduled") == ("False", wanted)
    job = await reaches(timed_fleet.client, key, phase("Succeeded"), "it is scored")
    assert (job.status.attempts, job.status.assignedNode) == (1, "pool")


async def test_a_node_deleted_before_the_pod_is_created_costs_no_failure(
    timed_fleet: Fleet, client: Client, namespace: str
) -> None:
    key = await timed_fleet.submit("early", schedulerName="other")
    uid = (await client.get(JOBS, key)).metadata.uid
    placed = {"phase": "Running", "assignedNode": "removed", "controllerJobID": f"{uid}-0", "attempts": 1}
    await client.patch_status(JOBS, key, placed)
    job = await reaches(client, key, phase("Pending"), "it waits again")
    assert (job.status.failures, job.status.message) == (0, "its node removed was deleted")


async def test_a_pod_made_invalid_by_its_node_fails_the_attempt(
    timed_fleet: Fleet, client: Client, namespace: str
) -> None:
    invalid = {"podTemplate": {"env": [{"name": "not a=name", "value": "x"}]}}
    await client.merge_patch(NODES, ObjectKey(namespace, "pool"), {"spec": invalid})
    await has_seen(timed_fleet.operator, client, ObjectKey(namespace, "pool"))
    key = await timed_fleet.submit("invalid", retryLimit=0)
    job = await reaches(client, key, phase("Failed"), "it fails")
    assert condition(job, "Failed") == ("True", "RetriesExhausted")
    assert "the API server rejected its Pod: " in (job.status.message or "")
    assert "not a=name" in (job.status.message or "")


async def test_a_forbidden_pod_is_retried(timed_fleet: Fleet, client: Client, namespace: str) -> None:
    quotas: Resource[UntypedObject] = Resource("", "v1", "resourcequotas", "ResourceQuota", dict)
    await client.create(quotas, {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}, namespace)
    one = {"metadata": {"name": "one"}, "spec": {"containers": [{"name": "any", "image": "i"}]}}

    async def counted() -> bool:
        """By admission, not only in the stored object."""
        try:
            await client.create(PODS, one, namespace, dry_run=True)
        except Forbidden as error:
            return "exceeded quota: none" in str(error)
        return False

    await eventually(counted, "the quota holds")
    key = await timed_fleet.submit("limited", retryLimit=0)
    job = await reaches(client, key, lambda one: bool(one.status.message), "its message says why")
    assert "creating its Pod was forbidden (quota, admission policy or permission): " in (job.status.message or "")
    assert "exceeded quota: none" in (job.status.message or "")
    assert (job.status.phase, job.status.failures) == ("Running", 0)
    await eventually(lambda: timed_fleet.events("limited"), "an event reports it")
    assert await timed_fleet.events("limited") == [("Warning", "FailedCreate")]
    await client.delete(quotas, ObjectKey(namespace, "none"))
    job = await reaches(client, key, phase("Succeeded"), "it is scored once the quota is gone")
    assert (job.status.attempts, job.status.message) == (1, None)


@pytest.mark.parametrize(
    "limits",
    [{"default": {"cpu": "200m", "memory": "256Mi"}}, {"max": {"memory": "512Mi"}}],
    ids=["default", "maximum"],
)
async def test_a_pod_gets_the_resources_of_a_limit_range_that_contradicts_the_operator(
    timed_fleet: Fleet, client: Client, namespace: str, limits: dict[str, Any]
) -> None:
    ranges: Resource[UntypedObject] = Resource("", "v1", "limitranges", "LimitRange", dict)
    spec = {"limits": [{"type": "Container", **limits}]}
    await client.create(ranges, {"metadata": {"name": "small"}, "spec": spec}, namespace)
    large = {"requests": {"cpu": "4", "memory": "4Gi"}}
    one = {"metadata": {"name": "one"}, "spec": {"containers": [{"name": "any", "image": "i", "resources": large}]}}

    async def holds() -> bool:
        try:
            await client.create(PODS, one, namespace, dry_run=True)
        except (Forbidden, Invalid):
            return True
        return False

    await eventually(holds, "the LimitRange holds")
    job = await reaches(client, await timed_fleet.submit("small", retryLimit=0), phase("Succeeded"), "it is scored")
    assert (job.status.attempts, job.status.message) == (1, None)


async def test_a_pod_that_stays_forbidden_fails_the_attempt(timed_fleet: Fleet, client: Client, namespace: str) -> None:
    unknown = {"podTemplate": {"runtimeClassName": "nowhere"}}
    await client.merge_patch(NODES, ObjectKey(namespace, "pool"), {"spec": unknown})
    await has_seen(timed_fleet.operator, client, ObjectKey(namespace, "pool"))
    key = await timed_fleet.submit("refused", retryLimit=0)
    await reaches(client, key, lambda one: bool(one.status.message), "its message says why")
    timed_fleet.ahead = timedelta(minutes=10, seconds=1)
    await client.merge_patch(JOBS, key, {"spec": {"priority": 1}})  # triggers a reconciliation
    job = await reaches(client, key, phase("Failed"), "it fails")
    assert (job.status.message or "").startswith(
        "its Pod could not be created within 10 minutes: creating its Pod was forbidden"
        " (quota, admission policy or permission): "
    )


async def test_a_waiting_job_shows_the_current_reason(timed_fleet: Fleet, client: Client, namespace: str) -> None:
    key = await timed_fleet.submit("patient", nodeSelector={"rack": "a"})

    def because(reason: str) -> Callable[[VmafxJob], bool]:
        return lambda job: bool(job.status.conditions) and condition(job, "Scheduled")[1] == reason

    await reaches(client, key, because("NoNodes"), "no node has its labels")
    await client.merge_patch(NODES, ObjectKey(namespace, "pool"), {"spec": {"unschedulable": True}})
    await client.merge_patch(NODES, ObjectKey(namespace, "pool"), {"metadata": {"labels": {"rack": "a"}}})
    await reaches(client, key, because("NoHealthyNode"), "one has them, and is cordoned")
    await client.merge_patch(NODES, ObjectKey(namespace, "pool"), {"spec": {"unschedulable": False}})
    await reaches(client, key, phase("Succeeded"), "it is scored")


async def test_a_pod_name_in_use_is_waited_for_and_then_fails_the_attempt(
    timed_fleet: Fleet, client: Client, namespace: str
) -> None:
    other = {"name": "worker", "image": "i", "command": ["true"], "env": []}
    timed_fleet.kubelet.hold.clear()
    await client.create(PODS, {"metadata": {"name": "web-0"}, "spec": {"containers": [other]}}, namespace)
    key = await timed_fleet.submit("web", retryLimit=0)
    await reaches(client, key, phase("Running"), "it is placed")
    await eventually(
        lambda: (known := timed_fleet.operator._memory.get(key)) is not None and known.blocked_since is not None,
        "the Pod name is in use",
    )
    timed_fleet.ahead = timedelta(seconds=31)
    job = await reaches(client, key, lambda one: bool(one.status.message), "its message says why")
    assert job.status.message == "a Pod named web-0 already exists and is not controlled by this job; retrying"
    timed_fleet.ahead = timedelta(minutes=11)
    job = await reaches(client, key, phase("Failed"), "it fails")
    assert job.status.message == (
        "its Pod could not be created within 10 minutes: a Pod named web-0 already exists and is not controlled"
        " by this job"
    )


async def test_an_invalid_result_fails_the_attempt(timed_fleet: Fleet, client: Client, namespace: str) -> None:
    timed_fleet.kubelet.hold.clear()
    key = await timed_fleet.submit("odd", retryLimit=0)
    job = await reaches(client, key, phase("Running"), "it is placed")
    timed_fleet.kubelet.answers["odd-0"] = (0, f'{{"id": "{job.metadata.uid}-0", "score": 50, "frames": -1}}')
    timed_fleet.kubelet.hold.set()
    job = await reaches(client, key, phase("Failed"), "it fails")
    assert job.status.message == "the worker exited with code 0 but left no valid result"


async def test_the_deadline_ends_a_job_whose_agent_does_not_claim_it(
    timed_fleet: Fleet, client: Client, namespace: str
) -> None:
    await add_node(client, namespace, "far", runtime="Agent")
    await client.patch_status(NODES, ObjectKey(namespace, "far"), {"agentSession": "s"})
    await client.merge_patch(NODES, ObjectKey(namespace, "pool"), {"spec": {"unschedulable": True}})
    await has_seen(timed_fleet.operator, client, ObjectKey(namespace, "pool"))
    key = await timed_fleet.submit("late", activeDeadlineSeconds=2)
    job = await reaches(client, key, phase("Failed"), "it ends")
    assert condition(job, "Failed") == ("True", "DeadlineExceeded")


async def test_a_finished_pod_of_an_unfinished_job_survives_a_relist(
    client: Client, namespace: str, clips: Path
) -> None:
    """Lists leave out finished Pods, except those whose job is not finished yet."""
    await allow_pods(client, namespace)
    jobs = context(client, namespace).jobs
    pods, pod = pods_informer(client, jobs), ObjectKey(namespace, "kept-0")
    tasks = [asyncio.create_task(informer.run()) for informer in (jobs, pods)]
    try:
        key = await submit(client, namespace, "kept", clips)
        await eventually(lambda: jobs.store.get(key), "the job is known")
        metadata = {"name": "kept-0", "labels": {JOB_LABEL: "kept", ATTEMPT_LABEL: "0"}}
        spec = {"containers": [{"name": "worker", "image": "i"}]}
        await client.create(PODS, {"metadata": metadata, "spec": spec}, namespace)
        await eventually(lambda: pods.store.get(pod), "its Pod is known")
        await client.patch_status(PODS, pod, End(0, "the result").status())

        def message() -> str | None:
            known = pods.store.get(pod)
            ended = known.termination() if known is not None else None
            return ended.message if ended is not None else None

        await eventually(lambda: message() == "the result", "its result is known")
        await pods.refresh()
        assert message() == "the result"
        await client.patch_status(JOBS, key, {"phase": "Succeeded"})
        await eventually(lambda: jobs.store.get(key) is None, "the job is finished")
        await pods.refresh()
        assert pods.store.get(pod) is None
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_pod_that_was_created_and_deleted_unseen_fails_the_attempt(
    client: Client, namespace: str, clips: Path
) -> None:
    """The informer for Pods does not run here, so the cache never shows it."""
    await allow_pods(client, namespace)
    await add_node(client, namespace, "pool")
    key, pod = await submit(client, namespace, "lost", clips), ObjectKey(namespace, "lost-0")
    uid = (await client.get(JOBS, key)).metadata.uid
    placed = {"phase": "Running", "assignedNode": "pool", "controllerJobID": f"{uid}-0", "attempts": 1}
    job = await client.patch_status(JOBS.decoded_as(JobView), key, placed)
    operator_context = context(client, namespace)
    reconciler = JobReconciler(operator_context, defaults(JobSettings, worker_image="worker:1"))
    watching = [asyncio.create_task(informer.run()) for informer in (operator_context.jobs, operator_context.nodes)]

    async def gather() -> Observation:
        return await reconciler._gatherer.gather(key, job)

    try:
        for informer in (operator_context.jobs, operator_context.nodes):
            await informer.synced.wait()
        observed = await gather()
        assert decide(job, age_at(utc_now()), observed) == CreatePod()
        assert observed.node is not None
        await reconciler._create_pod(key, job, observed.node, None)
        assert decide(job, age_at(utc_now()), await gather()) == NoAction(
            RECHECK_INTERVAL
        )  # just created: not looked up yet
        there = await client.get(PODS, pod)

        async def is_found() -> bool:
            found = (await gather()).pod
            return found is not None and found.metadata.uid == there["metadata"]["uid"]

        await eventually(is_found, "it is looked up and found")
        await client.delete(PODS, pod, grace_seconds=0)
        assert decide(job, age_at(utc_now()), await gather()) == Retry("its Pod disappeared")
    finally:
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)


async def test_a_drained_pod_that_is_gone_before_the_job_is_reconciled_is_no_failure(
    client: Client, namespace: str, clips: Path
) -> None:
    """The reconcile loop does not run here: a busy operator sees both changes before it reconciles."""
    await allow_pods(client, namespace)
    await add_node(client, namespace, "pool")
    key, pod = await submit(client, namespace, "moved", clips), ObjectKey(namespace, "moved-0")
    uid = (await client.get(JOBS, key)).metadata.uid
    placed = {"phase": "Running", "assignedNode": "pool", "controllerJobID": f"{uid}-0", "attempts": 1}
    job = await client.patch_status(JOBS.decoded_as(JobView), key, placed)
    operator_context = context(client, namespace)
    reconciler = JobReconciler(operator_context, defaults(JobSettings, worker_image="worker:1"))
    informers = (operator_context.jobs, operator_context.nodes, reconciler.pods)
    watching = [asyncio.create_task(informer.run()) for informer in informers]
    try:
        for informer in informers:
            await informer.synced.wait()
        observed = await reconciler._gatherer.gather(key, job)
        assert observed.node is not None
        await reconciler._create_pod(key, job, observed.node, None)
        await eventually(lambda: reconciler.pods.store.get(pod), "its Pod is known")
        await client.patch_status(PODS, pod, ENDS["drained"].status())
        await client.delete(PODS, pod, grace_seconds=0)
        await eventually(lambda: not reconciler.pods.store.get(pod), "its deletion is known")
        assert decide(job, age_at(utc_now()), await reconciler._gatherer.gather(key, job)) == DISRUPTED
    finally:
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)


async def test_sidecars_are_stopped_when_the_job_ends(timed_fleet: Fleet, client: Client, namespace: str) -> None:
    timed_fleet.set_fates(meshed_0="stuck")
    key = await timed_fleet.submit("meshed")
    job = await reaches(client, key, phase("Running"), "it is placed")
    await timed_fleet.has_pod("meshed-0")
    common = {"image": "i", "imageID": "i", "ready": False, "restartCount": 0}
    answer = encode_result(AttemptResult(f"{job.metadata.uid}-0", 90.0, 6)).decode()
    ended = {"terminated": {"exitCode": 0, "reason": "Completed", "message": answer}}
    containers = [
        {"name": "mesh", "state": {"running": {}}, **common},
        {"name": "worker", "state": ended, **common},
    ]
    pod_status = {"phase": "Running", "containerStatuses": containers}
    await client.patch_status(PODS, ObjectKey(namespace, "meshed-0"), pod_status)
    job = await reaches(client, key, phase("Succeeded"), "the worker's score counts")
    assert job.status.score == 90.0

    async def deleted() -> bool:
        return (await client.list(PODS, namespace)).items == []

    await eventually(deleted, "its Pod is deleted")


async def test_a_pod_with_an_empty_job_label_is_ignored(timed_fleet: Fleet, client: Client, namespace: str) -> None:
    other = {"name": "other", "image": "i", "command": ["true"], "env": []}
    timed_fleet.set_fates(odd_0="stuck")
    labelled = {"metadata": {"name": "odd-0", "labels": {"vmafx.dev/job": ""}}, "spec": {"containers": [other]}}
    await client.create(PODS, labelled, namespace)
    await reaches(client, await timed_fleet.submit("plain"), phase("Succeeded"), "others are scored")


async def test_a_recreated_job_waits_for_the_pod_of_the_old_one_to_be_deleted(
    timed_fleet: Fleet, client: Client, namespace: str
) -> None:
    timed_fleet.kubelet.hold.clear()
    key = await timed_fleet.submit("twin", "long.mkv")
    first = await reaches(client, key, phase("Running"), "the first is placed")

    async def exists() -> bool:
        return bool((await client.list(PODS, namespace)).items)

    await eventually(exists, "its Pod exists")
    await client.merge_patch(PODS, ObjectKey(namespace, "twin-0"), {"metadata": {"finalizers": ["test/keeps-it"]}})
    await client.delete(JOBS, key)
    await timed_fleet.submit("twin")
    second = await reaches(client, key, phase("Running"), "the second is placed")
    assert second.metadata.uid != first.metadata.uid
    timed_fleet.kubelet.hold.set()
    await client.merge_patch(PODS, ObjectKey(namespace, "twin-0"), {"metadata": {"finalizers": None}})
    done = await reaches(client, key, phase("Succeeded"), "the second is scored")
    assert (done.metadata.uid, done.status.attempts, done.status.frames) == (second.metadata.uid, 1, 6)
