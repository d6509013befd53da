"""The cache of jobs: those that still need something. Of a finished one nothing is kept."""

from vmafx.api.job import JobView
from vmafx.kube import JOBS, Client
from vmafx.runtime.informer import Informer

FINISHED = frozenset({"Succeeded", "Failed"})


def unfinished(job: JobView) -> bool:
    return job.status.phase not in FINISHED


def jobs_informer(client: Client, namespace: str) -> Informer[JobView]:
    """The jobs of one namespace, or of all."""
    return Informer(client, JOBS.seen_as(JobView), namespace=namespace, keep=unfinished)
