"""Job counts: per node into its status, finished jobs by phase, and the fleet's gauges for Prometheus."""

import asyncio
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import get_args

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from vmafx.api.hardware import Vendor
from vmafx.api.job import FINISHED, JobView, Phase
from vmafx.api.meta import ApiModel, MetaView
from vmafx.api.node import NodeView
from vmafx.kube import JOBS, NODES, Client, ObjectKey
from vmafx.kube.errors import KubeError
from vmafx.logs import log
from vmafx.runtime.informer import Informer
from vmafx.runtime.store import ObjectChange
from vmafx.scheduling.requirements import NamespacedName
from vmafx.scheduling.scheduler import Scheduler

NODE_WRITE_INTERVAL = 5.0  # seconds
NODE_VIEW = NODES.seen_as(NodeView)


class NodeJobCounter:
    def __init__(self, client: Client, nodes: Informer[NodeView], scheduler: Scheduler) -> None:
        self._client, self._nodes, self._scheduler = client, nodes, scheduler

    async def run(self) -> None:
        while True:
            await asyncio.sleep(NODE_WRITE_INTERVAL)
            for node in tuple(self._nodes.store.values()):
                name = NamespacedName(node.metadata.namespace, node.metadata.name)
                used = self._scheduler.used_slots(name)
                if used != node.status.assignedJobs:
                    try:
                        await self._client.patch_status(NODE_VIEW, ObjectKey(*name), {"assignedJobs": used})
                    except KubeError as error:  # it is told again in a moment
                        log.debug("a node's jobs were not told", node=str(ObjectKey(*name)), error=str(error))


COUNT_INTERVAL = 60.0  # seconds


class _Named(ApiModel):
    metadata: MetaView


class FinishedCounter:
    def __init__(self, client: Client, jobs: Informer[JobView]) -> None:
        self._client, self._jobs = client, jobs
        self._there, self._failed = _Number(), _Number()

    def counts(self) -> dict[str, int]:
        succeeded = self._there.value - self._failed.value - len(self._jobs.store)
        return {"Succeeded": max(0, succeeded), "Failed": max(0, self._failed.value)}

    def job_changed(self, change: ObjectChange[JobView]) -> None:
        old, new = change.old, change.new
        if new is None:
            if old is not None:
                self._there.changed(old, -1)
                if old.status.phase == "Failed":
                    self._failed.changed(old, -1)
        elif old is None and new.status.phase not in FINISHED:  # one that is over is told as new each time it changes
            self._there.changed(new, 1)
        elif old is not None and new.status.phase == "Failed":
            self._failed.changed(new, 1)

    async def run(self) -> None:
        lists = -1
        while True:
            if (now := self._jobs.lists) != lists:  # else the watch has told everything since
                try:
                    await self._ask()
                    lists = now
                except KubeError as error:
                    log.warn("jobs that are over cannot be counted; trying again", error=str(error))
            await asyncio.sleep(COUNT_INTERVAL)

    async def _ask(self) -> None:
        with self._there.asking(), self._failed.asking():
            there = await self._client.count(JOBS, self._jobs.namespace)
            failed, version, named = 0, "", JOBS.seen_as(_Named)
            async for page in self._client.pages(named, self._jobs.namespace, fields="status.phase=Failed"):
                failed, version = failed + len(page.items), page.metadata.resourceVersion
            self._there.said(there.number, there.version)
            self._failed.said(failed, version)


class _Number:
    """So many, by the server's word at one version and by what the watch told of later ones."""

    def __init__(self) -> None:
        self.value, self._version = 0, 0
        self._meanwhile: list[tuple[int, int]] | None = None  # versions and changes, while the server is asked

    def changed(self, job: JobView, by: int) -> None:
        version = int(job.metadata.resourceVersion)
        if version > self._version:
            self.value += by
        if self._meanwhile is not None:
            self._meanwhile.append((version, by))

    @contextmanager
    def asking(self) -> Iterator[None]:
        self._meanwhile = []
        try:
            yield
        finally:
            self._meanwhile = None

    def said(self, value: int, version: str) -> None:
        self._version = int(version)
        self.value = value + sum(by for at, by in self._meanwhile or () if at > self._version)


HEALTH = ("healthy", "unhealthy", "cordoned")


class FleetGauges(Collector):
    """How many there are: counted when asked, and by the leader alone, so that sums over replicas are right."""

    def __init__(
        self,
        jobs: Informer[JobView],
        nodes: Informer[NodeView],
        scheduler: Scheduler,
        finished: Callable[[], dict[str, int]],
    ) -> None:
        self._jobs, self._nodes, self._scheduler, self._finished = jobs, nodes, scheduler, finished
        self.leads = False

    def collect(self) -> Iterator[Metric]:
        phases: Tally[str] = Tally()
        health: Tally[tuple[str, str]] = Tally()
        used: Tally[str] = Tally()
        slots: Tally[str] = Tally()
        if self.leads:
            phases.update(job.status.phase for job in self._jobs.store.values())
            phases.update(self._finished())
            for node in self._nodes.store.values():
                vendor, name = node.spec.gpuVendor, NamespacedName(node.metadata.namespace, node.metadata.name)
                health[vendor, _health(node)] += 1
                used[vendor] += self._scheduler.used_slots(name)
                slots[vendor] += max(node.spec.capacity, self._scheduler.used_slots(name))
        yield _gauge(
            "vmafx_jobs", "Jobs there are.", ["phase"], [((phase,), phases[phase]) for phase in get_args(Phase)]
        )
        vendors = get_args(Vendor)
        counts = {(vendor, state): health[vendor, state] for vendor in vendors for state in HEALTH}
        yield _gauge("vmafx_nodes", "VmafxNodes there are.", ["vendor", "health"], counts.items())
        places = {(vendor, "used"): used[vendor] for vendor in vendors}
        places |= {(vendor, "free"): slots[vendor] - used[vendor] for vendor in vendors}
        yield _gauge("vmafx_slots", "Jobs that nodes have, and could have beside.", ["vendor", "state"], places.items())


def _health(node: NodeView) -> str:
    if node.spec.unschedulable:
        return "cordoned"
    return "healthy" if node.status.healthy else "unhealthy"


def _gauge(name: str, text: str, labels: list[str], values: Iterable[tuple[Sequence[str], int]]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for of, value in values:
        family.add_metric(of, value)
    return family
