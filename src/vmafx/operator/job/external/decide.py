"""Decides the next step for an external job, from what its controller replied. Pure."""

from typing import Literal

import msgspec

from vmafx.api.job import JobView
from vmafx.jobs.attempt import AttemptResult
from vmafx.jobs.outcome import Fail, Succeed, Suspend, deadline_exceeded
from vmafx.jobs.state import Age, deadline_left, scheduled_condition
from vmafx.operator.job.steps import KeepPending, MirrorExternal, NoAction, Step
from vmafx.text import one_line

STOP_TIMEOUT = 60.0  # seconds that a job which must end waits for its controller to confirm

ReplyState = Literal[
    "PENDING", "RUNNING", "COMPLETED", "FAILED", "CANCELLED",  # as on the wire
    "NOT_FOUND", "INVALID", "NO_REPLY", "NOT_POLLED",
]  # fmt: skip


class ExternalReply(msgspec.Struct, frozen=True):
    """What a controller replied to GetJob: one of its five states, or why there is none."""

    state: ReplyState
    detail: str = ""  # the error of a failed job, or what is wrong with the reply
    node: str = ""
    score: float = 0.0

    @property
    def is_final(self) -> bool:
        return self.state in {"COMPLETED", "FAILED", "CANCELLED"}


class PollResult(msgspec.Struct, frozen=True):
    """The last reply about a job, and whether its controller agreed to stop it, if asked."""

    reply: ExternalReply = ExternalReply("NOT_POLLED")
    stopped: bool = False
    refusal: str = ""

    @property
    def is_idle(self) -> bool:
        """Whether the controller does not, or no longer, work on the job."""
        return self.stopped or self.reply.state in {"CANCELLED", "NOT_FOUND"}


class ExternalIntent(msgspec.Struct, frozen=True):
    """What the operator wants of an external job: to follow it, or to end it unless there is a result already."""

    end: Fail | None = None
    deadline_left: float | None = None  # seconds


class ExternalState(msgspec.Struct, frozen=True):
    """What is known about an external job: the intent, its controller's address and replies."""

    intent: ExternalIntent
    address: str
    polled: PollResult = PollResult()
    stopping_for: float = 0.0  # seconds since the controller was first asked to stop the job


def external_intent(job: JobView, age: Age) -> ExternalIntent:
    left = deadline_left(job, age)
    if job.spec.cancel:
        return ExternalIntent(Fail("Cancelled", "cancelled while an external controller was running it"))
    return ExternalIntent(deadline_exceeded(job) if left is not None and left <= 0 else None, left)


def should_stop(job: JobView, intent: ExternalIntent) -> bool:
    """Whether to ask the controller to stop the job: it must end, or its suspension is recorded in the status."""
    return intent.end is not None or (job.spec.suspend and _is_suspending(job))


def decide_external(job: JobView, external: ExternalState) -> Step:
    polled, controller = external.polled, f"the controller at {external.address}"
    reply, deadline = polled.reply, external.intent.deadline_left
    if reply.state == "COMPLETED":
        return _decide_completed(job, reply, controller)
    if reply.state == "FAILED":
        return Fail("ExternalFailure", f"{controller} reports that it failed: {reply.detail or 'no reason given'}")
    if external.intent.end is not None:
        return _decide_end(job, external.intent.end, controller, polled, external.stopping_for)
    if _is_suspending(job) and polled.is_idle:
        # The suspension was recorded before the controller was asked to stop. So the operator stopped the job, and it
        # continues later, even if it was resumed or the operator restarted in between.
        return Suspend()
    if job.spec.suspend:
        return KeepPending("Suspending", _suspending_message(controller, polled), deadline)
    match reply.state:
        case "NOT_POLLED":
            return NoAction(deadline)
        case "CANCELLED":
            return Fail("Cancelled", f"{controller} cancelled it")
        case _:
            return _mirror(job, reply, controller, deadline)


def _decide_completed(job: JobView, reply: ExternalReply, controller: str) -> Step:
    if not 0 <= reply.score <= 100:  # also for NaN
        return Fail("ExternalFailure", f"{controller} reports a score of {reply.score}; it must be between 0 and 100")
    if job.status.phase == "Pending":  # it ran between two polls: record that first
        return _mirror(job, reply, controller, None)
    return Succeed(AttemptResult(job.status.controllerJobID or "", reply.score))


def _decide_end(job: JobView, end: Fail, controller: str, polled: PollResult, stopping_for: float) -> Step:
    """Wait for the controller to stop the job, since an existing result takes precedence, up to STOP_TIMEOUT."""
    if polled.is_idle:
        return end
    if polled.refusal:
        return Fail(end.reason, f"{end.message}; {controller} refused to stop it: {polled.refusal}")
    left = STOP_TIMEOUT - stopping_for
    if left <= 0:
        return Fail(end.reason, f"{end.message}; {controller} does not answer and may still be running it")
    if polled.reply.state == "NO_REPLY":
        message = f"{end.message}; waiting for {controller} to stop it; it does not answer, retrying"
        return MirrorExternal(_current_phase(job), message, left)
    return NoAction(left)


def _suspending_message(controller: str, polled: PollResult) -> str:
    if polled.refusal:
        return f"cannot be suspended: {controller} refused to stop it: {polled.refusal}"
    if polled.reply.state == "NO_REPLY":
        return f"waiting for {controller} to stop it; it does not answer, retrying"
    return f"waiting for {controller} to stop it"


def _mirror(job: JobView, reply: ExternalReply, controller: str, deadline: float | None) -> MirrorExternal:
    remote = f"job {one_line(job.status.controllerJobID or '')}"
    phase = _current_phase(job)
    match reply.state:
        case "RUNNING" | "COMPLETED":
            node = f" on {reply.node}" if reply.node else ""
            phase, message = "Running", f"{controller} reports {remote} as {reply.state}{node}"
        case "PENDING":
            phase = "Running" if job.status.assignedNode else "Pending"
            message = f"{controller} reports {remote} as PENDING"
        case "NOT_FOUND":
            message = (
                f"{controller} does not know {remote}; retrying until it does, or until status.controllerJobID is "
                "changed or cleared"
            )
        case "NO_REPLY":
            message = f"{controller} does not answer about {remote}; retrying"
        case _:
            message = f"{controller} sent an invalid reply about {remote}: {reply.detail}; retrying"
    return MirrorExternal(phase, message, deadline)


def _current_phase(job: JobView) -> Literal["Pending", "Running"]:
    """The phase to keep while nothing is known. A job with an assigned node counts as Running."""
    return "Running" if job.status.phase == "Running" or job.status.assignedNode else "Pending"


def _is_suspending(job: JobView) -> bool:
    scheduled = scheduled_condition(job)
    return scheduled is not None and scheduled.reason == "Suspending"
