"""How an attempt ended, and what that makes of its job. Pure."""

from typing import Literal

import msgspec

from vmafx.api.job import JobView
from vmafx.jobs.work import Answer

Reason = Literal["Cancelled", "DeadlineExceeded", "RetriesExhausted", "BadInput", "ExternalFailure"]


class Succeed(msgspec.Struct, frozen=True):
    answer: Answer


class Fail(msgspec.Struct, frozen=True):
    """The end, without a score."""

    reason: Reason
    message: str


class TryAgain(msgspec.Struct, frozen=True):
    """This attempt is over. `failed`: it counts as a failure, and its node is avoided from now on."""

    message: str
    failed: bool = True


class Suspend(msgspec.Struct, frozen=True):
    """Stop the work, and let it wait until it may go on."""


Leaving = Succeed | Fail | TryAgain | Suspend  # an attempt, and maybe the job, is over


def outcome(job: JobView, answer: Answer) -> Succeed | Fail | TryAgain:
    """What a worker's answer comes to: a score, a clip that no other node can score either, or a node to avoid."""
    if answer.fault is None:
        return Succeed(answer)
    if answer.fault == "BadInput":
        return Fail("BadInput", answer.message or "the worker does not say what is wrong")
    return failed(job, f"{answer.fault}: {answer.message}")


def failed(job: JobView, message: str) -> Fail | TryAgain:
    """An attempt came to nothing: once more, or once too often."""
    if job.status.failures >= job.spec.retryLimit:
        tries = job.status.failures + 1
        return Fail("RetriesExhausted", message if tries == 1 else f"failed {tries} times, at last: {message}")
    return TryAgain(message)


def too_late(job: JobView) -> Fail:
    return Fail("DeadlineExceeded", f"not done within {job.spec.activeDeadlineSeconds} s of its start")
