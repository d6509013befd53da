"""The informer of unfinished jobs that the roles share."""

from collections.abc import Mapping

from vmafx.api.job import FINISHED, JobView
from vmafx.kube import JOBS, Client
from vmafx.runtime.informer import Informer, StoreFilter
from vmafx.runtime.store import Indexer

UNFINISHED: StoreFilter[JobView] = StoreFilter(
    keeps=lambda job: job.status.phase not in FINISHED,
    fields=",".join(f"status.phase!={phase}" for phase in FINISHED),
)


def jobs_informer(
    client: Client, namespace: str, indexes: Mapping[str, Indexer[JobView]] | None = None
) -> Informer[JobView]:
    """Unfinished jobs of one namespace, or of all. Finished jobs are not listed: they would slow down each start."""
    return Informer(client, JOBS.decoded_as(JobView), namespace=namespace, indexes=indexes, keep=UNFINISHED)
