"""The controller's caches: unfinished jobs, all nodes, and which of them trainings select."""

from typing import NamedTuple

from vmafx.api.job import JobView
from vmafx.api.meta import ApiModel, MetaView
from vmafx.api.node import NodeView
from vmafx.api.training import DataSource
from vmafx.jobs.attempt import uid_of
from vmafx.jobs.cache import jobs_informer
from vmafx.jobs.sample_keys import matching_trainings
from vmafx.kube import NODES, TRAININGS, Client, ObjectKey
from vmafx.runtime.informer import Informer, OptionalInformer

BY_UID, BY_NODE, BY_NAMESPACE = "uid", "node", "namespace"


class TrainingSource(ApiModel):
    dataSource: DataSource | None = None


class TrainingSourceView(ApiModel):
    """A VmafxModelTraining as the controller caches it: the nodes that it selects."""

    metadata: MetaView
    spec: TrainingSource


class ControllerCaches(NamedTuple):
    jobs: Informer[JobView]
    nodes: Informer[NodeView]
    trainings: Informer[TrainingSourceView]

    def find_job(self, job_id: str) -> JobView | None:
        """By its uid, or by the name of one of its attempts."""
        for uid in (job_id, uid_of(job_id)):
            for job in self.jobs.store.by(BY_UID, uid):
                return job
        return None

    def trainings_of(self, node: ObjectKey) -> list[TrainingSourceView]:
        """The trainings that use the scores of a node; all without a selector if the node does not exist any more."""
        trainings = self.trainings.store.by(BY_NAMESPACE, node.namespace)
        if not trainings:
            return []
        found = self.nodes.store.get(node)
        return matching_trainings(trainings, found.metadata.labels if found is not None else {})


def make_caches(client: Client, namespace: str) -> ControllerCaches:
    indexes = {BY_UID: lambda job: (job.metadata.uid,), BY_NODE: _node_index}
    by_namespace = {BY_NAMESPACE: lambda training: (training.metadata.namespace,)}
    return ControllerCaches(
        jobs_informer(client, namespace, indexes),
        Informer(client, NODES.decoded_as(NodeView), namespace=namespace),
        # Optional: agents must not stop because an older ClusterRole does not allow the controller to read trainings.
        OptionalInformer(client, TRAININGS.decoded_as(TrainingSourceView), namespace=namespace, indexes=by_namespace),
    )


def node_of(job: JobView) -> ObjectKey | None:
    """The node of a running job."""
    if job.status.phase != "Running" or not job.status.assignedNode:
        return None
    return ObjectKey(job.metadata.namespace, job.status.assignedNode)


def _node_index(job: JobView) -> tuple[ObjectKey, ...]:
    node = node_of(job)
    return () if node is None else (node,)
