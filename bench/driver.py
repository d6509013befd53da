"""Creates jobs, acts as the kubelet, and measures times.

It uses a tenth of the API server's CPU time, so it is not the bottleneck.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, aclosing
from types import TracebackType
from typing import Self

import msgspec
from bench.api_requests import RequestCounts
from bench.contest import NAMESPACE, node_names
from prometheus_client import CollectorRegistry

from vmafx.api.job import VmafxJob, VmafxJobSpec
from vmafx.api.meta import ApiModel, MetaView, ObjectMeta
from vmafx.jobs.attempt import AttemptResult, encode_result
from vmafx.kube import JOBS, Client, Config, ObjectKey
from vmafx.kube.core import PODS
from vmafx.kube.metrics import ClientMetrics
from vmafx.kube.watch import Added, Modified
from vmafx.operator.job.pod import NODE_LABEL
from vmafx.operator.job.pod_cache import ATTEMPT_LABEL, JOB_LABEL

CREATORS = 32
FRAMES = 300


class Pod(msgspec.Struct):
    """A Pod as the driver reads it."""

    metadata: ObjectMeta


POD = PODS.decoded_as(Pod)


class _Status(ApiModel):
    phase: str = "Pending"


class _Outcome(ApiModel):
    """The fields of a job that show that it is done."""

    metadata: MetaView
    status: _Status = _Status()


class Times(msgspec.Struct):
    """Times of one job, on the driver's clock."""

    created: float = 0.0  # when it was sent; with a rate, when it was due
    pod: float = 0.0
    done: float = 0.0


class Driver:
    """Drives one run of `count` jobs. Use as an async context manager, which opens its watches."""

    def __init__(self, config: Config, count: int) -> None:
        self.times = {f"job-{number:06}": Times() for number in range(count)}
        self._remaining = count
        self._registry = CollectorRegistry()
        metrics = ClientMetrics(self._registry)
        # A connection pool for each task, so that they do not wait for each other.
        self._creating, self._kubelet, self._watching = (Client(config, metrics) for _ in range(3))
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        for client in (self._creating, self._kubelet, self._watching):
            await self._stack.enter_async_context(client)
        self._group = await self._stack.enter_async_context(asyncio.TaskGroup())
        pods = await self._watching.list(POD, NAMESPACE)
        jobs = await self._watching.list(JOBS, NAMESPACE)
        self._watches = [
            self._group.create_task(self._follow_pods(pods.metadata.resourceVersion)),
            self._group.create_task(self._follow_jobs(jobs.metadata.resourceVersion)),
        ]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for watch in self._watches:
            watch.cancel()
        await self._stack.__aexit__(kind, error, trace)

    async def create(self, rate: float) -> None:
        """Create all jobs: with `rate` that many per second (open loop), else as fast as CREATORS tasks can."""
        names = iter(enumerate(self.times))
        started = time.perf_counter()
        if not rate:
            await asyncio.gather(*(self._creator(names) for _ in range(CREATORS)))
            return
        async with asyncio.TaskGroup() as group:
            for number, name in names:
                planned = started + number / rate
                await asyncio.sleep(max(0.0, planned - time.perf_counter()))
                group.create_task(self._create(number, name, planned))

    async def _creator(self, names: Iterator[tuple[int, str]]) -> None:
        for number, name in names:
            await self._create(number, name, time.perf_counter())

    async def _create(self, number: int, name: str, counted_from: float) -> None:
        self.times[name].created = counted_from
        spec = VmafxJobSpec(
            reference=f"s3://corpus/reference/{number:06}.mp4",
            distorted=f"s3://corpus/distorted/{number:06}.mp4",
            backend="cpu",
            priority=number % 10,
        )
        await self._creating.create(JOBS, VmafxJob(metadata=ObjectMeta(name=name), spec=spec), NAMESPACE)

    async def _follow_pods(self, version: str) -> None:
        watch = self._watching.watch(POD, NAMESPACE, version=version)
        async with aclosing(aiter(watch)) as batches:
            async for batch in batches:
                now = time.perf_counter()
                for event in batch:
                    if isinstance(event, Added):
                        self.times[event.object.metadata.labels[JOB_LABEL]].pod = now
                        self._group.create_task(self._finish_pod(event.object))

    async def _finish_pod(self, pod: Pod) -> None:
        """Report immediately that the container succeeded, as a kubelet would."""
        owner, attempt = pod.metadata.ownerReferences[0], pod.metadata.labels.get(ATTEMPT_LABEL, "0")
        answer = encode_result(AttemptResult(f"{owner.uid}-{attempt}", score_of(owner.name), FRAMES)).decode()
        state = {"terminated": {"exitCode": 0, "reason": "Completed", "message": answer}}
        container = {"name": "worker", "image": "i", "imageID": "i", "ready": False, "restartCount": 0, "state": state}
        status = {"phase": "Succeeded", "containerStatuses": [container]}
        await self._kubelet.patch_status(POD, ObjectKey(NAMESPACE, pod.metadata.name), status)

    async def _follow_jobs(self, version: str) -> None:
        watch = self._watching.watch(JOBS.decoded_as(_Outcome), NAMESPACE, version=version)
        async with aclosing(aiter(watch)) as batches:
            async for batch in batches:
                now = time.perf_counter()
                for event in batch:
                    if isinstance(event, Modified) and event.object.status.phase == "Succeeded":
                        self._record_done(self.times[event.object.metadata.name], now)

    def _record_done(self, times: Times, now: float) -> None:
        if not times.done:
            times.done = now
            self._remaining -= 1

    async def all_done(self) -> bool:
        return not self._remaining

    def sent(self) -> RequestCounts:
        """The driver's own requests so far. A watch is counted when it opens; these opened before the measurement."""
        counts: RequestCounts = RequestCounts()
        kinds = {"POST": ("POST", "vmafxjobs"), "PATCH": ("PATCH", "pods")}
        for family in self._registry.collect():
            for sample in family.samples:
                if sample.name == "rest_client_requests_total" and sample.labels["method"] in kinds:
                    counts[kinds[sample.labels["method"]]] += int(sample.value)
        return counts


def score_of(job: str) -> float:
    """A different score for (almost) every job, so that a mix-up is detected."""
    return 40 + int(job.rpartition("-")[2]) % 600 / 10


async def problems(client: Client, names: list[str]) -> list[str]:
    """Read all jobs and Pods back: each job must have its own score, an existing node and exactly one Pod there."""
    jobs = {job.metadata.name: job for job in (await client.list(JOBS, NAMESPACE)).items}
    pods = (await client.list(POD, NAMESPACE)).items
    found = [f"{pod.metadata.name} belongs to no job" for pod in pods if not pod.metadata.ownerReferences]
    pods_of: dict[str, list[Pod]] = {}
    for pod in pods:
        for owner in pod.metadata.ownerReferences:
            pods_of.setdefault(owner.uid, []).append(pod)
    nodes = set(node_names())
    for name in names:
        job = jobs.pop(name, None)
        if job is None:
            found.append(f"{name} does not exist")
            continue
        status, own = job.status, pods_of.pop(job.metadata.uid, [])
        if (status.phase, status.score) != ("Succeeded", score_of(name)):
            found.append(f"{name} is {status.phase} with {status.score}, not {score_of(name)}: {status.message}")
        if status.assignedNode not in nodes or status.startedAt is None or status.finishedAt is None:
            found.append(f"{name} has no node or no times: {status}")
        if [pod.metadata.name for pod in own] != [f"{name}-0"]:
            found.append(f"{name} has the Pods {[pod.metadata.name for pod in own]}")
        if any(pod.metadata.labels.get(NODE_LABEL) != status.assignedNode for pod in own):
            found.append(f"{name} ran on another node than {status.assignedNode}")
    found += [f"{name} was not created by the driver" for name in jobs]
    return found + [f"{pod.metadata.name} belongs to an unknown job" for own in pods_of.values() for pod in own]
