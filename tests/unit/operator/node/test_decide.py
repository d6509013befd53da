"""When a node is healthy, when its agent is lost, and what is written about it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmafx.api.meta import Condition, MetaView
from vmafx.api.node import BY_AGENT, REGISTERED_BY, NodeStatusView, NodeView, VmafxNodeSpec
from vmafx.operator.node.decide import (
    ANSWERING,
    PROBE_INTERVAL,
    SILENCE,
    ControllerProbe,
    HeartbeatRecord,
    NodeHealth,
    assess,
    is_lost,
    next_check,
    patch,
    record_heartbeat,
    should_delete,
)

NOW = datetime(2026, 6, 6, 12, 0, 0, tzinfo=UTC)
CLOCK = 5000.0
NEW, LONG = ControllerProbe(ok=True, at=CLOCK, since=CLOCK), ControllerProbe(ok=True, at=CLOCK, since=CLOCK - ANSWERING)
DOWN = ControllerProbe(ok=False, detail="http://c/healthz: refused", at=CLOCK, since=CLOCK)
DAY = timedelta(hours=24).total_seconds()


def node(heartbeat_age: float | None = None, *, runtime: Any = "Pod", made_by: str = "", **status: Any) -> NodeView:
    heartbeat = None if heartbeat_age is None else NOW - timedelta(seconds=heartbeat_age)
    labels = {REGISTERED_BY: made_by} if made_by else {}
    return NodeView(
        metadata=MetaView("n", "ns", "u1", "7", generation=3, labels=labels),
        spec=VmafxNodeSpec(gpuVendor="cpu", runtime=runtime),
        status=NodeStatusView(lastHeartbeat=heartbeat, **status),
    )


def first_look(one: NodeView, probe: ControllerProbe, now: datetime = NOW) -> NodeHealth:
    return assess(one, probe, record_heartbeat(one, None, now, CLOCK), CLOCK)


def told(one: NodeView, verdict: NodeHealth) -> NodeView:
    """The node, once that is written."""
    changes = patch(one, verdict, NOW)
    changes |= {"conditions": tuple(changes["conditions"])} if "conditions" in changes else {}
    return msgspec.structs.replace(one, status=msgspec.structs.replace(one.status, **changes))


@pytest.mark.parametrize(
    ("age", "probe", "healthy", "reason"),
    [
        (None, NEW, True, "Healthy"),
        (None, DOWN, False, "ControllerUnreachable"),
        (0, NEW, True, "Healthy"),
        (60, NEW, True, "Healthy"),
        (61, NEW, False, "HeartbeatStale"),
        (61, DOWN, False, "HeartbeatStale"),
        (61, LONG, False, "HeartbeatStale"),  # its Pods need no agent
        (30, DOWN, False, "ControllerUnreachable"),
        (-3600, NEW, True, "Healthy"),
    ],
)
def test_healthy_is_a_controller_that_answers_and_an_agent_that_was_heard(
    age: float | None, probe: ControllerProbe, healthy: bool, reason: str
) -> None:
    verdict = first_look(node(age), probe)
    assert (verdict.healthy, verdict.reason) == (healthy, reason)


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        (0, "the agent is draining: it takes no new jobs"),
        (1, "the agent is draining: it finishes 1 job and takes no new ones"),
        (3, "the agent is draining: it finishes 3 jobs and takes no new ones"),
    ],
)
def test_a_draining_agent_is_healthy_and_not_ready(jobs: int, message: str) -> None:
    one = node(5, runtime="Agent", draining=True, assignedJobs=jobs)
    status = told(one, first_look(one, LONG)).status
    (ready,) = status.conditions
    assert (status.healthy, ready.status, ready.reason, ready.message) == (True, "False", "Draining", message)


def test_a_drained_agent_that_is_gone_is_silent_like_any_other() -> None:
    one = node(61, runtime="Agent", draining=True)
    assert (first_look(one, NEW).reason, first_look(one, LONG).reason) == ("HeartbeatStale", "AgentLost")
    assert first_look(node(5, runtime="Agent", draining=True), DOWN).reason == "ControllerUnreachable"


def test_a_cordoned_node_is_ready_and_says_that_it_is_cordoned() -> None:
    one = node(5)
    one = msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, unschedulable=True))
    (ready,) = told(one, first_look(one, NEW)).status.conditions
    assert (ready.status, ready.reason) == ("True", "Healthy")
    assert ready.message == "the controller answers; cordoned: it gets no new jobs (spec.unschedulable is true)"


def test_what_was_found_stale_stays_so_until_another_heartbeat_comes() -> None:
    silent = told(node(61), first_look(node(61), NEW))
    assert first_look(silent, NEW, NOW - timedelta(hours=1)).reason == "HeartbeatStale"
    found = silent.status
    heard = node(30, healthy=False, conditions=found.conditions, observedHeartbeat=found.observedHeartbeat)
    assert first_look(heard, NEW).healthy


@pytest.mark.parametrize(
    ("probe", "heard", "reason"),
    [
        (LONG, HeartbeatRecord("u1", NOW, CLOCK - SILENCE - 1), "AgentLost"),  # we saw it come, and nothing since
        (LONG, HeartbeatRecord("u1", NOW, CLOCK - SILENCE), "Healthy"),
        (LONG, HeartbeatRecord("u1", NOW, CLOCK - 1, age=61), "AgentLost"),  # stale when first read
        (
            LONG,
            HeartbeatRecord("u1", NOW, CLOCK - 30, age=31),
            "HeartbeatStale",
        ),  # not then, and not for a minute since
        (LONG, HeartbeatRecord("u1", NOW, CLOCK - SILENCE, age=31), "AgentLost"),
        (
            NEW,
            HeartbeatRecord("u1", NOW, CLOCK - 9000),
            "HeartbeatStale",
        ),  # maybe it was the controller that heard nothing
        (
            ControllerProbe(ok=True, at=CLOCK, since=CLOCK - 59),
            HeartbeatRecord("u1", NOW, CLOCK - 9000),
            "HeartbeatStale",
        ),
        (DOWN, HeartbeatRecord("u1", NOW, CLOCK - 9000), "HeartbeatStale"),
        (
            ControllerProbe(ok=True, at=CLOCK - 61, since=0.0),
            HeartbeatRecord("u1", NOW, CLOCK - 9000),
            "HeartbeatStale",
        ),  # none came since
    ],
)
def test_an_agent_is_lost_when_it_was_silent_for_certain(
    probe: ControllerProbe, heard: HeartbeatRecord, reason: str
) -> None:
    assert assess(node(0, runtime="Agent"), probe, heard, CLOCK).reason == reason


def test_one_that_is_lost_stays_so_until_it_is_heard() -> None:
    silent = node(90, runtime="Agent")
    lost = told(silent, first_look(silent, LONG))
    assert (lost.status.healthy, is_lost(lost)) == (False, True)
    for probe in (NEW, LONG, DOWN):
        for now in (NOW, NOW - timedelta(hours=1)):  # by another process, or another clock
            assert patch(lost, first_look(lost, probe, now), now) == {}
    # A heartbeat that came while nobody judged: what is still said of the one before it does not count.
    found = lost.status
    assert found.observedHeartbeat == found.lastHeartbeat
    heard = node(
        5, runtime="Agent", healthy=False, conditions=found.conditions, observedHeartbeat=found.observedHeartbeat
    )
    assert not is_lost(heard)
    assert patch(heard, first_look(heard, LONG), NOW)["observedHeartbeat"] is None
    assert first_look(heard, LONG).healthy
    # Nor does it once the node's jobs are Pods.
    assert not is_lost(msgspec.structs.replace(lost, spec=node().spec))


def test_that_it_is_lost_is_not_read_from_what_people_are_told() -> None:
    silent = node(90, runtime="Agent")
    lost = told(silent, first_look(silent, LONG))
    (ready,) = lost.status.conditions
    reworded = msgspec.structs.replace(ready, message="in other words")
    assert is_lost(msgspec.structs.replace(lost, status=msgspec.structs.replace(lost.status, conditions=(reworded,))))
    # Words alone, of which nobody recorded the heartbeat that they are about, do not take a node's jobs away.
    unrecorded = msgspec.structs.replace(lost.status, observedHeartbeat=None)
    assert not is_lost(msgspec.structs.replace(lost, status=unrecorded))


@given(skew=st.floats(-3600, 3600), beats=st.integers(1, 30))
def test_clocks_that_differ_change_nothing_about_one_that_is_heard(skew: float, beats: int) -> None:
    """Every ten seconds a heartbeat, by a clock that is wrong: from the second on, it is healthy and stays so."""
    known = record_heartbeat(node(skew, runtime="Agent"), None, NOW, CLOCK)
    for beat in range(1, beats + 1):
        clock = CLOCK + 10 * beat
        one = node(skew - 10 * beat, runtime="Agent")
        before, known = known, record_heartbeat(one, known, NOW + timedelta(seconds=10 * beat), clock)
        assert known != before
        probe = ControllerProbe(ok=True, at=clock, since=0.0)
        assert assess(one, probe, known, clock).healthy
        assert assess(one, probe, known, clock + SILENCE).healthy
        later = clock + SILENCE + 1
        assert assess(one, ControllerProbe(ok=True, at=later, since=0.0), known, later).reason == "AgentLost"


def test_a_namesake_is_not_the_one_that_was_heard() -> None:
    old = record_heartbeat(node(0), None, NOW, CLOCK)
    new = msgspec.structs.replace(node(90), metadata=MetaView("n", "ns", "u2"))
    assert record_heartbeat(new, old, NOW, CLOCK + 1) == HeartbeatRecord(
        "u2", NOW - timedelta(seconds=90), CLOCK + 1, 90
    )


def test_answers_are_without_a_break_while_none_is_bad_or_missing() -> None:
    probe, clock = NEW.after(None), CLOCK
    for _ in range(3):
        clock += PROBE_INTERVAL
        probe = ControllerProbe(ok=True, at=clock).after(probe)
    assert probe.ok_for(clock + 1) == 3 * PROBE_INTERVAL + 1
    assert ControllerProbe(ok=False, at=clock + 30).after(probe).ok_for(clock + 31) == 0
    assert ControllerProbe(ok=True, at=clock + 30).after(DOWN).ok_for(clock + 31) == 1
    assert ControllerProbe(ok=True, at=clock + 61).after(probe).ok_for(clock + 62) == 1


@pytest.mark.parametrize(
    ("one", "goes"),
    [
        (node(DAY, runtime="Agent", made_by=BY_AGENT), True),
        (node(DAY - 1, runtime="Agent", made_by=BY_AGENT), False),
        (node(DAY, runtime="Agent"), False),  # somebody wrote it
        (node(DAY, runtime="Agent", made_by="me"), False),
        (node(DAY, made_by=BY_AGENT), False),
        (node(None, runtime="Agent", made_by=BY_AGENT), False),
    ],
)
def test_what_an_agent_made_goes_after_a_day_without_it(one: NodeView, goes: bool) -> None:
    assert not should_delete(one, NOW)  # it was not found lost yet
    lost = told(one, first_look(one, LONG))
    assert should_delete(lost, NOW) == goes
    if one.metadata.labels.get(REGISTERED_BY) == BY_AGENT and is_lost(lost) and not goes:
        assert next_check(lost, LONG, record_heartbeat(lost, None, NOW, CLOCK), NOW, CLOCK) == SILENCE


def test_what_is_written_is_what_has_to_change() -> None:
    changes = patch(node(), first_look(node(), NEW), NOW)
    assert changes.keys() == {"healthy", "observedGeneration", "conditions"}
    there = told(node(), first_look(node(), NEW))
    assert patch(there, first_look(there, NEW), NOW + timedelta(hours=1)) == {}


def test_the_time_of_a_condition_is_that_of_its_last_turn() -> None:
    first = patch(node(), first_look(node(), NEW), NOW)
    there = node(healthy=True, observedGeneration=2, conditions=tuple(first["conditions"]))
    moved = msgspec.structs.replace(there, metadata=msgspec.structs.replace(there.metadata, generation=4))
    (same,) = patch(moved, first_look(moved, NEW), NOW + timedelta(hours=1))["conditions"]
    assert (same.lastTransitionTime, same.observedGeneration) == (NOW, 4)
    (turned,) = patch(moved, first_look(moved, DOWN), NOW + timedelta(hours=1))["conditions"]
    assert turned.lastTransitionTime == NOW + timedelta(hours=1)


def test_the_conditions_of_others_stay() -> None:
    other = Condition("Drained", "True", NOW, "Maintenance")
    kept = patch(node(conditions=(other,)), first_look(node(), NEW), NOW)["conditions"]
    assert [one.type for one in kept] == ["Drained", "Ready"]


@given(age=st.floats(-1e6, 1e6) | st.none(), ok=st.booleans(), runtime=st.sampled_from(["Pod", "Agent"]))
def test_nothing_but_its_own_fields_is_ever_written(age: float | None, ok: bool, runtime: str) -> None:
    one = node(age, runtime=runtime)
    changes = patch(one, first_look(one, msgspec.structs.replace(LONG, ok=ok)), NOW)
    assert changes.keys() <= {"healthy", "observedHeartbeat", "observedGeneration", "conditions"}


@given(age=st.floats(-1e6, 1e6), answering=st.floats(0, 200), runtime=st.sampled_from(["Pod", "Agent"]))
def test_a_node_is_looked_at_again_when_its_silence_starts_to_count(age: float, answering: float, runtime: str) -> None:
    """However often that is: it comes to its last verdict, and is not looked at all the time until then."""
    one = node(age, runtime=runtime)
    heard, clock, now, looks = record_heartbeat(one, None, NOW, CLOCK), CLOCK, NOW, 0
    while True:
        probe = ControllerProbe(ok=True, at=clock, since=CLOCK - answering)
        one = told(one, assess(one, probe, heard, clock))
        wait = next_check(one, probe, heard, now, clock)
        if wait is None:
            break
        clock, now, looks = clock + wait, now + timedelta(seconds=wait), looks + 1
        assert looks < 5
    ready = one.status.conditions[0].reason
    assert ready == ("AgentLost" if runtime == "Agent" else "HeartbeatStale")
    assert clock - CLOCK <= 2 * SILENCE + 1
