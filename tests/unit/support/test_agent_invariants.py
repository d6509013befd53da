"""Each invariant of jobs on agents has a case that violates it."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.invariants import violations
from tests.support.job_history import Change, Object
from tests.support.machines import AgentLogEntry
from tests.unit.support.test_pod_invariants import UID, Version, failed, history, job, pod, succeeded

HEARD = "2030-01-01T12:00:00.5Z"
SILENT = f"its node n has sent no heartbeat since {HEARD}"
LATE, GONE = "agent n did not claim it within 60 s", "its node n was deleted"
BROKEN = "NodeFault: the worker ended by signal SIGKILL, and left no answer"
GIVEN = [{"type": "Scheduled", "status": "True", "reason": "PlacedWithAgent"}]
TAKEN = AgentLogEntry("n", f"{UID}-0", "taken")
SCORED = AgentLogEntry("n", f"{UID}-0", "scored", 90.0)
NOT_SCORED = AgentLogEntry("n", f"{UID}-0", "not scored")


def node(runtime: str = "Agent", session: str = "s", lost: bool = False, draining: bool = False) -> Object:
    ready = {"type": "Ready", "status": "False" if lost else "True", "reason": "AgentLost" if lost else "Healthy"}
    status: Object = {"lastHeartbeat": HEARD, "conditions": [ready]} | ({"agentSession": session} if session else {})
    status |= {"draining": True} if draining else {}
    return {"metadata": {}, "spec": {"capacity": 1, "runtime": runtime}, "status": status}


def at(second: int, version: Object) -> Object:
    """Metadata of a version written this many seconds after noon."""
    time = f"2030-01-01T12:{second // 60:02}:{second % 60:02}Z"
    return version | {"metadata": version["metadata"] | {"managedFields": [{"time": time}]}}


def runs(attempts: int = 1, second: int = 1, **status: Any) -> Object:
    return at(second, job("Running", attempts, conditions=GIVEN, **status))


def ends(**status: Any) -> Object:
    return succeeded(conditions=[*GIVEN, {"type": "Complete", "status": "True", "reason": "Scored"}], **status)


def again(second: int, why: str, **status: Any) -> Object:
    retrying = [{"type": "Scheduled", "status": "False", "reason": "Retrying"}]
    return at(second, job("Pending", 1, conditions=retrying, message=why, **status))


def given(*versions: Version, there: Object | None = None) -> list[Change]:
    """A job that is placed on its node, and later versions."""
    return history(("node", there or node()), ("job", job()), ("job", runs()), *versions)


def moved(second: int, why: str, *before: Version, failures: int | None = 1) -> list[Change]:
    """A job that is taken from its node once, and then deleted."""
    return given(*before, ("job", again(second, why, failures=failures)), ("job", None))


VALID: dict[str, tuple[Callable[[], list[Change]], list[AgentLogEntry]]] = {
    "all goes well": (lambda: given(("job", ends())), [TAKEN, SCORED]),
    "it takes longer": (
        lambda: given(
            ("job", runs(claimedAt="t")), ("job", runs(claimedAt="t", progress={"frames": 1})),
            ("job", ends(claimedAt="t", frames=6, progress={"frames": 6, "totalFrames": 6})),
        ),
        [TAKEN, SCORED],
    ),
    "its node was lost": (lambda: moved(62, SILENT, ("node", node(lost=True))), [TAKEN]),
    "it was not taken": (lambda: moved(62, LATE), []),
    "it was not taken by an agent that drains": (
        lambda: moved(62, LATE, ("node", node(draining=True)), failures=None), []
    ),
    "its node went": (lambda: moved(5, GONE, ("node", None), failures=None), [TAKEN]),
    "its node had just gone": (
        lambda: history(
            ("node", node()), ("job", job()), ("node", None), ("job", runs()), ("job", again(2, GONE)), ("job", None)
        ),
        [],
    ),
    "its worker died": (lambda: moved(5, BROKEN), [TAKEN, NOT_SCORED]),
    "a bad clip": (lambda: given(("job", failed("BadInput", message="no file"))), [TAKEN, NOT_SCORED]),
}  # fmt: skip


@pytest.mark.parametrize("case", VALID)
def test_a_valid_history_has_no_violations(case: str) -> None:
    make_history, log_entries = VALID[case]
    assert violations(make_history(), log_entries) == []


INVALID: dict[str, tuple[Callable[[], list[Change]], list[AgentLogEntry]]] = {
    "is Pending, and its claimedAt": (lambda: moved(62, LATE, failures=1) + history(("job", job(claimedAt="t"))), []),
    "is placed, and its progress": (
        lambda: history(("node", node()), ("job", job()), ("job", runs(progress={"frames": 1}))), []
    ),
    "ended, and its claimedAt went from None to t": (lambda: given(("job", ends(claimedAt="t"))), [TAKEN, SCORED]),
    "ended as Succeeded with 6 frames, and its progress is {'frames': 1}": (
        lambda: given(("job", runs(progress={"frames": 1})), ("job", ends(frames=6, progress={"frames": 1}))),
        [TAKEN, SCORED],
    ),
    "ended as Failed with None frames, and its progress is {'frames': 1}": (
        lambda: given(
            ("job", runs(progress={"frames": 1})), ("job", failed("BadInput", message="no", progress={"frames": 1}))
        ),
        [TAKEN, NOT_SCORED],
    ),
    "was taken at t, and then at u": (
        lambda: given(("job", runs(claimedAt="t")), ("job", runs(claimedAt="u")), ("job", ends(claimedAt="u"))),
        [TAKEN, SCORED],
    ),
    "is a Pod for attempt 0 of a job that an agent runs": (
        lambda: given(("pod", pod()), ("job", ends())), [TAKEN, SCORED]
    ),
    "placed on n for Agent, and that is for Pod": (lambda: given(there=node("Pod")), []),
    "placed on n for Pod, and that is for Agent": (
        lambda: history(("node", node()), ("job", job()), ("job", job("Running", 1))), []
    ),
    "placed on n, whose agent has no session": (lambda: given(there=node(session="")), []),
    f"at 2030-01-01 12:00:30+00:00: '{LATE}'": (lambda: moved(30, LATE), []),
    f"at 2030-01-01 12:01:03+00:00: '{LATE}'": (
        lambda: given(("job", runs(claimedAt="t")), ("job", again(63, LATE, failures=1)), ("job", None)), []
    ),
    f"at 2030-01-01 12:01:02+00:00: '{SILENT}'": (lambda: moved(62, SILENT), []),  # the node is not marked as lost
    f"at 2030-01-01 12:00:30+00:00: '{SILENT}'": (lambda: moved(30, SILENT, ("node", node(lost=True))), []),
    f"'{GONE}'": (lambda: moved(5, GONE, failures=None), []),
    "'just so'": (lambda: moved(5, "just so"), []),
    "counts 0 failures for": (lambda: moved(62, LATE, failures=None), []),
    "has score 90.0; its agent logged None": (lambda: given(("job", ends())), [TAKEN]),
    "has score 90.0; its agent logged [80.0]": (
        lambda: given(("job", ends())), [TAKEN, SCORED._replace(score=80.0), SCORED._replace(agent="other")]
    ),
    "and its agent logged no failure": (lambda: moved(5, BROKEN), [TAKEN, NOT_SCORED._replace(attempt="u1-7")]),
    "other took u1-0, which n had": (
        lambda: given(("job", ends())), [TAKEN, SCORED, TAKEN._replace(agent="other")]
    ),
    "n took u1-3, which was never placed": (lambda: given(("job", ends())), [TAKEN._replace(attempt="u1-3"), SCORED]),
}  # fmt: skip


@pytest.mark.parametrize("violation", INVALID)
def test_a_violation_is_found(violation: str) -> None:
    make_history, log_entries = INVALID[violation]
    found = violations(make_history(), log_entries)
    assert any(violation in text for text in found), found
