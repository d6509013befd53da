"""Every turn that a job can take which another controller has, without that controller."""

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
from vmafx.operator.job.foreign import (
    STOP_TIMEOUT,
    FollowIntent,
    ForeignReplies,
    ForeignReply,
    ForeignState,
    ReplyKind,
    decide_foreign,
    should_stop,
)
from vmafx.operator.job.foreign_client import reply_of
from vmafx.operator.job.steps import KeepPending, MirrorForeign, NoAction, Step
from vmafx.text import MAX_LENGTH, one_line
from vmafx.wire import controller_pb2 as wire

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
PLAIN = FollowIntent()
CANCEL = FollowIntent(Fail("Cancelled", "cancelled"))
BEGAN = (Condition("Scheduled", "False", NOW, "Suspending", "the controller at c:1 is asked to stop it"),)
HAS = "the controller at c:1, which has it as j-7,"


def job(phase: Any = "Pending", *, suspend: bool = False, **more: Any) -> JobView:
    now = {"phase": phase, "controllerJobID": "j-7"} | more
    return JobView(MetaView("clip", "x", "u1"), JobSpecView("s3://r", "s3://d", suspend=suspend), JobStatusView(**now))


def look(
    one: JobView, says: ReplyKind | ForeignReply, follow: FollowIntent = PLAIN, *, waited: float = 0.0, **more: Any
) -> Step:
    heard = says if isinstance(says, ForeignReply) else ForeignReply(says)
    return decide_foreign(one, ForeignState(follow, "c:1", ForeignReplies(heard, **more), waited))


@pytest.mark.parametrize(
    ("one", "heard", "step"),
    [
        (job(), ForeignReply("NOT_ASKED"), NoAction()),
        (job("Running"), ForeignReply("NOT_ASKED"), NoAction()),
        (job(), ForeignReply("PENDING"), MirrorForeign("Pending", f"{HAS} says PENDING")),
        (
            job("Running"),
            ForeignReply("PENDING"),
            MirrorForeign("Pending", f"{HAS} says PENDING"),
        ),  # it was put back there
        (job(assignedNode="n"), ForeignReply("PENDING"), MirrorForeign("Running", f"{HAS} says PENDING")),
        (job(), ForeignReply("RUNNING"), MirrorForeign("Running", f"{HAS} says RUNNING")),
        (
            job("Running"),
            ForeignReply("RUNNING", node="gpu-3"),
            MirrorForeign("Running", f"{HAS} says RUNNING on gpu-3"),
        ),
        (job(), ForeignReply("COMPLETED", score=93.5), MirrorForeign("Running", f"{HAS} says COMPLETED")),
        (job("Running"), ForeignReply("COMPLETED", score=93.5), Succeed(AttemptResult("j-7", 93.5))),
        (job("Running"), ForeignReply("COMPLETED"), Succeed(AttemptResult("j-7", 0.0))),
        (job("Running"), ForeignReply("COMPLETED", score=100.0), Succeed(AttemptResult("j-7", 100.0))),
        (
            job("Running"),
            ForeignReply("FAILED", "no such clip"),
            Fail("ExternalFailure", "the controller at c:1 says it failed: no such clip"),
        ),
        (
            job(),
            ForeignReply("FAILED"),
            Fail("ExternalFailure", "the controller at c:1 says it failed: it does not say why"),
        ),
        (job("Running"), ForeignReply("CANCELLED"), Fail("Cancelled", "the controller at c:1 cancelled it")),
        (job(), ForeignReply("SILENCE"), MirrorForeign("Pending", f"{HAS} does not answer; asked again until it does")),
        (
            job("Running"),
            ForeignReply("SILENCE"),
            MirrorForeign("Running", f"{HAS} does not answer; asked again until it does"),
        ),
        (
            job("Running"),
            ForeignReply("NONSENSE", "it is no Job"),
            MirrorForeign("Running", f"{HAS} gives an answer that cannot be used: it is no Job; asked again"),
        ),
    ],
)
def test_as_it_says(one: JobView, heard: ForeignReply, step: Step) -> None:
    assert look(one, heard) == step


@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_a_job_that_its_controller_does_not_know_waits_and_says_what_to_do(phase: str) -> None:
    step = look(job(phase), "NOT_FOUND")
    assert isinstance(step, MirrorForeign)
    assert step.phase == phase
    assert "does not know it" in step.message
    assert "status.controllerJobID is changed or cleared" in step.message


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf, -0.5, 100.1])
@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_a_score_that_is_none_is_not_taken_for_one(phase: str, score: float) -> None:
    step = look(job(phase), ForeignReply("COMPLETED", score=score))
    assert isinstance(step, Fail)
    assert step.reason == "ExternalFailure"
    assert f"with {score} for a score" in step.message


def test_the_deadline_is_looked_at_in_its_time() -> None:
    for says in ("PENDING", "RUNNING", "SILENCE", "NOT_FOUND", "NONSENSE", "NOT_ASKED"):
        step = look(job("Running"), says, FollowIntent(left=7.0))
        assert isinstance(step, MirrorForeign | NoAction)
        assert step.after == 7.0


@pytest.mark.parametrize(
    ("said", "waited", "step"),
    [
        (ForeignReplies(), 0.0, NoAction(STOP_TIMEOUT)),
        (
            ForeignReplies(ForeignReply("RUNNING")),
            10.0,
            NoAction(STOP_TIMEOUT - 10),
        ),  # from before it was asked to stop it
        (ForeignReplies(ForeignReply("RUNNING"), stopped=True), 0.0, CANCEL.end),
        (ForeignReplies(ForeignReply("SILENCE"), stopped=True), 0.0, CANCEL.end),
        (ForeignReplies(ForeignReply("CANCELLED")), 0.0, CANCEL.end),
        (ForeignReplies(ForeignReply("NOT_FOUND")), 0.0, CANCEL.end),
        (
            ForeignReplies(ForeignReply("COMPLETED", score=50.0), stopped=True),
            0.0,
            Succeed(AttemptResult("j-7", 50.0)),
        ),  # the result wins
        (
            ForeignReplies(ForeignReply("COMPLETED", score=50.0), refusal="done"),
            0.0,
            Succeed(AttemptResult("j-7", 50.0)),
        ),
        (
            ForeignReplies(ForeignReply("FAILED", "oh"), refusal="done"),
            0.0,
            Fail("ExternalFailure", "the controller at c:1 says it failed: oh"),
        ),
        (
            ForeignReplies(ForeignReply("RUNNING"), refusal="not yours"),
            0.0,
            Fail("Cancelled", "cancelled; the controller at c:1 will not stop it: not yours"),
        ),
        (
            ForeignReplies(ForeignReply("SILENCE")),
            20.0,
            MirrorForeign(
                "Running", "cancelled; the controller at c:1 is to be told and does not answer", STOP_TIMEOUT - 20
            ),
        ),
        (
            ForeignReplies(ForeignReply("SILENCE")),
            STOP_TIMEOUT,
            Fail("Cancelled", "cancelled; the controller at c:1 does not answer, and may still work on it"),
        ),
    ],
)
def test_what_is_to_end(said: ForeignReplies, waited: float, step: Step) -> None:
    assert decide_foreign(job("Running"), ForeignState(CANCEL, "c:1", said, waited)) == step


def test_a_suspension_is_written_down_before_the_controller_is_told() -> None:
    asked = KeepPending("Suspending", "the controller at c:1 is asked to stop it")
    for phase in ("Pending", "Running"):
        before, begun = job(phase, suspend=True), job(phase, suspend=True, conditions=BEGAN)
        assert not should_stop(before, PLAIN)
        assert should_stop(begun, PLAIN)
        for says in ("NOT_ASKED", "RUNNING", "CANCELLED", "NOT_FOUND"):
            assert look(before, says) == asked
        assert look(begun, "RUNNING") == asked
        for said in (
            ForeignReplies(ForeignReply("RUNNING"), stopped=True),
            ForeignReplies(ForeignReply("CANCELLED")),
            ForeignReplies(ForeignReply("NOT_FOUND")),
        ):
            assert decide_foreign(begun, ForeignState(PLAIN, "c:1", said)) == Suspend()


def test_a_suspension_that_cannot_be_says_why() -> None:
    begun = job("Running", suspend=True, conditions=BEGAN)
    assert look(begun, "RUNNING", refusal="not yours") == KeepPending(
        "Suspending", "cannot be suspended: the controller at c:1 will not stop it: not yours"
    )
    assert look(begun, "SILENCE") == KeepPending(
        "Suspending", "the controller at c:1 is to stop it and does not answer; asked again until it does"
    )
    assert look(begun, ForeignReply("COMPLETED", score=1.0), refusal="done") == Succeed(AttemptResult("j-7", 1.0))


def test_a_job_resumed_while_it_was_being_stopped_is_not_lost() -> None:
    resumed = job("Running", conditions=BEGAN)
    assert not should_stop(resumed, PLAIN)
    assert look(resumed, "RUNNING") == MirrorForeign("Running", f"{HAS} says RUNNING")  # it was not stopped yet
    assert look(resumed, "CANCELLED") == Suspend()  # it was: from there it goes back to the queue
    assert look(resumed, "RUNNING", stopped=True) == Suspend()


def test_what_is_written() -> None:
    step = MirrorForeign("Running", "says RUNNING")
    written = status.mirrored_status(job(), step, NOW)
    assert written["phase"] == "Running"
    assert written["startedAt"] == NOW
    assert "assignedNode" not in written
    assert "controllerJobID" not in written
    (condition,) = written["conditions"]
    assert (condition.type, condition.status, condition.reason) == ("Scheduled", "True", "Placed")
    after = job("Running", startedAt=NOW, conditions=(condition,))
    assert status.mirrored_status(after, step, NOW) == {}
    back = status.mirrored_status(after, MirrorForeign("Pending", "says PENDING"), NOW)
    assert (back["phase"], back["startedAt"]) == ("Pending", NOW)
    assert [(one.status, one.reason) for one in back["conditions"]] == [("False", "AwaitingScheduler")]


def test_a_long_message_is_written_once() -> None:
    step = MirrorForeign("Pending", "x" * 5000)
    (condition,) = status.mirrored_status(job(), step, NOW)["conditions"]
    assert status.mirrored_status(job(conditions=(condition,)), step, NOW) == {}


@pytest.mark.parametrize(
    ("told", "heard"),
    [
        (wire.Job(id="j"), ForeignReply("PENDING")),
        (wire.Job(id="j", status=wire.RUNNING, assigned_node="n"), ForeignReply("RUNNING", node="n")),
        (wire.Job(id="j", status=wire.COMPLETED, final_score=9.5), ForeignReply("COMPLETED", score=9.5)),
        (wire.Job(id="j", status=wire.COMPLETED), ForeignReply("COMPLETED")),
        (wire.Job(id="j", status=wire.RUNNING, final_score=math.nan), ForeignReply("RUNNING")),
        (wire.Job(id="j", status=wire.FAILED, error="a\nb\x1b[31m"), ForeignReply("FAILED", "a b [31m")),
        (wire.Job(id="j", status=wire.CANCELLED), ForeignReply("CANCELLED")),
        (wire.Job(), ForeignReply("NONSENSE", "it is about another job, ''")),
        (wire.Job(id="k", status=wire.COMPLETED), ForeignReply("NONSENSE", "it is about another job, 'k'")),
        (
            wire.Job.FromString(wire.Job(id="j").SerializeToString() + b"\x10\x11"),
            ForeignReply("NONSENSE", "its status is 17, which this version does not know"),
        ),
    ],
)
def test_answers_are_read(told: wire.Job, heard: ForeignReply) -> None:
    assert reply_of(told, "j") == heard


@given(st.text())
def test_other_peoples_words_stay_on_one_short_line(text: str) -> None:
    said = one_line(text * 20)
    assert len(said) <= MAX_LENGTH
    assert said == "" or said.isprintable()
    assert one_line(said) == said
