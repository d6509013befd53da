"""What the fleet does, in numbers: read by Prometheus, all there from the start at zero."""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import get_args

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from vmafx.api.job import JobView, Phase
from vmafx.api.node import NodeView, Vendor
from vmafx.lifecycle.outcomes import Fail, Leaving, Reason, Succeed, Suspend, TryAgain
from vmafx.meters import Counters, Histograms
from vmafx.runtime.informer import Informer
from vmafx.runtime.metrics import Metrics
from vmafx.scheduling.scheduler import Scheduler
from vmafx.scheduling.standing import scheduled
from vmafx.scheduling.terms import Name

SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 14400, 86400)
HEALTH = ("healthy", "unhealthy", "cordoned")


class JobMetrics:
    """Counts what becomes of jobs. Only who leads knows, so only who leads counts."""

    def __init__(self, metrics: Metrics) -> None:
        registry = metrics.registry
        self._waited = Histograms(
            "vmafx_job_queue_wait_seconds", "From a job's creation to its first placement.", [], registry, SECONDS
        ).labels()
        self._ran = Histograms(
            "vmafx_job_run_seconds", "From its last placement to its score.", [], registry, SECONDS
        ).labels()
        self._frames = Counters("vmafx_frames_scored", "Frames of jobs that succeeded.", [], registry).labels()
        attempts = Counters("vmafx_job_attempts", "Attempts that ended, by how.", ["outcome"], registry)
        self._attempts = {
            outcome: attempts.labels(outcome)
            for outcome in ("succeeded", "failed", "refused", "disrupted", "suspended", "stopped")
        }
        ended = Counters("vmafx_jobs_finished", "Jobs that ended, by why.", ["phase", "reason"], registry)
        self._succeeded = ended.labels("Succeeded", "Scored")
        self._failed = {reason: ended.labels("Failed", reason) for reason in get_args(Reason)}

    def placed(self, job: JobView, now: datetime) -> None:
        if job.status.attempts == 0 and job.metadata.creationTimestamp is not None:
            self._waited.observe(max(0.0, (now - job.metadata.creationTimestamp).total_seconds()))

    def left(self, job: JobView, step: Leaving, now: datetime) -> None:
        """An attempt is over, or a job that had none."""
        match step:
            case Succeed(answer):
                self._succeeded.inc()
                self._attempts["succeeded"].inc()
                self._frames.inc(answer.frames or 0)
                self._ran.observe(max(0.0, (now - _placed_at(job, now)).total_seconds()))
            case Fail(reason):
                self._failed[reason].inc()
                if job.status.phase == "Running":
                    outcomes = {"BadInput": "refused", "RetriesExhausted": "failed"}
                    self._attempts[outcomes.get(reason, "stopped")].inc()
            case TryAgain():
                self._attempts["failed" if step.failed else "disrupted"].inc()
            case Suspend() if job.status.phase == "Running":
                self._attempts["suspended"].inc()


def _placed_at(job: JobView, now: datetime) -> datetime:
    """When the current attempt was placed: the Scheduled condition turned then."""
    said = scheduled(job)
    return said.lastTransitionTime if said is not None else now


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
