"""Makes jobs, plays the kubelet, and takes the times.

It takes a tenth of the CPU that the API server does, so it is not what is measured.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, aclosing
from types import TracebackType
from typing import Self

import msgspec
from bench.asked import Asked
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


POD = PODS.seen_as(Pod)


class _Status(ApiModel):
    phase: str = "Pending"


class _Outcome(ApiModel):
    """As much of a job as tells that it is done."""

    metadata: MetaView
    status: _Status = _Status()


class Times(msgspec.Struct):
    """Of one job, on the driver's clock."""

    created: float = 0.0  # sent; or when it was to be sent, in an open loop
    pod: float = 0.0
    done: float = 0.0


class Driver:
    """For one run of so many jobs. Use as an async context manager: its watches are then open."""

    def __init__(self, config: Config, count: int) -> None:
        self.times = {f"job-{number:06}": Times() for number in range(count)}
        self._left = count
        self._registry = CollectorRegistry()
        metrics = ClientMetrics(self._registry)
        # A pool of connections for each part, so that no part waits for another.
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
        """All jobs, as fast as 32 creators get them in; with a rate, so many a second, whatever becomes of them."""
        names = iter(enumerate(self.times))
        begin = time.perf_counter()
        if not rate:
            await asyncio.gather(*(self._creator(names) for _ in range(CREATORS)))
            return
        async with asyncio.TaskGroup() as group:
            for number, name in names:
                planned = begin + number / rate
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
                        self._group.create_task(self._end(event.object))

    async def _end(self, pod: Pod) -> None:
        """What a kubelet would report of a container that ended well, at once."""
        owner, attempt = pod.metadata.ownerReferences[0], pod.metadata.labels.get(ATTEMPT_LABEL, "0")
        answer = encode_result(AttemptResult(f"{owner.uid}-{attempt}", score_of(owner.name), FRAMES)).decode()
        ended = {"terminated": {"exitCode": 0, "reason": "Completed", "message": answer}}
        container = {"name": "worker", "image": "i", "imageID": "i", "ready": False, "restartCount": 0, "state": ended}
        status = {"phase": "Succeeded", "containerStatuses": [container]}
        await self._kubelet.patch_status(POD, ObjectKey(NAMESPACE, pod.metadata.name), status)

    async def _follow_jobs(self, version: str) -> None:
        watch = self._watching.watch(JOBS.seen_as(_Outcome), NAMESPACE, version=version)
        async with aclosing(aiter(watch)) as batches:
            async for batch in batches:
                now = time.perf_counter()
                for event in batch:
                    if isinstance(event, Modified) and event.object.status.phase == "Succeeded":
                        self._ended(self.times[event.object.metadata.name], now)

    def _ended(self, times: Times, now: float) -> None:
        if not times.done:
            times.done = now
            self._left -= 1

    async def all_done(self) -> bool:
        return not self._left

    def sent(self) -> Asked:
        """What the API server was asked by us so far. A watch is told when it is opened; the first ones before all."""
        counts: Asked = Asked()
        kinds = {"POST": ("POST", "vmafxjobs"), "PATCH": ("PATCH", "pods")}
        for family in self._registry.collect():
            for sample in family.samples:
                if sample.name == "rest_client_requests_total" and sample.labels["method"] in kinds:
                    counts[kinds[sample.labels["method"]]] += int(sample.value)
        return counts


def score_of(job: str) -> float:
    """Every job has a score of its own, or nearly: a mix-up would show."""
    return 40 + int(job.rpartition("-")[2]) % 600 / 10


async def problems(client: Client, names: list[str]) -> list[str]:
    """Read everything back: each job has its own score, a node that exists, and one Pod, there and its own."""
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
            found.append(f"{name} is gone")
            continue
        status, own = job.status, pods_of.pop(job.metadata.uid, [])
        if (status.phase, status.score) != ("Succeeded", score_of(name)):
            found.append(f"{name} is {status.phase} with {status.score}, not {score_of(name)}: {status.message}")
        if status.assignedNode not in nodes or status.startedAt is None or status.finishedAt is None:
            found.append(f"{name} does not say where and when it ran: {status}")
        if [pod.metadata.name for pod in own] != [f"{name}-0"]:
            found.append(f"{name} has the Pods {[pod.metadata.name for pod in own]}")
        if any(pod.metadata.labels.get(NODE_LABEL) != status.assignedNode for pod in own):
            found.append(f"{name} ran on another node than {status.assignedNode}")
    found += [f"{name} was not made by us" for name in jobs]
    return found + [f"{pod.metadata.name} belongs to no job that we made" for own in pods_of.values() for pod in own]
