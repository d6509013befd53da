"""The laws of a job's history can be broken, and each breach is found."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.history import Kind, Moment, Object, broken_laws

UID = "u1"


def job(phase: str = "Pending", attempts: int = 0, **status: Any) -> Object:
    spec = status.pop("spec", {})
    if phase == "Running":
        status = {"assignedNode": "n", "controllerJobID": f"{UID}-{attempts - 1}"} | status
    kept = {"phase": phase, "attempts": attempts, **status}
    return {"metadata": {"uid": UID}, "spec": spec, "status": {k: v for k, v in kept.items() if v is not None}}


def succeeded(**status: Any) -> Object:
    usual = {"controllerJobID": f"{UID}-0", "assignedNode": "n", "score": 90.0, "finishedAt": "now"}
    return job("Succeeded", 1, **(usual | status))


def failed(why: str, **status: Any) -> Object:
    conditions = [{"type": "Failed", "status": "True", "reason": why}]
    return job("Failed", 1, finishedAt="now", conditions=conditions, **status)


def pod(attempt: int = 0, score: float | None = None) -> Object:
    labels, owner = {"vmafx.dev/attempt": str(attempt)}, {"uid": UID}
    made: Object = {"metadata": {"labels": labels, "ownerReferences": [owner]}, "status": {}}
    if score is not None:
        ended = {"exitCode": 0, "message": f'{{"score": {score}}}'}
        made["status"] = {"containerStatuses": [{"state": {"terminated": ended}}]}
    return made


NODE: Object = {"spec": {"capacity": 1}}


def story(*versions: tuple[Kind, Object | None], name: str = "j") -> list[Moment]:
    """One object of each kind, through these versions."""
    last: dict[str, Object | None] = {}
    moments = []
    for revision, (kind, new) in enumerate(versions):
        moments.append(Moment(revision, kind, {"node": "n", "job": name, "pod": "p"}[kind], last.get(kind), new))
        last[kind] = new
    return moments


GOOD = story(
    ("node", NODE), ("job", job()), ("job", job("Running", 1)), ("pod", pod()), ("pod", pod(0, 90.0)),
    ("job", succeeded()),
)  # fmt: skip


def test_a_good_story_breaks_no_law() -> None:
    assert broken_laws(GOOD) == []


def second_job() -> list[Moment]:
    return [*GOOD[:3], Moment(3, "job", "other", None, job()), Moment(4, "job", "other", job(), job("Running", 1))]


BAD: dict[str, Callable[[], list[Moment]]] = {
    "begins as Running": lambda: story(("node", NODE), ("job", job("Running", 1))),
    "turns from Pending to Succeeded": lambda: story(("job", job()), ("pod", pod(0, 90.0)), ("job", succeeded())),
    "was Succeeded and changed": lambda: [*GOOD, Moment(9, "job", "j", succeeded(), succeeded(score=91.0))],
    "ended at no time": lambda: [*GOOD[:5], Moment(9, "job", "j", job("Running", 1), succeeded(finishedAt=None))],
    "has score None and is Succeeded": lambda: [
        *GOOD[:5],
        Moment(9, "job", "j", job("Running", 1), succeeded(score=None)),
    ],
    "has score 5 and is Running": lambda: story(("node", NODE), ("job", job()), ("job", job("Running", 1, score=5))),
    "attempts went from 0 to 2": lambda: story(("node", NODE), ("job", job()), ("job", job("Running", 2))),
    "attempts went from 1 to 0": lambda: [*GOOD[:3], Moment(9, "job", "j", job("Running", 1), job())],
    "is Running as other, and should be as u1-0": lambda: story(
        ("node", NODE), ("job", job()), ("job", job("Running", 1, controllerJobID="other"))
    ),
    "is Pending as u1-0": lambda: [
        *GOOD[:3],
        Moment(9, "job", "j", GOOD[2].new, job("Pending", 1, controllerJobID="u1-0")),
    ],
    "failures went from 0 to 2": lambda: [*GOOD[:3], Moment(9, "job", "j", GOOD[2].new, job("Pending", 1, failures=2))],
    "failures went from 0 to 1": lambda: story(("job", job()), ("job", job(failures=1))),
    "failed 1 times of 4, and its reason is RetriesExhausted": lambda: [
        *GOOD[:3],
        Moment(9, "job", "j", GOOD[2].new, failed("RetriesExhausted", failures=1)),
    ],
    "failed 1 times of 1, and its reason is None": lambda: [
        *GOOD[:3],
        Moment(9, "job", "j", GOOD[2].new, job("Pending", 1, failures=1, spec={"retryLimit": 0})),
    ],
    "although it was cancelled": lambda: story(
        ("node", NODE), ("job", job(spec={"cancel": True})), ("job", job("Running", 1))
    ),
    "makes 2 jobs on n, which has 1 slots": second_job,
    "for attempt 1 of a job that was placed 1 times": lambda: [*GOOD[:3], Moment(9, "pod", "p", None, pod(1))],
    "its Pod told 80.0": lambda: [*GOOD[:4], Moment(8, "pod", "p", pod(), pod(0, 80.0)), GOOD[5]],
    "its Pod told None": lambda: [*GOOD[:4], GOOD[5], Moment(9, "pod", "p", pod(), pod(0, 90.0))],
}  # fmt: skip


@pytest.mark.parametrize("breach", BAD)
def test_a_breach_is_found(breach: str) -> None:
    found = broken_laws(BAD[breach]())
    assert any(breach in text for text in found), found
