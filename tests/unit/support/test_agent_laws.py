"""The laws of jobs on agents accept every legal history and find every breach."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.history import Moment, Object
from tests.support.laws import broken_laws
from tests.support.machines import Said
from tests.unit.support.test_pod_laws import UID, Version, failed, job, pod, story, succeeded

HEARD = "2030-01-01T12:00:00.5Z"
SILENT = f"its node n has sent no heartbeat since {HEARD}"
LATE, GONE = "agent n did not claim it within 60 s", "its node n was deleted"
BROKEN = "NodeFault: the worker ended by signal SIGKILL, and left no answer"
GIVEN = [{"type": "Scheduled", "status": "True", "reason": "PlacedWithAgent"}]
TAKEN, SCORED, NOT_SCORED = (
    Said("n", f"{UID}-0", "taken"), Said("n", f"{UID}-0", "scored", 90.0), Said("n", f"{UID}-0", "not scored")
)  # fmt: skip


def node(runtime: str = "Agent", session: str = "s", lost: bool = False) -> Object:
    ready = {"type": "Ready", "status": "False" if lost else "True", "reason": "AgentLost" if lost else "Healthy"}
    status: Object = {"lastHeartbeat": HEARD, "conditions": [ready]} | ({"agentSession": session} if session else {})
    return {"metadata": {}, "spec": {"capacity": 1, "runtime": runtime}, "status": status}


def at(second: int, version: Object) -> Object:
    """The version as written `second` seconds after noon."""
    time = f"2030-01-01T12:{second // 60:02}:{second % 60:02}Z"
    return version | {"metadata": version["metadata"] | {"managedFields": [{"time": time}]}}


def runs(attempts: int = 1, second: int = 1, **status: Any) -> Object:
    return at(second, job("Running", attempts, conditions=GIVEN, **status))


def ends(**status: Any) -> Object:
    return succeeded(conditions=[*GIVEN, {"type": "Complete", "status": "True", "reason": "Scored"}], **status)


def again(second: int, why: str, **status: Any) -> Object:
    retrying = [{"type": "Scheduled", "status": "False", "reason": "Retrying"}]
    return at(second, job("Pending", 1, conditions=retrying, message=why, **status))


def given(*versions: Version, there: Object | None = None) -> list[Moment]:
    """A job that was placed on its node, and the versions after that."""
    return story(("node", there or node()), ("job", job()), ("job", runs()), *versions)


def moved(second: int, why: str, *before: Version, failures: int | None = 1) -> list[Moment]:
    """A job whose first attempt was lost, and which was then deleted."""
    return given(*before, ("job", again(second, why, failures=failures)), ("job", None))


LEGAL: dict[str, tuple[Callable[[], list[Moment]], list[Said]]] = {
    "succeeds at once": (lambda: given(("job", ends())), [TAKEN, SCORED]),
    "reports progress": (
        lambda: given(
            ("job", runs(claimedAt="t")), ("job", runs(claimedAt="t", progress={"frames": 1})),
            ("job", ends(claimedAt="t", frames=6, progress={"frames": 6, "totalFrames": 6})),
        ),
        [TAKEN, SCORED],
    ),
    "its node was lost": (lambda: moved(62, SILENT, ("node", node(lost=True))), [TAKEN]),
    "it was not taken": (lambda: moved(62, LATE), []),
    "its node was deleted": (lambda: moved(5, GONE, ("node", None), failures=None), [TAKEN]),
    "its node was deleted just before": (
        lambda: story(
            ("node", node()), ("job", job()), ("node", None), ("job", runs()), ("job", again(2, GONE)), ("job", None)
        ),
        [],
    ),
    "its worker died": (lambda: moved(5, BROKEN), [TAKEN, NOT_SCORED]),
    "a bad clip": (lambda: given(("job", failed("BadInput", message="no file"))), [TAKEN, NOT_SCORED]),
}  # fmt: skip


@pytest.mark.parametrize("name", LEGAL)
def test_a_legal_history_breaks_no_law(name: str) -> None:
    history, agent_log = LEGAL[name]
    assert broken_laws(history(), agent_log) == []


BAD: dict[str, tuple[Callable[[], list[Moment]], list[Said]]] = {
    "is Pending, and its claimedAt": (lambda: moved(62, LATE, failures=1) + story(("job", job(claimedAt="t"))), []),
    "is placed, and its progress": (
        lambda: story(("node", node()), ("job", job()), ("job", runs(progress={"frames": 1}))), []
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
        lambda: story(("node", node()), ("job", job()), ("job", job("Running", 1))), []
    ),
    "placed on n, whose agent has not spoken": (lambda: given(there=node(session="")), []),
    f"at 2030-01-01 12:00:30+00:00: '{LATE}'": (lambda: moved(30, LATE), []),
    f"at 2030-01-01 12:01:03+00:00: '{LATE}'": (
        lambda: given(("job", runs(claimedAt="t")), ("job", again(63, LATE, failures=1)), ("job", None)), []
    ),
    f"at 2030-01-01 12:01:02+00:00: '{SILENT}'": (lambda: moved(62, SILENT), []),  # the node is not marked as lost
    f"at 2030-01-01 12:00:30+00:00: '{SILENT}'": (lambda: moved(30, SILENT, ("node", node(lost=True))), []),
    f"'{GONE}'": (lambda: moved(5, GONE, failures=None), []),
    "'just so'": (lambda: moved(5, "just so"), []),
    "counts 0 failures for": (lambda: moved(62, LATE, failures=None), []),
    "has score 90.0; its agent said None": (lambda: given(("job", ends())), [TAKEN]),
    "has score 90.0; its agent said [80.0]": (
        lambda: given(("job", ends())), [TAKEN, SCORED._replace(score=80.0), SCORED._replace(agent="other")]
    ),
    "and its agent said nothing of that": (lambda: moved(5, BROKEN), [TAKEN, NOT_SCORED._replace(attempt="u1-7")]),
    "other took u1-0, which n had": (
        lambda: given(("job", ends())), [TAKEN, SCORED, TAKEN._replace(agent="other")]
    ),
    "n took u1-3, which never was": (lambda: given(("job", ends())), [TAKEN._replace(attempt="u1-3"), SCORED]),
}  # fmt: skip


@pytest.mark.parametrize("breach", BAD)
def test_a_breach_is_found(breach: str) -> None:
    history, agent_log = BAD[breach]
    found = broken_laws(history(), agent_log)
    assert any(breach in text for text in found), found
