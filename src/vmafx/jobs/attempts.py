"""One attempt at a job: what it is called, and what is to be done in it. Pure."""

from vmafx.api.job import JobView
from vmafx.api.scoring import ScoringSpec
from vmafx.jobs.work import Work
from vmafx.kube import Key


def attempt_id(job: JobView, attempt: int) -> str:
    """Its name everywhere: in the status, in what workers are told and in what they answer."""
    return f"{job.metadata.uid}-{attempt}"


def uid_of(attempt: str) -> str:
    """The job's uid in the name of an attempt; empty if it is no such name."""
    uid, _, number = attempt.rpartition("-")
    return uid if number.isdecimal() else ""


def is_foreign(job: JobView) -> bool:
    """Whether another controller has it: its controllerJobID is none that the operator gives to attempts at it."""
    uid, _, attempt = (job.status.controllerJobID or "").rpartition("-")
    return bool(job.status.controllerJobID) and not (uid == job.metadata.uid and attempt.isdecimal())


def goes_on(job: JobView, attempt: str, node: Key) -> bool:
    """Whether this attempt is the job's current one, on this node."""
    status = job.status
    return (
        status.phase == "Running"
        and status.controllerJobID == attempt
        and (job.metadata.namespace, status.assignedNode) == node
        and job.metadata.deletionTimestamp is None
    )


def work_of(job: JobView, attempt: int) -> Work:
    scoring = {name: getattr(job.spec, name) for name in ScoringSpec.__struct_fields__}
    return Work(**scoring, id=attempt_id(job, attempt))
