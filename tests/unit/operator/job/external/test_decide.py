"""The next step of an external job, for every reply of its controller."""

import math
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmafx.api.job import JobSpecView, JobStatusView, JobView
from vmafx.api.meta import Condition, MetaView
from vmafx.jobs.attempt import AttemptResult
from vmafx.jobs.outcome import Fail, Succeed, Suspend
from vmafx.operator.job import status
from vmafx.operator.job.external.client import decode_reply
from vmafx.operator.job.external.decide import (
    STOP_TIMEOUT,
    ExternalIntent,
    ExternalReply,
    ExternalState,
    PollResult,
    ReplyState,
    decide_external,
    should_stop,
)
from vmafx.operator.job.steps import KeepPending, MirrorExternal, NoAction, Step
from vmafx.text import MAX_LENGTH, one_line
from vmafx.wire import controller_pb2 as wire

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
PLAIN = ExternalIntent()
CANCEL = ExternalIntent(Fail("Cancelled", "cancelled"))
SUSPENDING = (Condition("Scheduled", "False", NOW, "Suspending", "waiting for the controller at c:1 to stop it"),)
CONTROLLER = "the controller at c:1"


def job(phase: Any = "Pending", *, suspend: bool = False, **more: Any) -> JobView:
    now = {"phase": phase, "controllerJobID": "j-7"} | more
    return JobView(MetaView("clip", "x", "u1"), JobSpecView("s3://r", "s3://d", suspend=suspend), JobStatusView(**now))


def step_for(one: JobView, reply: ReplyState | ExternalReply, intent: ExternalIntent = PLAIN, **more: Any) -> Step:
    reply = reply if isinstance(reply, ExternalReply) else ExternalReply(reply)
    return decide_external(one, ExternalState(intent, "c:1", PollResult(reply, **more)))


@pytest.mark.parametrize(
    ("one", "reply", "step"),
    [
        (job(), ExternalReply("NOT_POLLED"), NoAction()),
        (job("Running"), ExternalReply("NOT_POLLED"), NoAction()),
        (job(), ExternalReply("PENDING"), MirrorExternal("Pending", f"{CONTROLLER} reports job j-7 as PENDING")),
        (
            job("Running"),
            ExternalReply("PENDING"),
            MirrorExternal("Pending", f"{CONTROLLER} reports job j-7 as PENDING"),
        ),  # back in its queue there
        (
            job(assignedNode="n"),
            ExternalReply("PENDING"),
            MirrorExternal("Running", f"{CONTROLLER} reports job j-7 as PENDING"),
        ),
        (job(), ExternalReply("RUNNING"), MirrorExternal("Running", f"{CONTROLLER} reports job j-7 as RUNNING")),
        (
            job("Running"),
            ExternalReply("RUNNING", node="gpu-3"),
            MirrorExternal("Running", f"{CONTROLLER} reports job j-7 as RUNNING on gpu-3"),
        ),
        (
            job(),
            ExternalReply("COMPLETED", score=93.5),
            MirrorExternal("Running", f"{CONTROLLER} reports job j-7 as COMPLETED"),
        ),
        (job("Running"), ExternalReply("COMPLETED", score=93.5), Succeed(AttemptResult("j-7", 93.5))),
        (job("Running"), ExternalReply("COMPLETED"), Succeed(AttemptResult("j-7", 0.0))),
        (job("Running"), ExternalReply("COMPLETED", score=100.0), Succeed(AttemptResult("j-7", 100.0))),
        (
            job("Running"),
            ExternalReply("FAILED", "no such clip"),
            Fail("ExternalFailure", "the controller at c:1 reports that it failed: no such clip"),
        ),
        (
            job(),
            ExternalReply("FAILED"),
            Fail("ExternalFailure", "the controller at c:1 reports that it failed: no reason given"),
        ),
        (job("Running"), ExternalReply("CANCELLED"), Fail("Cancelled", "the controller at c:1 cancelled it")),
        (
            job(),
            ExternalReply("NO_REPLY"),
            MirrorExternal("Pending", f"{CONTROLLER} does not answer about job j-7; retrying"),
        ),
        (
            job("Running"),
            ExternalReply("NO_REPLY"),
            MirrorExternal("Running", f"{CONTROLLER} does not answer about job j-7; retrying"),
        ),
        (
            job("Running"),
            ExternalReply("INVALID", "it is no Job"),
            MirrorExternal("Running", f"{CONTROLLER} sent an invalid reply about job j-7: it is no Job; retrying"),
        ),
    ],
)
def test_each_reply_leads_to_its_step(one: JobView, reply: ExternalReply, step: Step) -> None:
    assert step_for(one, reply) == step


@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_a_job_unknown_to_its_controller_keeps_its_phase_and_says_what_to_do(phase: str) -> None:
    step = step_for(job(phase), "NOT_FOUND")
    assert isinstance(step, MirrorExternal)
    assert step.phase == phase
    assert "does not know job j-7" in step.message
    assert "status.controllerJobID is changed or cleared" in step.message


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf, -0.5, 100.1])
@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_a_score_outside_0_to_100_fails_the_job(phase: str, score: float) -> None:
    step = step_for(job(phase), ExternalReply("COMPLETED", score=score))
    assert isinstance(step, Fail)
    assert step.reason == "ExternalFailure"
    assert f"a score of {score}" in step.message


def test_the_job_is_requeued_for_its_deadline() -> None:
    for state in ("PENDING", "RUNNING", "NO_REPLY", "NOT_FOUND", "INVALID", "NOT_POLLED"):
        step = step_for(job("Running"), state, ExternalIntent(deadline_left=7.0))
        assert isinstance(step, MirrorExternal | NoAction)
        assert step.requeue_after == 7.0


@pytest.mark.parametrize(
    ("polled", "stopping_for", "step"),
    [
        (PollResult(), 0.0, NoAction(STOP_TIMEOUT)),
        (
            PollResult(ExternalReply("RUNNING")),
            10.0,
            NoAction(STOP_TIMEOUT - 10),
        ),  # from before the stop was requested
        (PollResult(ExternalReply("RUNNING"), stopped=True), 0.0, CANCEL.end),
        (PollResult(ExternalReply("NO_REPLY"), stopped=True), 0.0, CANCEL.end),
        (PollResult(ExternalReply("CANCELLED")), 0.0, CANCEL.end),
        (PollResult(ExternalReply("NOT_FOUND")), 0.0, CANCEL.end),
        (
            PollResult(ExternalReply("COMPLETED", score=50.0), stopped=True),
            0.0,
            Succeed(AttemptResult("j-7", 50.0)),
        ),  # a result takes precedence
        (
            PollResult(ExternalReply("COMPLETED", score=50.0), refusal="done"),
            0.0,
            Succeed(AttemptResult("j-7", 50.0)),
        ),
        (
            PollResult(ExternalReply("FAILED", "oh"), refusal="done"),
            0.0,
            Fail("ExternalFailure", "the controller at c:1 reports that it failed: oh"),
        ),
        (
            PollResult(ExternalReply("RUNNING"), refusal="not yours"),
            0.0,
            Fail("Cancelled", "cancelled; the controller at c:1 refused to stop it: not yours"),
        ),
        (
            PollResult(ExternalReply("NO_REPLY")),
            20.0,
            MirrorExternal(
                "Running",
                "cancelled; waiting for the controller at c:1 to stop it; it does not answer, retrying",
                STOP_TIMEOUT - 20,
            ),
        ),
        (
            PollResult(ExternalReply("NO_REPLY")),
            STOP_TIMEOUT,
            Fail("Cancelled", "cancelled; the controller at c:1 does not answer and may still be running it"),
        ),
    ],
)
def test_a_job_that_must_end_waits_for_its_controller_to_stop_it(
    polled: PollResult, stopping_for: float, step: Step
) -> None:
    assert decide_external(job("Running"), ExternalState(CANCEL, "c:1", polled, stopping_for)) == step


def test_a_suspension_is_recorded_before_the_controller_is_asked_to_stop() -> None:
    suspending = KeepPending("Suspending", "waiting for the controller at c:1 to stop it")
    for phase in ("Pending", "Running"):
        before, recorded = job(phase, suspend=True), job(phase, suspend=True, conditions=SUSPENDING)
        assert not should_stop(before, PLAIN)
        assert should_stop(recorded, PLAIN)
        for state in ("NOT_POLLED", "RUNNING", "CANCELLED", "NOT_FOUND"):
            assert step_for(before, state) == suspending
        assert step_for(recorded, "RUNNING") == suspending
        for polled in (
            PollResult(ExternalReply("RUNNING"), stopped=True),
            PollResult(ExternalReply("CANCELLED")),
            PollResult(ExternalReply("NOT_FOUND")),
        ):
            assert decide_external(recorded, ExternalState(PLAIN, "c:1", polled)) == Suspend()


def test_a_suspension_that_is_refused_or_unanswered_says_so() -> None:
    recorded = job("Running", suspend=True, conditions=SUSPENDING)
    assert step_for(recorded, "RUNNING", refusal="not yours") == KeepPending(
        "Suspending", "cannot be suspended: the controller at c:1 refused to stop it: not yours"
    )
    assert step_for(recorded, "NO_REPLY") == KeepPending(
        "Suspending", "waiting for the controller at c:1 to stop it; it does not answer, retrying"
    )
    assert step_for(recorded, ExternalReply("COMPLETED", score=1.0), refusal="done") == Succeed(
        AttemptResult("j-7", 1.0)
    )


def test_a_job_resumed_while_it_was_being_stopped_goes_back_to_the_queue() -> None:
    resumed = job("Running", conditions=SUSPENDING)
    assert not should_stop(resumed, PLAIN)
    assert step_for(resumed, "RUNNING") == MirrorExternal(
        "Running", f"{CONTROLLER} reports job j-7 as RUNNING"
    )  # not stopped yet
    assert step_for(resumed, "CANCELLED") == Suspend()
    assert step_for(resumed, "RUNNING", stopped=True) == Suspend()


def test_a_mirrored_job_keeps_its_node_and_id_and_is_written_once() -> None:
    step = MirrorExternal("Running", "RUNNING")
    written = status.mirrored_status(job(), step, NOW)
    assert written["phase"] == "Running"
    assert written["startedAt"] == NOW
    assert "assignedNode" not in written
    assert "controllerJobID" not in written
    (condition,) = written["conditions"]
    assert (condition.type, condition.status, condition.reason) == ("Scheduled", "True", "Placed")
    after = job("Running", startedAt=NOW, conditions=(condition,))
    assert status.mirrored_status(after, step, NOW) == {}
    back = status.mirrored_status(after, MirrorExternal("Pending", "PENDING"), NOW)
    assert (back["phase"], back["startedAt"]) == ("Pending", NOW)
    assert [(one.status, one.reason) for one in back["conditions"]] == [("False", "AwaitingScheduler")]


def test_a_long_message_is_written_once() -> None:
    step = MirrorExternal("Pending", "x" * 5000)
    (condition,) = status.mirrored_status(job(), step, NOW)["conditions"]
    assert status.mirrored_status(job(conditions=(condition,)), step, NOW) == {}


@pytest.mark.parametrize(
    ("reply", "decoded"),
    [
        (wire.Job(id="j"), ExternalReply("PENDING")),
        (wire.Job(id="j", status=wire.RUNNING, assigned_node="n"), ExternalReply("RUNNING", node="n")),
        (wire.Job(id="j", status=wire.COMPLETED, final_score=9.5), ExternalReply("COMPLETED", score=9.5)),
        (wire.Job(id="j", status=wire.COMPLETED), ExternalReply("COMPLETED")),
        (wire.Job(id="j", status=wire.RUNNING, final_score=math.nan), ExternalReply("RUNNING")),
        (wire.Job(id="j", status=wire.FAILED, error="a\nb\x1b[31m"), ExternalReply("FAILED", "a b [31m")),
        (wire.Job(id="j", status=wire.CANCELLED), ExternalReply("CANCELLED")),
        (wire.Job(), ExternalReply("INVALID", "it is about another job, ''")),
        (wire.Job(id="k", status=wire.COMPLETED), ExternalReply("INVALID", "it is about another job, 'k'")),
        (
            wire.Job.FromString(wire.Job(id="j").SerializeToString() + b"\x10\x11"),
            ExternalReply("INVALID", "its status 17 is unknown to this version"),
        ),
    ],
)
def test_a_reply_is_decoded(reply: wire.Job, decoded: ExternalReply) -> None:
    assert decode_reply(reply, "j") == decoded


@given(st.text())
def test_external_text_stays_on_one_short_line(text: str) -> None:
    line = one_line(text * 20)
    assert len(line) <= MAX_LENGTH
    assert line == "" or line.isprintable()
    assert one_line(line) == line
