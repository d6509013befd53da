"""A fleet that scores jobs: the job reconciler with a real API server, nodes, and a kubelet with the real worker."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.kubelet import Kubelet
from tests.support.operator_context import context
from tests.support.setting_defaults import defaults
from tests.support.video import ffmpeg, long_clip, lossless, scene
from tests.support.waiting import eventually
from vmafx.api.job import VmafxJob, VmafxJobSpec
from vmafx.api.meta import ObjectMeta
from vmafx.api.node import VmafxNode, VmafxNodeSpec
from vmafx.clock import loop_time, utc_now
from vmafx.kube import JOBS, NODES, Client, ObjectKey, Resource
from vmafx.kube.core import PODS
from vmafx.kube.errors import AlreadyExists, NotFound
from vmafx.kube.resources import UntypedObject
from vmafx.operator.job.reconciler import JobReconciler
from vmafx.operator.job.settings import JobSettings
from vmafx.runtime.metrics import Metrics

ACCOUNTS: Resource[UntypedObject] = Resource("", "v1", "serviceaccounts", "ServiceAccount", dict)


class ScoringFleet(NamedTuple):
    kubelet: Kubelet
    operator: JobReconciler


def make_clips(folder: Path) -> Path:
    """reference.mkv and distorted.mp4, which are scored quickly, and long.mkv, which takes seconds."""
    reference = lossless(scene(frames=6), folder / "reference.mkv")
    ffmpeg("-i", reference, "-c:v", "libx264", "-crf", "34", folder / "distorted.mp4")
    long_clip(folder / "long.mkv", frames=200)
    return folder


@asynccontextmanager
async def operating(
    client: Client,
    namespace: str,
    now: Callable[[], datetime] = utc_now,
    clock: Callable[[], float] = loop_time,
    metrics: Metrics | None = None,
    **parts: Any,
) -> AsyncIterator[JobReconciler]:
    """Run the job reconciler only, as the operator does."""
    made = context(client, namespace, metrics, now=now, clock=clock)
    reconciler = JobReconciler(made, defaults(JobSettings, worker_image="worker:1", **parts))
    made.manager.add_informer(reconciler.pods)
    made.manager.add_loop(reconciler.loop)
    made.manager.while_leading(reconciler.lead)
    stop = asyncio.Event()
    running = asyncio.create_task(made.manager.run(stop))
    try:
        yield reconciler
    finally:
        stop.set()
        await running


@asynccontextmanager
async def scoring_fleet(client: Client, namespace: str, folder: Path) -> AsyncIterator[ScoringFleet]:
    """A node with two slots, the job reconciler and a kubelet."""
    await allow_pods(client, namespace)
    await add_node(client, namespace, "pool", capacity=2)
    async with Kubelet(client, namespace, folder) as kubelet, operating(client, namespace) as operator:
        yield ScoringFleet(kubelet, operator)


async def allow_pods(client: Client, namespace: str) -> None:
    """Create the default ServiceAccount, which Pods need and a controller manager would create."""
    with suppress(AlreadyExists):
        await client.create(ACCOUNTS, {"metadata": {"name": "default"}}, namespace)


async def add_node(client: Client, namespace: str, name: str, **spec: Any) -> None:
    node = VmafxNode(metadata=ObjectMeta(name=name), spec=VmafxNodeSpec("cpu", **spec))
    await client.create(NODES, node, namespace)
    await client.patch_status(NODES, ObjectKey(namespace, name), {"healthy": True})


async def _version(client: Client, node: ObjectKey) -> str | None:
    try:
        return (await client.get(NODES, node)).metadata.resourceVersion
    except NotFound:
        return None


async def has_seen(operator: JobReconciler, client: Client, node: ObjectKey) -> None:
    """Wait until the operator's cache has the node as it is now: jobs come by another watch, maybe sooner."""

    async def same() -> bool:
        cached = operator._gatherer._nodes.store.get(node)
        return (cached.metadata.resourceVersion if cached else None) == await _version(client, node)

    await eventually(same, f"the operator has seen {node}")


async def submit(client: Client, namespace: str, name: str, clips: Path, distorted: str = "", **spec: Any) -> ObjectKey:
    reference = "long.mkv" if distorted == "long.mkv" else "reference.mkv"
    wanted = VmafxJobSpec((clips / reference).as_uri(), (clips / (distorted or "distorted.mp4")).as_uri(), **spec)
    await client.create(JOBS, VmafxJob(metadata=ObjectMeta(name=name), spec=wanted), namespace)
    return ObjectKey(namespace, name)


async def known_to_take(client: Client, namespace: str, node: str, seconds: float, clips: Path) -> None:
    """A job of the past that took so long there."""
    key = await submit(client, namespace, f"took-{seconds:.0f}", clips, schedulerName="the-past")
    now = datetime.now(UTC)
    ended = {"phase": "Succeeded", "assignedNode": node, "finishedAt": now}
    await client.patch_status(JOBS, key, ended | {"startedAt": now - timedelta(seconds=seconds)})


async def reaches(client: Client, key: ObjectKey, holds: Callable[[VmafxJob], bool], what: str) -> VmafxJob:
    """Wait until `holds`; return the version of the job for which it did."""
    job = await client.get(JOBS, key)

    async def check() -> bool:
        nonlocal job
        job = await client.get(JOBS, key)
        return holds(job)

    try:
        await eventually(check, what)
    except AssertionError:
        pods = [(one["metadata"]["name"], one.get("status")) for one in (await client.list(PODS, key.namespace)).items]
        raise AssertionError(f"{what}: {job.status} {pods}") from None
    return job


def phase(wanted: str) -> Callable[[VmafxJob], bool]:
    return lambda job: job.status.phase == wanted


def condition(job: VmafxJob, kind: str) -> tuple[str, str]:
    return next((one.status, one.reason) for one in job.status.conditions if one.type == kind)
