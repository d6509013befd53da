"""What the controller keeps in memory: unfinished jobs and all nodes, by the names that callers know them by."""

from typing import NamedTuple

from vmafx.api.job import JobView
from vmafx.api.node import NodeView
from vmafx.jobs.attempts import uid_of
from vmafx.jobs.informer import jobs_informer
from vmafx.kube import NODES, Client, Key
from vmafx.runtime.informer import Informer

BY_UID, BY_NODE = "uid", "node"


class Caches(NamedTuple):
    jobs: Informer[JobView]
    nodes: Informer[NodeView]

    def job(self, wanted: str) -> JobView | None:
        """By its uid, or by the name of one of its attempts."""
        for uid in (wanted, uid_of(wanted)):
            for job in self.jobs.store.by(BY_UID, uid):
                return job
        return None


def caches(client: Client, namespace: str) -> Caches:
    indexes = {BY_UID: lambda job: (job.metadata.uid,), BY_NODE: _node_of}
    return Caches(
        jobs_informer(client, namespace, indexes), Informer(client, NODES.seen_as(NodeView), namespace=namespace)
    )


def key_of(job: JobView) -> Key:
    return Key(job.metadata.namespace, job.metadata.name)


def node_of(job: JobView) -> Key | None:
    """Where it runs."""
    if job.status.phase != "Running" or not job.status.assignedNode:
        return None
    return Key(job.metadata.namespace, job.status.assignedNode)


def _node_of(job: JobView) -> tuple[Key, ...]:
    node = node_of(job)
    return () if node is None else (node,)
