"""What a job requires and what a node offers, and both read from API objects."""

from typing import Literal, NamedTuple

import msgspec

from vmafx.api.hardware import HARDWARE
from vmafx.api.job import JobView
from vmafx.api.node import NodeView

PendingReason = Literal["NoNodes", "NoHealthyNode", "NoAgent", "BackendUnavailable", "InsufficientCapacity"]
Order = tuple[int, float, str, str]  # lowest first
Label = tuple[str, str]

# The vendors whose nodes run a backend, best first. Every node runs cpu jobs.
VENDORS: dict[str | None, tuple[str, ...]] = {
    **{hardware.backend: (vendor,) for vendor, hardware in HARDWARE.items()},
    "cpu": tuple(vendor for vendor, _ in sorted(HARDWARE.items(), key=lambda entry: entry[1].cpu_rank)),
    None: tuple(HARDWARE),
}


class NamespacedName(NamedTuple):
    """The name of a job or a node."""

    namespace: str
    name: str


class Requirements(NamedTuple):
    """What decides on which nodes a job may run."""

    namespace: str
    backend: str | None = None
    selector: frozenset[Label] = frozenset()
    excluded: frozenset[str] = frozenset()  # nodes to use only if no other usable node fits
    pod_only: bool = False  # its credentials can be mounted into a Pod, but not sent to an agent

    def without_exclusions(self) -> "Requirements":
        """The requirements that all jobs of a group share. The same nodes fit them."""
        return self._replace(excluded=frozenset()) if self.excluded else self


class JobRequest(msgspec.Struct, frozen=True, gc=False):
    """A waiting job."""

    job: NamespacedName
    requirements: Requirements
    created: float  # seconds since the epoch
    priority: int = 0

    def order(self) -> Order:
        """By priority, highest first, then by age."""
        return -self.priority, self.created, self.job.name, self.job.namespace


class NodeOffer(msgspec.Struct, frozen=True):
    """A node and what it offers."""

    node: NamespacedName
    vendor: str
    capacity: int = 1
    healthy: bool = True
    cordoned: bool = False
    draining: bool = False  # its agent is stopping
    agent: bool = False
    agent_registered: bool = True  # true also for a node without an agent
    labels: frozenset[Label] = frozenset()
    fps: float = 0.0  # measured; 0 if not known

    def usable(self) -> bool:
        """Whether it takes jobs now."""
        return self.is_schedulable() and self.agent_registered

    def is_schedulable(self) -> bool:
        """Whether it takes jobs once its agent has registered."""
        return self.healthy and not self.cordoned and not self.draining

    def fits(self, requirements: Requirements) -> bool:
        """Whether such jobs can run here when the node is usable."""
        return (
            self.node.namespace == requirements.namespace
            and self.vendor in VENDORS[requirements.backend]
            and requirements.selector <= self.labels
            and not (requirements.pod_only and self.agent)
        )


class PendingCause(NamedTuple):
    """Why a job waits, for its Scheduled condition."""

    reason: PendingReason
    message: str


class Placement(NamedTuple):
    """A job and the node it runs on."""

    job: NamespacedName
    node: NamespacedName


def job_request(job: JobView) -> JobRequest:
    spec, name = job.spec, NamespacedName(job.metadata.namespace, job.metadata.name)
    requirements = Requirements(
        name.namespace,
        spec.backend,
        frozenset(spec.nodeSelector.items()),
        frozenset(job.status.excludedNodes),
        spec.credentialsSecretRef is not None,
    )
    created = job.metadata.creationTimestamp
    return JobRequest(name, requirements, created.timestamp() if created else 0.0, spec.priority)


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
