"""The cache of jobs: those that still need something. Of a finished one nothing is kept, and old ones are not read."""

from vmafx.api.job import FINISHED, JobView
from vmafx.kube import JOBS, Client
from vmafx.runtime.informer import Informer, Keep

UNFINISHED: Keep[JobView] = Keep(
    wanted=lambda job: job.status.phase not in FINISHED,
    fields=",".join(f"status.phase!={phase}" for phase in FINISHED),
)


def jobs_informer(client: Client, namespace: str) -> Informer[JobView]:
    """The jobs of one namespace, or of all: a start takes no longer for all the jobs that ever were."""
    return Informer(client, JOBS.seen_as(JobView), namespace=namespace, keep=UNFINISHED)
