"""What to do about a job that another controller has, from what that controller says of it. Pure."""

from datetime import datetime
from typing import Literal

import msgspec

from vmafx.api.job import JobView
from vmafx.jobs.outcomes import Fail, Succeed, Suspend, too_late
from vmafx.jobs.pending import deadline_left
from vmafx.jobs.work import Answer
from vmafx.operator.job.steps import Hold, Mirror, Nothing, Step
from vmafx.plain import plain

PATIENCE = 60.0  # seconds that a job which is to end waits for its controller to say something

Says = Literal[
    "PENDING", "RUNNING", "COMPLETED", "FAILED", "CANCELLED",  # as the wire has them
    "NOT_FOUND", "NONSENSE", "SILENCE", "NOT_ASKED",
]  # fmt: skip


class Heard(msgspec.Struct, frozen=True):
    """What a controller said when it was asked about a job: one of its five states, or what came instead."""

    says: Says
    text: str = ""  # the error of a job that failed; or what is wrong with the answer
    node: str = ""
    score: float = 0.0

    @property
    def final(self) -> bool:
        """Whether it will never say anything else."""
        return self.says in {"COMPLETED", "FAILED", "CANCELLED"}


class Said(msgspec.Struct, frozen=True):
    """All that a controller has said of a job: how it does; and, if it was asked to stop it, whether it will."""

    heard: Heard = Heard("NOT_ASKED")
    stopped: bool = False
    refusal: str = ""

    @property
    def idle(self) -> bool:
        """Whether it does not work on the job, or no longer."""
        return self.stopped or self.heard.says in {"CANCELLED", "NOT_FOUND"}


class Follow(msgspec.Struct, frozen=True):
    """Another controller has it, and is asked how it does. `end`: what it comes to unless there is a result already."""

    end: Fail | None = None
    left: float | None = None  # seconds until its deadline


class Elsewhere(msgspec.Struct, frozen=True):
    """All that is known of a job at another controller: its address, what it said, and for how long it has been asked
    to stop the job.
    """

    follow: Follow
    at: str
    said: Said = Said()
    waited: float = 0.0


def follow(job: JobView, now: datetime) -> Follow:
    """What is wanted of the controller that has the job."""
    left = deadline_left(job, now)
    if job.spec.cancel:
        return Follow(Fail("Cancelled", "cancelled while another controller had it"))
    return Follow(too_late(job) if left is not None and left <= 0 else None, left)


def is_to_stop(job: JobView, follow: Follow) -> bool:
    """Whether its controller is to be asked to stop it: because it is to end, or a suspension has begun."""
    return follow.end is not None or (job.spec.suspend and _suspension_began(job))


def judge(job: JobView, elsewhere: Elsewhere) -> Step:
    follow, said = elsewhere.follow, elsewhere.said
    heard, name = said.heard, f"the controller at {elsewhere.at}"
    if heard.says == "COMPLETED":
        return _completed(job, heard, name)
    if heard.says == "FAILED":
        return Fail("ExternalFailure", f"{name} says it failed: {heard.text or 'it does not say why'}")
    if follow.end is not None:
        return _ended(job, follow.end, name, said, elsewhere.waited)
    if job.spec.suspend or _suspension_began(job):
        return _suspended(job, follow, name, said)
    return _as_said(job, follow, name, heard)


def _completed(job: JobView, heard: Heard, name: str) -> Step:
    if not 0 <= heard.score <= 100:  # which is false for NaN too
        return Fail("ExternalFailure", f"{name} says it is done, with {heard.score} for a score; it must be 0 to 100")
    if job.status.phase == "Pending":  # done between two questions: it did run
        return _mirror(job, heard, name, None)
    return Succeed(Answer(job.status.controllerJobID or "", heard.score))


def _ended(job: JobView, end: Fail, name: str, said: Said, waited: float) -> Step:
    """Its controller is told first, since a result that is there already wins; but it is not waited for long."""
    if said.idle:
        return end
    if said.refusal:
        return Fail(end.reason, f"{end.message}; {name} will not stop it: {said.refusal}")
    left = PATIENCE - waited
    if left <= 0:
        return Fail(end.reason, f"{end.message}; {name} does not answer, and may still work on it")
    if said.heard.says == "SILENCE":
        return Mirror(_phase(job), f"{end.message}; {name} is to be told and does not answer", left)
    return Nothing(left)


def _suspended(job: JobView, follow: Follow, name: str, said: Said) -> Step:
    """That a suspension began is written down before its controller is asked to stop the work.

    When the work is then found stopped, it was we who did that, and the job is not over: even if it was resumed, or the
    operator restarted, in between.
    """
    if _suspension_began(job) and said.idle:
        return Suspend()
    if not job.spec.suspend:
        return _as_said(job, follow, name, said.heard)
    if said.refusal:
        why = f"cannot be suspended: {name} will not stop it: {said.refusal}"
    elif said.heard.says == "SILENCE":
        why = f"{name} is to stop it and does not answer; asked again until it does"
    else:
        why = f"{name} is asked to stop it"
    return Hold("Suspending", why, follow.left)


def _as_said(job: JobView, follow: Follow, name: str, heard: Heard) -> Step:
    match heard.says:
        case "NOT_ASKED":
            return Nothing(follow.left)
        case "CANCELLED":
            return Fail("Cancelled", f"{name} cancelled it")
        case _:
            return _mirror(job, heard, name, follow.left)


def _mirror(job: JobView, heard: Heard, name: str, left: float | None) -> Mirror:
    has = f"{name}, which has it as {plain(job.status.controllerJobID or '')},"
    match heard.says:
        case "RUNNING" | "COMPLETED":
            where = f" on {heard.node}" if heard.node else ""
            return Mirror("Running", f"{has} says {heard.says}{where}", left)
        case "PENDING":
            return Mirror("Running" if job.status.assignedNode else "Pending", f"{has} says PENDING", left)
        case "NOT_FOUND":
            what = "does not know it; asked again until it does, or status.controllerJobID is changed or cleared"
        case "SILENCE":
            what = "does not answer; asked again until it does"
        case _:
            what = f"gives an answer that cannot be used: {heard.text}; asked again"
    return Mirror(_phase(job), f"{has} {what}", left)


def _phase(job: JobView) -> Literal["Pending", "Running"]:
    """As it was: that nothing is known says nothing. A job that somebody gave a node runs."""
    return "Running" if job.status.phase == "Running" or job.status.assignedNode else "Pending"


def _suspension_began(job: JobView) -> bool:
    return any(one.type == "Scheduled" and one.reason == "Suspending" for one in job.status.conditions)
