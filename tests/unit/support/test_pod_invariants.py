"""Each invariant of a job's history has a case that violates it; unplanned ends of jobs are found as well."""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.chaos_plan import WEIGHTS, PlannedJob, job_errors, make_plan
from tests.support.chaos_plan import Kind as Plannable
from tests.support.invariants import violations
from tests.support.job_history import Change, Kind, Object

UID = "u1"
Version = tuple[Kind, Object | None]


def job(phase: str = "Pending", attempts: int = 0, **status: Any) -> Object:
    spec = status.pop("spec", {})
    metadata = {"uid": status.pop("uid", UID)} | written(status.pop("at", None))
    if phase == "Running":
        status = {"assignedNode": "n", "controllerJobID": f"{metadata['uid']}-{attempts - 1}"} | status
    kept = {"phase": phase, "attempts": attempts, **status}
    return {"metadata": metadata, "spec": spec, "status": {k: v for k, v in kept.items() if v is not None}}


def succeeded(attempts: int = 1, **status: Any) -> Object:
    usual = {"controllerJobID": f"{UID}-{attempts - 1}", "assignedNode": "n", "score": 90.0, "finishedAt": "now"}
    return job("Succeeded", attempts, **(usual | status))


def failed(why: str, **status: Any) -> Object:
    usual = {"controllerJobID": f"{UID}-0", "assignedNode": "n", "finishedAt": "now"}
    conditions = [{"type": "Failed", "status": "True", "reason": why}]
    return job("Failed", 1, conditions=conditions, **(usual | status))


def again(why: str = "Retrying", **status: Any) -> Object:
    return job("Pending", 1, conditions=[{"type": "Scheduled", "status": "False", "reason": why}], **status)


def pod(attempt: int = 0, score: float | None = None, message: str | None = None, **metadata: Any) -> Object:
    labels, owner = {"vmafx.dev/attempt": str(attempt)}, {"uid": UID}
    made: Object = {
        "metadata": {"uid": f"p{attempt}", "labels": labels, "ownerReferences": [owner]} | metadata,
        "status": {},
    }
    if score is not None:
        message = json.dumps({"id": f"{UID}-{attempt}", "score": score})
    if message is not None:
        made["status"] = {"containerStatuses": [{"state": {"terminated": {"message": message}}}]}
    return made


def drained() -> Object:
    made = pod(message="")
    made["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]
    return made


def on_a_lost_node() -> Object:
    """It is to be deleted, and nothing says how its worker ended."""
    made = pod(deletionTimestamp="now")
    made["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}]
    return made


def evicted() -> Object:
    made = pod(message="")
    made["status"]["reason"] = "Evicted"
    made["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}]
    return made


def node(at: int | None = None, **spec: Any) -> Object:
    return {"metadata": written(at), "spec": {"capacity": 1} | spec}


def written(at: int | None) -> Object:
    """Metadata of a version written `at` seconds after noon."""
    return {} if at is None else {"managedFields": [{"time": f"2030-01-01T12:00:{at:02}Z"}]}


NODE, RUNS = node(), job("Running", 1)
BAD_CLIP = json.dumps({"id": f"{UID}-0", "fault": "BadInput"})


def history(*versions: Version, name: str = "j") -> list[Change]:
    """The changes of one object of each kind through these versions."""
    last: dict[str, Object | None] = {}
    changes = []
    for revision, (kind, new) in enumerate(versions):
        changes.append(Change(revision, kind, {"node": "n", "job": name, "pod": "p"}[kind], last.get(kind), new))
        last[kind] = new
    return changes


def placed(*versions: Version, **spec: Any) -> list[Change]:
    """A job that is placed on its node, and later versions."""
    return history(("node", NODE), ("job", job(spec=spec)), ("job", job("Running", 1, spec=spec)), *versions)


def tried_again(*versions: Version, failures: int | None, message: str | None = None) -> list[Change]:
    """A first attempt with these versions, and a second one that succeeds."""
    deleted: list[Version] = [("pod", None)] if versions[-1][0] == "pod" and versions[-1][1] else []
    return placed(
        *versions, ("job", again(failures=failures, message=message)), *deleted,
        ("job", job("Running", 2, failures=failures)), ("pod", pod(1)), ("pod", pod(1, 90.0)),
        ("job", succeeded(2, failures=failures)),
    )  # fmt: skip


def with_another_pod(*versions: Object | None) -> list[Change]:
    """A job that is cancelled while it runs, and a Pod that is created for it afterwards."""
    cancelled = placed(("job", RUNS_CANCELLED), ("job", failed("Cancelled")))
    return [*cancelled, *(Change(10 + one.revision, *one[1:]) for one in history(*(("pod", one) for one in versions)))]


def placed_at(second: int, *closed: Version) -> list[Change]:
    """A deleted or cordoned node, a change with a time, and then a placement on that node."""
    timed = Change(8, "job", "other", None, job(uid="u2", at=2))
    placement = Change(9, "job", "j", job(), job("Running", 1, at=second))
    return [*history(("node", node(at=1)), ("job", job(at=1)), *closed), timed, placement]


GOOD = placed(("pod", pod()), ("pod", pod(0, 90.0)), ("job", succeeded()))
RUNS_CANCELLED = job("Running", 1, spec={"cancel": True})
RUNS_SUSPENDED = job("Running", 1, spec={"suspend": True})
VALID: dict[str, Callable[[], list[Change]]] = {
    "a job that succeeds": lambda: GOOD,
    "deleted while it waits": lambda: history(("job", job()), ("job", None)),
    "cancelled": lambda: placed(("pod", pod()), ("job", RUNS_CANCELLED), ("job", failed("Cancelled")), ("pod", None)),
    "cancelled before the score was read": lambda: placed(
        ("pod", pod()), ("job", RUNS_CANCELLED), ("pod", pod(0, 90.0)), ("job", failed("Cancelled"))
    ),
    "suspended": lambda: placed(("pod", pod()), ("job", RUNS_SUSPENDED), ("job", again("Suspended")), ("job", None)),
    "a bad clip": lambda: placed(("pod", pod()), ("pod", pod(message=BAD_CLIP)), ("job", failed("BadInput"))),
    "deadline exceeded": lambda: placed(("pod", pod()), ("job", failed("DeadlineExceeded")), activeDeadlineSeconds=1),
    "a worker that failed": lambda: tried_again(("pod", pod()), ("pod", pod(message="?")), failures=1),
    "a Pod that was drained": lambda: tried_again(("pod", pod()), ("pod", drained()), failures=None),
    "a Pod that the kubelet evicted": lambda: tried_again(("pod", pod()), ("pod", evicted()), failures=1),
    "a Pod being deleted": lambda: tried_again(("pod", pod()), ("pod", pod(deletionTimestamp="now")), failures=1),
    "a drained Pod that is gone": lambda: tried_again(
        ("pod", pod()), ("pod", drained()), ("pod", None), failures=None
    ),
    "a drained Pod that the operator has missed": lambda: tried_again(
        ("pod", pod()), ("pod", drained()), ("pod", None), failures=1, message="its Pod disappeared"
    ),
    "a Pod that failed, and was then drained": lambda: tried_again(
        ("pod", pod()), ("pod", pod(message="?")), ("pod", drained()), failures=1
    ),
    "a Pod on a lost node": lambda: tried_again(("pod", pod()), ("pod", on_a_lost_node()), failures=None),
    "a Pod that was deleted with its score": lambda: tried_again(
        ("pod", pod()), ("pod", pod(0, 90.0)), ("pod", None), failures=1
    ),
    "a node deleted before there was a Pod": lambda: tried_again(("node", None), ("node", NODE), failures=None),
    "retries exhausted": lambda: placed(
        ("pod", pod()), ("pod", pod(message="")),
        ("job", failed("RetriesExhausted", failures=1, spec={"retryLimit": 0})), retryLimit=0,
    ),
    "a late Pod that is being deleted": lambda: with_another_pod(pod(), pod(deletionTimestamp="now")),
    "a late Pod that is deleted": lambda: with_another_pod(pod(), None),
    "a late Pod whose job is deleted": lambda: [
        *with_another_pod(pod()), Change(99, "job", "j", failed("Cancelled"), None)
    ],
}  # fmt: skip


@pytest.mark.parametrize("case", VALID)
def test_a_valid_history_has_no_violations(case: str) -> None:
    assert violations(VALID[case]()) == []


def second_job() -> list[Change]:
    return [*GOOD[:3], Change(3, "job", "other", None, job()), Change(4, "job", "other", job(), job("Running", 1))]


INVALID: dict[str, Callable[[], list[Change]]] = {
    "starts as Running": lambda: history(("node", NODE), ("job", job("Running", 1))),
    "changes from Pending to Succeeded": lambda: history(("job", job()), ("pod", pod(0, 90.0)), ("job", succeeded())),
    "was Succeeded and changed": lambda: [*GOOD, Change(9, "job", "j", succeeded(), succeeded(score=91.0))],
    "has no finishedAt": lambda: placed(("job", succeeded(finishedAt=None))),
    "has score None and is Succeeded": lambda: placed(("job", succeeded(score=None))),
    "has score 5 and is Running": lambda: history(("node", NODE), ("job", job()), ("job", job("Running", 1, score=5))),
    "attempts went from 0 to 2": lambda: history(("node", NODE), ("job", job()), ("job", job("Running", 2))),
    "attempts went from 1 to 0": lambda: placed(("job", job())),
    "is Running as other, expected u1-0": lambda: history(
        ("node", NODE), ("job", job()), ("job", job("Running", 1, controllerJobID="other"))
    ),
    "is Pending as u1-0": lambda: placed(("job", again(controllerJobID="u1-0"))),
    "is Pending on n": lambda: placed(("job", again(assignedNode="n"))),
    "is Running on None": lambda: history(
        ("node", NODE), ("job", job()), ("job", job("Running", 1, assignedNode=None))
    ),
    "its assignedNode went from n to m": lambda: placed(("job", job("Running", 1, assignedNode="m"))),
    "its assignedNode went from n to None": lambda: placed(("job", succeeded(assignedNode=None))),
    "its controllerJobID went from u1-0 to u1-1": lambda: placed(("job", succeeded(controllerJobID="u1-1"))),
    "its controllerJobID went from u1-0 to None": lambda: placed(("job", failed("BadInput", controllerJobID=None))),
    "failures went from 0 to 2": lambda: placed(("job", again(failures=2))),
    "failures went from 0 to 1": lambda: history(("job", job()), ("job", job(failures=1))),
    "failed 1 times of 4, and its reason is RetriesExhausted": lambda: placed(
        ("job", failed("RetriesExhausted", failures=1))
    ),
    "failed 1 times of 1, and its reason is None": lambda: placed(("job", again(failures=1)), retryLimit=0),
    "although it was cancelled": lambda: history(
        ("node", NODE), ("job", job(spec={"cancel": True})), ("job", job("Running", 1))
    ),
    "is Cancelled, and its cancel is not set": lambda: placed(("job", failed("Cancelled"))),
    "is Suspended, and its suspend is not set": lambda: placed(("job", again("Suspended"))),
    "is DeadlineExceeded, and its activeDeadlineSeconds": lambda: placed(("job", failed("DeadlineExceeded"))),
    "makes 2 jobs on n, which has 1 slots": second_job,
    "is Running at the end of the history": placed,
    "for attempt 1 of a job that was placed 1 times": lambda: placed(("pod", pod(1))),
    "for attempt 0 of a job that was placed 0 times": lambda: history(("pod", pod())),
    "for attempt 0 of a job that is Failed after 1 placements, and stays": lambda: with_another_pod(pod()),
    "for attempt 0 of a job that is deleted after 1 placements, and stays": lambda: placed(
        ("job", None), ("pod", pod())
    ),
    "for attempt 0 of a job that is Running after 2 placements, and stays": lambda: [
        *tried_again(("pod", pod()), ("pod", pod(message="?")), failures=1)[:-3],
        Change(99, "pod", "x", None, pod(uid="x")),
    ],
    "is one of 2 Pods of an attempt: ['p', 'q']": lambda: [*GOOD[:4], Change(9, "pod", "q", None, pod(uid="q"))],
    "its Pod reported [80.0]": lambda: placed(("pod", pod()), ("pod", pod(0, 80.0)), ("job", succeeded())),
    "its Pod reported None": lambda: placed(("pod", pod()), ("job", succeeded()), ("pod", pod(0, 90.0))),
    "has score 90.0; its Pod reported None": lambda: placed(  # what it says is of another attempt
        ("pod", pod()), ("pod", pod(message='{"id": "u1-7", "score": 90.0}')), ("job", succeeded())
    ),
    "failed as BadInput; its Pod reported ['nothing']": lambda: placed(
        ("pod", pod()), ("pod", pod(message="?")), ("job", failed("BadInput"))
    ),
    "failed (BadInput) although": lambda: placed(("pod", pod()), ("pod", pod(0, 90.0)), ("job", failed("BadInput"))),
    "failed (RetriesExhausted) although its Pod reported a score": lambda: placed(
        ("pod", pod()), ("pod", pod(0, 90.0)), ("job", failed("RetriesExhausted", failures=4))
    ),
    "failed (tried again) although": lambda: tried_again(("pod", pod()), ("pod", pod(0, 90.0)), failures=1),
    "counts 1 failures, allowed are [0]": lambda: tried_again(("pod", pod()), ("pod", drained()), failures=1),
    "counts 0 failures, allowed are [1]": lambda: tried_again(
        ("pod", pod()), ("pod", pod(message="?")), failures=None
    ),
    "counts 0 failures, allowed are []": lambda: tried_again(("pod", pod()), failures=None),  # it still runs
    "revision 6, j: counts 1 failures, allowed are [0]": lambda: tried_again(
        ("pod", pod()), ("pod", drained()), ("pod", None), failures=1
    ),
    "revision 5, j: counts 0 failures, allowed are [1]": lambda: tried_again(
        ("pod", pod()), ("pod", pod(deletionTimestamp="now")), failures=None
    ),
    "counts 1 failures, allowed are []": lambda: placed(("job", again(failures=1))),  # it never had a Pod
    "counts 1 failures, and is Cancelled": lambda: placed(
        ("pod", pod()), ("job", RUNS_CANCELLED), ("job", failed("Cancelled", failures=1))
    ),
}  # fmt: skip


@pytest.mark.parametrize("violation", INVALID)
def test_a_violation_is_found(violation: str) -> None:
    found = violations(INVALID[violation]())
    assert any(violation in text for text in found), found


@pytest.mark.parametrize("closed", [("node", node(at=2, unschedulable=True)), ("node", None)], ids=["cordoned", "gone"])
def test_a_placement_on_a_closed_node_is_a_violation_once_no_cache_can_be_that_old(closed: Version) -> None:
    def found(changes: list[Change]) -> bool:
        return any("closed since" in text for text in violations(changes))

    assert found(placed_at(20, closed))
    assert not found(placed_at(10, closed))
    assert not found(placed_at(20, closed, ("node", node(at=3))))


def test_a_plan_has_every_kind_of_job_and_depends_only_on_the_seed() -> None:
    plan = make_plan(5, 24, Counter({"kill operator": 2}))
    assert {job.kind for job in plan.jobs} == set(WEIGHTS)
    assert plan == make_plan(5, 24, Counter({"kill operator": 2})) != make_plan(6, 24, Counter({"kill operator": 2}))


def scored(score: float = 90.0) -> Object:
    return succeeded(score=score, conditions=[{"type": "Complete", "status": "True", "reason": "Scored"}])


@pytest.mark.parametrize(
    ("kind", "last", "deleted", "error"),
    [
        ("plain", scored(), False, None),
        ("plain", scored(80.0), False, "has score 80.0"),
        ("plain", scored(), True, "does not exist"),
        ("plain", None, True, "does not exist"),
        ("paused", again("Suspended"), False, "ended as []"),
        ("stopped", failed("Cancelled"), False, None),
        ("stopped", scored(), False, "ended as ['Scored']"),
        ("late", failed("DeadlineExceeded"), False, None),
        ("late", scored(), False, "ended as ['Scored']"),
        ("mortal", scored(), True, None),
        ("mortal", scored(), False, "still exists"),
        ("mortal", job("Running", 1), True, "ended as []"),
    ],
)
def test_each_kind_of_job_has_its_expected_end(
    kind: Plannable, last: Object | None, deleted: bool, error: str | None
) -> None:
    found = job_errors(PlannedJob("job-0000", kind, (), ()), last, 90.0, deleted=deleted)
    assert (error in found[0]) if error else found == []
