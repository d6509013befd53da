"""What a job requires and what a node offers, and both read from API objects."""

from typing import Literal, NamedTuple

import msgspec

from vmafx.api.hardware import HARDWARE
from vmafx.api.job import JobView
from vmafx.api.node import NodeView

PendingReason = Literal["NoNodes", "NoHealthyNode", "NoAgent", "BackendUnavailable", "InsufficientCapacity"]

Order = tuple[int, float, str, str]  # the least goes first
Label = tuple[str, str]

# The vendors that serve a backend, the best first. A CPU job runs anywhere.
VENDORS: dict[str | None, tuple[str, ...]] = {
    **{one.backend: (vendor,) for vendor, one in HARDWARE.items()},
    "cpu": tuple(vendor for vendor, _ in sorted(HARDWARE.items(), key=lambda one: one[1].cpu_rank)),
    None: tuple(HARDWARE),
}


class NamespacedName(NamedTuple):
    """Of a job or a node."""

    namespace: str
    name: str


class Requirements(NamedTuple):
    """What decides on which nodes a job may run. Jobs of the same terms wait in the same line."""

    namespace: str
    backend: str | None = None
    selector: frozenset[Label] = frozenset()
    excluded: frozenset[str] = frozenset()  # nodes to be used only if no other fits
    pod_only: bool = False  # its credentials can be given to a Pod, not to an agent

    def without_exclusions(self) -> "Requirements":
        """What the same nodes fit: these terms, whatever nodes they avoid."""
        return self._replace(excluded=frozenset()) if self.excluded else self


class JobRequest(msgspec.Struct, frozen=True, gc=False):
    """A job that waits."""

    job: NamespacedName
    requirements: Requirements
    created: float  # seconds; the older of two goes first
    priority: int = 0

    def order(self) -> Order:
        return -self.priority, self.created, self.job.name, self.job.namespace


class NodeOffer(msgspec.Struct, frozen=True):
    """A node."""

    node: NamespacedName
    vendor: str
    capacity: int = 1
    healthy: bool = True
    cordoned: bool = False
    draining: bool = False  # its agent is about to stop
    agent: bool = False
    agent_registered: bool = True  # whether its agent was ever heard; true where there is none
    labels: frozenset[Label] = frozenset()
    fps: float = 0.0  # measured

    def usable(self) -> bool:
        return self.is_open() and self.agent_registered

    def is_open(self) -> bool:
        """Whether it would take jobs, once its agent is heard."""
        return self.healthy and not self.cordoned and not self.draining

    def fits(self, terms: Requirements) -> bool:
        """Whether its jobs could run here if all were well."""
        return (
            self.node.namespace == terms.namespace
            and self.vendor in VENDORS[terms.backend]
            and terms.selector <= self.labels
            and not (terms.pod_only and self.agent)
        )


class PendingCause(NamedTuple):
    """Why a job waits, for its Scheduled condition."""

    reason: PendingReason
    message: str


class Placement(NamedTuple):
    job: NamespacedName
    node: NamespacedName


def job_request(job: JobView) -> JobRequest:
    spec, name = job.spec, NamespacedName(job.metadata.namespace, job.metadata.name)
    terms = Requirements(
        name.namespace,
        spec.backend,
        frozenset(spec.nodeSelector.items()),
        frozenset(job.status.excludedNodes),
        spec.credentialsSecretRef is not None,
    )
    created = job.metadata.creationTimestamp
    return JobRequest(name, terms, created.timestamp() if created else 0.0, spec.priority)


def node_offer(node: NodeView) -> NodeOffer:
    agent = node.spec.runtime == "Agent"
    return NodeOffer(
        node=NamespacedName(node.metadata.namespace, node.metadata.name),
        vendor=node.spec.gpuVendor,
        capacity=node.spec.capacity,
        healthy=node.status.healthy is True and node.metadata.deletionTimestamp is None,
        cordoned=node.spec.unschedulable,
        draining=node.status.draining,
        agent=agent,
        agent_registered=not agent or node.status.agentSession is not None,
        labels=frozenset(node.metadata.labels.items()),
        fps=node.status.throughput or 0.0,
    )
