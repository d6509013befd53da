"""The Pods of jobs, as the job reconciler keeps them in memory: of a finished job nothing is kept, nor read."""

from vmafx.api.job import FINISHED, JobView
from vmafx.jobs.informer import UNFINISHED
from vmafx.kube import Client, Key
from vmafx.kube.core import PODS
from vmafx.operator.job.podview import JOB_LABEL, PodView
from vmafx.runtime.informer import Informer, Keep

BY_JOB = "job"


def pods_informer(client: Client, jobs: Informer[JobView]) -> Informer[PodView]:
    """The Pods of jobs, and no others. One that is over is kept for as long as its job is."""

    def wanted(one: PodView) -> bool:
        job = job_of(one)
        return one.status.phase not in FINISHED or (job is not None and jobs.store.get(job) is not None)

    keep: Keep[PodView] = Keep(wanted, UNFINISHED.fields)  # their phases have the same names
    indexes = {BY_JOB: keys_of}
    resource = PODS.seen_as(PodView)
    return Informer(client, resource, namespace=jobs.namespace, labels=JOB_LABEL, indexes=indexes, keep=keep)


def job_of(pod: PodView) -> Key | None:
    """Whose Pod it says it is; anybody may have labelled it."""
    name = pod.metadata.labels.job
    return Key(pod.metadata.namespace, name) if name else None


def keys_of(pod: PodView) -> tuple[Key, ...]:
    job = job_of(pod)
    return () if job is None else (job,)
