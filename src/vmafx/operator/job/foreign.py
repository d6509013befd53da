"""What to do about a job that another controller has, from what that controller says of it. Pure."""

from datetime import datetime
from typing import Literal

import msgspec

from vmafx.api.job import JobView
from vmafx.jobs.attempt import AttemptResult
from vmafx.jobs.outcome import Fail, Succeed, Suspend, deadline_exceeded
from vmafx.jobs.state import deadline_left
from vmafx.operator.job.steps import KeepPending, MirrorForeign, NoAction, Step
from vmafx.text import one_line

STOP_TIMEOUT = 60.0  # seconds that a job which is to end waits for its controller to say something

ReplyKind = Literal[
    "PENDING", "RUNNING", "COMPLETED", "FAILED", "CANCELLED",  # as the wire has them
    "NOT_FOUND", "NONSENSE", "SILENCE", "NOT_ASKED",
]  # fmt: skip


class ForeignReply(msgspec.Struct, frozen=True):
    """What a controller said when it was asked about a job: one of its five states, or what came instead."""

    says: ReplyKind
    text: str = ""  # the error of a job that failed; or what is wrong with the answer
    node: str = ""
    score: float = 0.0

    @property
    def final(self) -> bool:
        """Whether it will never say anything else."""
        return self.says in {"COMPLETED", "FAILED", "CANCELLED"}


class ForeignReplies(msgspec.Struct, frozen=True):
    """All that a controller has said of a job: how it does; and, if it was asked to stop it, whether it will."""

    heard: ForeignReply = ForeignReply("NOT_ASKED")
    stopped: bool = False
    refusal: str = ""

    @property
    def idle(self) -> bool:
        """Whether it does not work on the job, or no longer."""
        return self.stopped or self.heard.says in {"CANCELLED", "NOT_FOUND"}


class FollowIntent(msgspec.Struct, frozen=True):
    """Another controller has it, and is asked how it does. `end`: what it comes to unless there is a result already."""

    end: Fail | None = None
    left: float | None = None  # seconds until its deadline


class ForeignState(msgspec.Struct, frozen=True):
    """All that is known of a job at another controller: its address, what it said, and for how long it has been asked
    to stop the job.
    """

    follow: FollowIntent
    at: str
    said: ForeignReplies = ForeignReplies()
    waited: float = 0.0


def follow_intent(job: JobView, now: datetime) -> FollowIntent:
    """What is wanted of the controller that has the job."""
    left = deadline_left(job, now)
    if job.spec.cancel:
        return FollowIntent(Fail("Cancelled", "cancelled while another controller had it"))
    return FollowIntent(deadline_exceeded(job) if left is not None and left <= 0 else None, left)


def should_stop(job: JobView, follow: FollowIntent) -> bool:
    """Whether its controller is to be asked to stop it: because it is to end, or a suspension has begun."""
    return follow.end is not None or (job.spec.suspend and _suspension_began(job))


def decide_foreign(job: JobView, elsewhere: ForeignState) -> Step:
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


def _completed(job: JobView, heard: ForeignReply, name: str) -> Step:
    if not 0 <= heard.score <= 100:  # which is false for NaN too
        return Fail("ExternalFailure", f"{name} says it is done, with {heard.score} for a score; it must be 0 to 100")
    if job.status.phase == "Pending":  # done between two questions: it did run
        return _mirror(job, heard, name, None)
    return Succeed(AttemptResult(job.status.controllerJobID or "", heard.score))


def _ended(job: JobView, end: Fail, name: str, said: ForeignReplies, waited: float) -> Step:
    """Its controller is told first, since a result that is there already wins; but it is not waited for long."""
    if said.idle:
        return end
    if said.refusal:
        return Fail(end.reason, f"{end.message}; {name} will not stop it: {said.refusal}")
    left = STOP_TIMEOUT - waited
    if left <= 0:
        return Fail(end.reason, f"{end.message}; {name} does not answer, and may still work on it")
    if said.heard.says == "SILENCE":
        return MirrorForeign(_phase(job), f"{end.message}; {name} is to be told and does not answer", left)
    return NoAction(left)


def _suspended(job: JobView, follow: FollowIntent, name: str, said: ForeignReplies) -> Step:
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
    return KeepPending("Suspending", why, follow.left)


def _as_said(job: JobView, follow: FollowIntent, name: str, heard: ForeignReply) -> Step:
    match heard.says:
        case "NOT_ASKED":
            return NoAction(follow.left)
        case "CANCELLED":
            return Fail("Cancelled", f"{name} cancelled it")
        case _:
            return _mirror(job, heard, name, follow.left)


def _mirror(job: JobView, heard: ForeignReply, name: str, left: float | None) -> MirrorForeign:
    has = f"{name}, which has it as {one_line(job.status.controllerJobID or '')},"
    match heard.says:
        case "RUNNING" | "COMPLETED":
            where = f" on {heard.node}" if heard.node else ""
            return MirrorForeign("Running", f"{has} says {heard.says}{where}", left)
        case "PENDING":
            return MirrorForeign("Running" if job.status.assignedNode else "Pending", f"{has} says PENDING", left)
        case "NOT_FOUND":
            what = "does not know it; asked again until it does, or status.controllerJobID is changed or cleared"
        case "SILENCE":
            what = "does not answer; asked again until it does"
        case _:
            what = f"gives an answer that cannot be used: {heard.text}; asked again"
    return MirrorForeign(_phase(job), f"{has} {what}", left)


def _phase(job: JobView) -> Literal["Pending", "Running"]:
    """As it was: that nothing is known says nothing. A job that somebody gave a node runs."""
    return "Running" if job.status.phase == "Running" or job.status.assignedNode else "Pending"


def _suspension_began(job: JobView) -> bool:
    return any(one.type == "Scheduled" and one.reason == "Suspending" for one in job.status.conditions)
