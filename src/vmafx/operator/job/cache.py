"""What the job controller keeps in memory: jobs that still need something, the nodes, and the Pods of jobs.

Of a finished job nothing is kept, and old ones are not read.
"""

from typing import NamedTuple

from vmafx.api.job import FINISHED, JobView
from vmafx.api.node import NodeView
from vmafx.kube import JOBS, Client, Key, Resource
from vmafx.kube.resources import Untyped
from vmafx.operator.job.pod import JOB_LABEL
from vmafx.operator.job.podview import PodView
from vmafx.runtime.informer import Informer, Keep

PODS: Resource[Untyped] = Resource("", "v1", "pods", "Pod", dict)
BY_JOB = "job"
UNFINISHED: Keep[JobView] = Keep(
    wanted=lambda job: job.status.phase not in FINISHED,
    fields=",".join(f"status.phase!={phase}" for phase in FINISHED),
)


class Caches(NamedTuple):
    jobs: Informer[JobView]
    nodes: Informer[NodeView]
    pods: Informer[PodView]


def jobs_informer(client: Client, namespace: str) -> Informer[JobView]:
    """The jobs of one namespace, or of all: a start takes no longer for all the jobs that ever were."""
    return Informer(client, JOBS.seen_as(JobView), namespace=namespace, keep=UNFINISHED)


def pods_informer(client: Client, namespace: str) -> Informer[PodView]:
    """The Pods of jobs, and no others."""
    indexes = {BY_JOB: lambda one: (Key(one.metadata.namespace, one.metadata.labels.get(JOB_LABEL, "")),)}
    return Informer(client, PODS.seen_as(PodView), namespace=namespace, labels=JOB_LABEL, indexes=indexes)
