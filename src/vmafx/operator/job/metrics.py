"""What the fleet does, in numbers: read by Prometheus, all there from the start at zero."""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import get_args

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from vmafx.api.hardware import Vendor
from vmafx.api.job import JobView, Phase
from vmafx.api.node import NodeView
from vmafx.runtime.informer import Informer
from vmafx.scheduling.scheduler import Scheduler
from vmafx.scheduling.terms import Name

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
                vendor, name = node.spec.gpuVendor, Name(node.metadata.namespace, node.metadata.name)
                health[vendor, _health(node)] += 1
                used[vendor] += self._scheduler.used(name)
                slots[vendor] += max(node.spec.capacity, self._scheduler.used(name))
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
