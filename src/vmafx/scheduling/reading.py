"""Jobs and nodes of the API, in the scheduler's terms."""

from vmafx.api.job import JobView
from vmafx.api.node import NodeView
from vmafx.scheduling.terms import Name, Offer, Request, Terms


def request_of(job: JobView) -> Request:
    spec, name = job.spec, Name(job.metadata.namespace, job.metadata.name)
    terms = Terms(
        name.namespace,
        spec.backend,
        frozenset(spec.nodeSelector.items()),
        frozenset(job.status.excludedNodes),
        spec.credentialsSecretRef is not None,
    )
    created = job.metadata.creationTimestamp
    return Request(name, terms, created.timestamp() if created else 0.0, spec.priority)


def offer_of(node: NodeView) -> Offer:
    agent = node.spec.runtime == "Agent"
    return Offer(
        node=Name(node.metadata.namespace, node.metadata.name),
        vendor=node.spec.gpuVendor,
        capacity=node.spec.capacity,
        healthy=node.status.healthy is True and node.metadata.deletionTimestamp is None,
        cordoned=node.spec.unschedulable,
        draining=node.status.draining,
        agent=agent,
        spoken=not agent or node.status.agentSession is not None,
        labels=frozenset(node.metadata.labels.items()),
        fps=node.status.throughput or 0.0,
    )
