"""One attempt at a job: what it is called, and what is to be done in it. Pure."""

from vmafx.api.job import JobView
from vmafx.api.work import Work


def attempt_id(job: JobView, attempt: int) -> str:
    """Its name everywhere: in the status, in what workers are told and in what they answer."""
    return f"{job.metadata.uid}-{attempt}"


def work_of(job: JobView, attempt: int) -> Work:
    spec = job.spec
    return Work(
        id=attempt_id(job, attempt),
        reference=spec.reference,
        distorted=spec.distorted,
        referenceFormat=spec.referenceFormat,
        distortedFormat=spec.distortedFormat,
        model=spec.model,
        options=spec.options,
        output=spec.output,
    )
