"""The controller's caches: unfinished jobs and all nodes, indexed by uid and node."""

from typing import NamedTuple

from vmafx.api.job import JobView
from vmafx.api.node import NodeView
from vmafx.jobs.cache import jobs_informer
from vmafx.jobs.state import uid_of
from vmafx.kube import NODES, Client, ObjectKey
from vmafx.runtime.informer import Informer

BY_UID, BY_NODE = "uid", "node"


class ControllerCaches(NamedTuple):
    jobs: Informer[JobView]
    nodes: Informer[NodeView]

    def find_job(self, job_id: str) -> JobView | None:
        """By its uid, or by the name of one of its attempts."""
        for uid in (job_id, uid_of(job_id)):
            for job in self.jobs.store.by(BY_UID, uid):
                return job
        return None


def make_caches(client: Client, namespace: str) -> ControllerCaches:
    indexes = {BY_UID: lambda job: (job.metadata.uid,), BY_NODE: _node_index}
    return ControllerCaches(
        jobs_informer(client, namespace, indexes), Informer(client, NODES.decoded_as(NodeView), namespace=namespace)
    )


def node_of(job: JobView) -> ObjectKey | None:
    """The node of a running job."""
    if job.status.phase != "Running" or not job.status.assignedNode:
        return None
    return ObjectKey(job.metadata.namespace, job.status.assignedNode)


def _node_index(job: JobView) -> tuple[ObjectKey, ...]:
    node = node_of(job)
    return () if node is None else (node,)
