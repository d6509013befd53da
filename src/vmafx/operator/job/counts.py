"""Job counts: assigned jobs in each node's status, finished jobs by phase, and the gauges of the fleet."""

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

NODE_VIEW = NODES.decoded_as(NodeView)
NODE_WRITE_INTERVAL = 5.0  # seconds
COUNT_INTERVAL = 60.0  # seconds between checks whether a recount is needed
HEALTH = ("healthy", "unhealthy", "cordoned")


class NodeJobCounter:
    """Writes status.assignedJobs of nodes whose number of jobs changed; leader only."""

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
                    except KubeError as error:  # retried in the next round
                        log.debug("could not update node status", node=str(ObjectKey(*name)), error=str(error))


class FinishedCounter:
    """Counts finished jobs, which the cache leaves out: from the API server at first, then from watch events."""

    def __init__(self, client: Client, jobs: Informer[JobView]) -> None:
        self._client, self._jobs = client, jobs
        self._total, self._failed = _VersionedCount(), _VersionedCount()

    def counts(self) -> dict[str, int]:
        succeeded = self._total.value - self._failed.value - len(self._jobs.store)
        return {"Succeeded": max(0, succeeded), "Failed": max(0, self._failed.value)}

    def job_changed(self, change: ObjectChange[JobView]) -> None:
        old, new = change.old, change.new
        if new is None:
            if old is not None:
                self._total.add(old, -1)
                if old.status.phase == "Failed":
                    self._failed.add(old, -1)
        elif old is None and new.status.phase not in FINISHED:  # a finished job appears as new with every change
            self._total.add(new, 1)
        elif old is not None and new.status.phase == "Failed":
            self._failed.add(new, 1)

    async def run(self) -> None:
        """Count, and count again whenever the informer had to list anew and may have missed events."""
        counted_list = -1
        while True:
            if (lists := self._jobs.lists) != counted_list:
                try:
                    await self._count()
                    counted_list = lists
                except KubeError as error:
                    log.warn("could not count finished jobs, will retry", error=str(error))
            await asyncio.sleep(COUNT_INTERVAL)

    async def _count(self) -> None:
        with self._total.recount(), self._failed.recount():
            total = await self._client.count(JOBS, self._jobs.namespace)
            failed, version, resource = 0, "", JOBS.decoded_as(_MetaOnly)
            async for page in self._client.pages(resource, self._jobs.namespace, fields="status.phase=Failed"):
                failed, version = failed + len(page.items), page.metadata.resourceVersion
            self._total.set(total.number, total.version)
            self._failed.set(failed, version)


class _MetaOnly(ApiModel):
    metadata: MetaView


class _VersionedCount:
    """A count as of one resource version, plus the changes that the watch reported for later versions."""

    def __init__(self) -> None:
        self.value, self._version = 0, 0
        self._meanwhile: list[tuple[int, int]] | None = None  # versions and changes during a recount

    def add(self, job: JobView, number: int) -> None:
        version = int(job.metadata.resourceVersion)
        if version > self._version:
            self.value += number
        if self._meanwhile is not None:
            self._meanwhile.append((version, number))

    @contextmanager
    def recount(self) -> Iterator[None]:
        self._meanwhile = []
        try:
            yield
        finally:
            self._meanwhile = None

    def set(self, value: int, version: str) -> None:
        self._version = int(version)
        self.value = value + sum(number for at, number in self._meanwhile or () if at > self._version)


class FleetGauges(Collector):
    """Jobs, nodes and slots, counted when scraped; 0 unless this process leads, so that replicas can be summed."""

    def __init__(
        self,
        jobs: Informer[JobView],
        nodes: Informer[NodeView],
        scheduler: Scheduler,
        finished: Callable[[], dict[str, int]],
    ) -> None:
        self._jobs, self._nodes, self._scheduler, self._finished = jobs, nodes, scheduler, finished
        self.leading = False

    def collect(self) -> Iterator[Metric]:
        phases: Tally[str] = Tally()
        health: Tally[tuple[str, str]] = Tally()
        used: Tally[str] = Tally()
        slots: Tally[str] = Tally()
        if self.leading:
            phases.update(job.status.phase for job in self._jobs.store.values())
            phases.update(self._finished())
            for node in self._nodes.store.values():
                vendor, name = node.spec.gpuVendor, NamespacedName(node.metadata.namespace, node.metadata.name)
                health[vendor, _health(node)] += 1
                used[vendor] += self._scheduler.used_slots(name)
                slots[vendor] += max(node.spec.capacity, self._scheduler.used_slots(name))
        vendors = get_args(Vendor)
        by_phase = {(phase,): phases[phase] for phase in get_args(Phase)}
        by_health = {(vendor, state): health[vendor, state] for vendor in vendors for state in HEALTH}
        by_state = {(vendor, "used"): used[vendor] for vendor in vendors}
        by_state |= {(vendor, "free"): slots[vendor] - used[vendor] for vendor in vendors}
        yield _gauge("vmafx_jobs", "Jobs, by phase.", ["phase"], by_phase.items())
        yield _gauge("vmafx_nodes", "VmafxNodes, by GPU vendor and health.", ["vendor", "health"], by_health.items())
        yield _gauge(
            "vmafx_slots", "Job slots, by GPU vendor and state (used, free).", ["vendor", "state"], by_state.items()
        )


def _health(node: NodeView) -> str:
    if node.spec.unschedulable:
        return "cordoned"
    return "healthy" if node.status.healthy else "unhealthy"


def _gauge(name: str, text: str, labels: list[str], values: Iterable[tuple[Sequence[str], int]]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for label_values, value in values:
        family.add_metric(label_values, value)
    return family
