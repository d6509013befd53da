"""Every turn that a job can take which another controller has, without that controller."""

import math
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmafx.api.job import JobSpecView, JobStatusView, JobView
from vmafx.api.meta import Condition, MetaView
from vmafx.jobs.outcomes import Fail, Succeed, Suspend
from vmafx.jobs.work import Answer
from vmafx.operator.job import status
from vmafx.operator.job.asking import read
from vmafx.operator.job.foreign import PATIENCE, Elsewhere, Follow, Heard, Said, Says, is_to_stop, judge
from vmafx.operator.job.steps import Hold, Mirror, Nothing, Step
from vmafx.plain import MOST, plain
from vmafx.wire import controller_pb2 as wire

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
PLAIN = Follow()
CANCEL = Follow(Fail("Cancelled", "cancelled"))
BEGAN = (Condition("Scheduled", "False", NOW, "Suspending", "the controller at c:1 is asked to stop it"),)
HAS = "the controller at c:1, which has it as j-7,"


def job(phase: Any = "Pending", *, suspend: bool = False, **more: Any) -> JobView:
    now = {"phase": phase, "controllerJobID": "j-7"} | more
    return JobView(MetaView("clip", "x", "u1"), JobSpecView("s3://r", "s3://d", suspend=suspend), JobStatusView(**now))


def look(one: JobView, says: Says | Heard, follow: Follow = PLAIN, *, waited: float = 0.0, **more: Any) -> Step:
    heard = says if isinstance(says, Heard) else Heard(says)
    return judge(one, Elsewhere(follow, "c:1", Said(heard, **more), waited))


@pytest.mark.parametrize(
    ("one", "heard", "step"),
    [
        (job(), Heard("NOT_ASKED"), Nothing()),
        (job("Running"), Heard("NOT_ASKED"), Nothing()),
        (job(), Heard("PENDING"), Mirror("Pending", f"{HAS} says PENDING")),
        (job("Running"), Heard("PENDING"), Mirror("Pending", f"{HAS} says PENDING")),  # it was put back there
        (job(assignedNode="n"), Heard("PENDING"), Mirror("Running", f"{HAS} says PENDING")),
        (job(), Heard("RUNNING"), Mirror("Running", f"{HAS} says RUNNING")),
        (job("Running"), Heard("RUNNING", node="gpu-3"), Mirror("Running", f"{HAS} says RUNNING on gpu-3")),
        (job(), Heard("COMPLETED", score=93.5), Mirror("Running", f"{HAS} says COMPLETED")),
        (job("Running"), Heard("COMPLETED", score=93.5), Succeed(Answer("j-7", 93.5))),
        (job("Running"), Heard("COMPLETED"), Succeed(Answer("j-7", 0.0))),
        (job("Running"), Heard("COMPLETED", score=100.0), Succeed(Answer("j-7", 100.0))),
        (
            job("Running"),
            Heard("FAILED", "no such clip"),
            Fail("ExternalFailure", "the controller at c:1 says it failed: no such clip"),
        ),
        (job(), Heard("FAILED"), Fail("ExternalFailure", "the controller at c:1 says it failed: it does not say why")),
        (job("Running"), Heard("CANCELLED"), Fail("Cancelled", "the controller at c:1 cancelled it")),
        (job(), Heard("SILENCE"), Mirror("Pending", f"{HAS} does not answer; asked again until it does")),
        (job("Running"), Heard("SILENCE"), Mirror("Running", f"{HAS} does not answer; asked again until it does")),
        (
            job("Running"),
            Heard("NONSENSE", "it is no Job"),
            Mirror("Running", f"{HAS} gives an answer that cannot be used: it is no Job; asked again"),
        ),
    ],
)
def test_as_it_says(one: JobView, heard: Heard, step: Step) -> None:
    assert look(one, heard) == step


@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_a_job_that_its_controller_does_not_know_waits_and_says_what_to_do(phase: str) -> None:
    step = look(job(phase), "NOT_FOUND")
    assert isinstance(step, Mirror)
    assert step.phase == phase
    assert "does not know it" in step.message
    assert "status.controllerJobID is changed or cleared" in step.message


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf, -0.5, 100.1])
@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_a_score_that_is_none_is_not_taken_for_one(phase: str, score: float) -> None:
    step = look(job(phase), Heard("COMPLETED", score=score))
    assert isinstance(step, Fail)
    assert step.reason == "ExternalFailure"
    assert f"with {score} for a score" in step.message


def test_the_deadline_is_looked_at_in_its_time() -> None:
    for says in ("PENDING", "RUNNING", "SILENCE", "NOT_FOUND", "NONSENSE", "NOT_ASKED"):
        step = look(job("Running"), says, Follow(left=7.0))
        assert isinstance(step, Mirror | Nothing)
        assert step.after == 7.0


@pytest.mark.parametrize(
    ("said", "waited", "step"),
    [
        (Said(), 0.0, Nothing(PATIENCE)),
        (Said(Heard("RUNNING")), 10.0, Nothing(PATIENCE - 10)),  # from before it was asked to stop it
        (Said(Heard("RUNNING"), stopped=True), 0.0, CANCEL.end),
        (Said(Heard("SILENCE"), stopped=True), 0.0, CANCEL.end),
        (Said(Heard("CANCELLED")), 0.0, CANCEL.end),
        (Said(Heard("NOT_FOUND")), 0.0, CANCEL.end),
        (Said(Heard("COMPLETED", score=50.0), stopped=True), 0.0, Succeed(Answer("j-7", 50.0))),  # the result wins
        (Said(Heard("COMPLETED", score=50.0), refusal="done"), 0.0, Succeed(Answer("j-7", 50.0))),
        (
            Said(Heard("FAILED", "oh"), refusal="done"),
            0.0,
            Fail("ExternalFailure", "the controller at c:1 says it failed: oh"),
        ),
        (
            Said(Heard("RUNNING"), refusal="not yours"),
            0.0,
            Fail("Cancelled", "cancelled; the controller at c:1 will not stop it: not yours"),
        ),
        (
            Said(Heard("SILENCE")),
            20.0,
            Mirror("Running", "cancelled; the controller at c:1 is to be told and does not answer", PATIENCE - 20),
        ),
        (
            Said(Heard("SILENCE")),
            PATIENCE,
            Fail("Cancelled", "cancelled; the controller at c:1 does not answer, and may still work on it"),
        ),
    ],
)
def test_what_is_to_end(said: Said, waited: float, step: Step) -> None:
    assert judge(job("Running"), Elsewhere(CANCEL, "c:1", said, waited)) == step


def test_a_suspension_is_written_down_before_the_controller_is_told() -> None:
    asked = Hold("Suspending", "the controller at c:1 is asked to stop it")
    for phase in ("Pending", "Running"):
        before, begun = job(phase, suspend=True), job(phase, suspend=True, conditions=BEGAN)
        assert not is_to_stop(before, PLAIN)
        assert is_to_stop(begun, PLAIN)
        for says in ("NOT_ASKED", "RUNNING", "CANCELLED", "NOT_FOUND"):
            assert look(before, says) == asked
        assert look(begun, "RUNNING") == asked
        for said in (Said(Heard("RUNNING"), stopped=True), Said(Heard("CANCELLED")), Said(Heard("NOT_FOUND"))):
            assert judge(begun, Elsewhere(PLAIN, "c:1", said)) == Suspend()


def test_a_suspension_that_cannot_be_says_why() -> None:
    begun = job("Running", suspend=True, conditions=BEGAN)
    assert look(begun, "RUNNING", refusal="not yours") == Hold(
        "Suspending", "cannot be suspended: the controller at c:1 will not stop it: not yours"
    )
    assert look(begun, "SILENCE") == Hold(
        "Suspending", "the controller at c:1 is to stop it and does not answer; asked again until it does"
    )
    assert look(begun, Heard("COMPLETED", score=1.0), refusal="done") == Succeed(Answer("j-7", 1.0))


def test_a_job_resumed_while_it_was_being_stopped_is_not_lost() -> None:
    resumed = job("Running", conditions=BEGAN)
    assert not is_to_stop(resumed, PLAIN)
    assert look(resumed, "RUNNING") == Mirror("Running", f"{HAS} says RUNNING")  # it was not stopped yet
    assert look(resumed, "CANCELLED") == Suspend()  # it was: from there it goes back to the queue
    assert look(resumed, "RUNNING", stopped=True) == Suspend()


def test_what_is_written() -> None:
    step = Mirror("Running", "says RUNNING")
    written = status.mirrored(job(), step, NOW)
    assert written["phase"] == "Running"
    assert written["startedAt"] == NOW
    assert "assignedNode" not in written
    assert "controllerJobID" not in written
    (condition,) = written["conditions"]
    assert (condition.type, condition.status, condition.reason) == ("Scheduled", "True", "Placed")
    after = job("Running", startedAt=NOW, conditions=(condition,))
    assert status.mirrored(after, step, NOW) == {}
    back = status.mirrored(after, Mirror("Pending", "says PENDING"), NOW)
    assert (back["phase"], back["startedAt"]) == ("Pending", NOW)
    assert [(one.status, one.reason) for one in back["conditions"]] == [("False", "AwaitingScheduler")]


def test_a_long_message_is_written_once() -> None:
    step = Mirror("Pending", "x" * 5000)
    (condition,) = status.mirrored(job(), step, NOW)["conditions"]
    assert status.mirrored(job(conditions=(condition,)), step, NOW) == {}


@pytest.mark.parametrize(
    ("told", "heard"),
    [
        (wire.Job(id="j"), Heard("PENDING")),
        (wire.Job(id="j", status=wire.RUNNING, assigned_node="n"), Heard("RUNNING", node="n")),
        (wire.Job(id="j", status=wire.COMPLETED, final_score=9.5), Heard("COMPLETED", score=9.5)),
        (wire.Job(id="j", status=wire.COMPLETED), Heard("COMPLETED")),
        (wire.Job(id="j", status=wire.RUNNING, final_score=math.nan), Heard("RUNNING")),
        (wire.Job(id="j", status=wire.FAILED, error="a\nb\x1b[31m"), Heard("FAILED", "a b [31m")),
        (wire.Job(id="j", status=wire.CANCELLED), Heard("CANCELLED")),
        (wire.Job(), Heard("NONSENSE", "it is about another job, ''")),
        (wire.Job(id="k", status=wire.COMPLETED), Heard("NONSENSE", "it is about another job, 'k'")),
        (
            wire.Job.FromString(wire.Job(id="j").SerializeToString() + b"\x10\x11"),
            Heard("NONSENSE", "its status is 17, which this version does not know"),
        ),
    ],
)
def test_answers_are_read(told: wire.Job, heard: Heard) -> None:
    assert read(told, "j") == heard


@given(st.text())
def test_other_peoples_words_stay_on_one_short_line(text: str) -> None:
    said = plain(text * 20)
    assert len(said) <= MOST
    assert said == "" or said.isprintable()
    assert plain(said) == said
