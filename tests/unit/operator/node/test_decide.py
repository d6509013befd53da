"""The health of a node, its status patch, its deletion and its next check."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmafx.api.meta import Condition, MetaView
from vmafx.api.node import BY_AGENT, REGISTERED_BY, NodeStatusView, NodeView, VmafxNodeSpec
from vmafx.operator.node.decide import (
    MIN_AGENTS_FOR_OUTAGE,
    MIN_CONTROLLER_UPTIME,
    MISSED_HEARTBEAT,
    OUTAGE_LIMIT,
    PROBE_INTERVAL,
    STALE_AFTER,
    ControllerProbe,
    HeartbeatRecord,
    NodeHealth,
    assess,
    is_lost,
    next_check,
    record_heartbeat,
    should_delete,
    status_changes,
    suspects_outage,
)

NOW = datetime(2026, 6, 6, 12, 0, 0, tzinfo=UTC)
CLOCK = 5000.0
UP = ControllerProbe(ok=True, at=CLOCK, since=CLOCK)
UP_LONG = ControllerProbe(ok=True, at=CLOCK, since=CLOCK - MIN_CONTROLLER_UPTIME)
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


def assess_new(one: NodeView, probe: ControllerProbe, now: datetime = NOW) -> NodeHealth:
    """The health of a node that this process has not seen before."""
    return assess(one, probe, record_heartbeat(one, None, now, CLOCK), CLOCK)


def written(one: NodeView, health: NodeHealth) -> NodeView:
    """The node with this health in its status."""
    changes = status_changes(one, health, NOW)
    changes |= {"conditions": tuple(changes["conditions"])} if "conditions" in changes else {}
    return msgspec.structs.replace(one, status=msgspec.structs.replace(one.status, **changes))


@pytest.mark.parametrize(
    ("age", "probe", "healthy", "reason"),
    [
        (None, UP, True, "Healthy"),
        (None, DOWN, False, "ControllerUnreachable"),
        (0, UP, True, "Healthy"),
        (60, UP, True, "Healthy"),
        (61, UP, False, "HeartbeatStale"),
        (61, DOWN, False, "HeartbeatStale"),
        (61, UP_LONG, False, "HeartbeatStale"),  # Pods need no agent
        (30, DOWN, False, "ControllerUnreachable"),
        (-3600, UP, True, "Healthy"),
    ],
)
def test_a_node_is_healthy_if_its_controller_answers_and_its_agent_sends_heartbeats(
    age: float | None, probe: ControllerProbe, healthy: bool, reason: str
) -> None:
    health = assess_new(node(age), probe)
    assert (health.healthy, health.reason) == (healthy, reason)


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
    status = written(one, assess_new(one, UP_LONG)).status
    (ready,) = status.conditions
    assert (status.healthy, ready.status, ready.reason, ready.message) == (True, "False", "Draining", message)


def test_a_draining_agent_becomes_stale_and_lost_like_any_other() -> None:
    one = node(61, runtime="Agent", draining=True)
    assert (assess_new(one, UP).reason, assess_new(one, UP_LONG).reason) == ("HeartbeatStale", "AgentLost")
    assert assess_new(node(5, runtime="Agent", draining=True), DOWN).reason == "ControllerUnreachable"


def test_a_cordoned_node_is_ready_and_says_that_it_is_cordoned() -> None:
    one = node(5)
    one = msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, unschedulable=True))
    (ready,) = written(one, assess_new(one, UP)).status.conditions
    assert (ready.status, ready.reason) == ("True", "Healthy")
    assert ready.message == "the controller answers; cordoned: it gets no new jobs (spec.unschedulable is true)"


def test_a_stale_node_stays_stale_until_its_next_heartbeat() -> None:
    stale = written(node(61), assess_new(node(61), UP))
    assert assess_new(stale, UP, NOW - timedelta(hours=1)).reason == "HeartbeatStale"
    status = stale.status
    revived = node(30, healthy=False, conditions=status.conditions, observedHeartbeat=status.observedHeartbeat)
    assert assess_new(revived, UP).healthy


@pytest.mark.parametrize(
    ("probe", "record", "reason"),
    [
        (UP_LONG, HeartbeatRecord("u1", NOW, CLOCK - STALE_AFTER - 1), "AgentLost"),  # seen to arrive, none since
        (UP_LONG, HeartbeatRecord("u1", NOW, CLOCK - STALE_AFTER), "Healthy"),
        (UP_LONG, HeartbeatRecord("u1", NOW, CLOCK - 1, age=61), "AgentLost"),  # stale when first read
        (
            UP_LONG,
            HeartbeatRecord("u1", NOW, CLOCK - 30, age=31),
            "HeartbeatStale",
        ),  # neither stale when first seen, nor a minute since
        (UP_LONG, HeartbeatRecord("u1", NOW, CLOCK - STALE_AFTER, age=31), "AgentLost"),
        (
            UP,
            HeartbeatRecord("u1", NOW, CLOCK - 9000),
            "HeartbeatStale",
        ),  # the controller may have been down
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
        ),  # the next probe is overdue
    ],
)
def test_an_agent_is_lost_once_its_silence_is_certain(
    probe: ControllerProbe, record: HeartbeatRecord, reason: str
) -> None:
    assert assess(node(0, runtime="Agent"), probe, record, CLOCK).reason == reason


@pytest.mark.parametrize(
    ("silent", "agents", "expected"),
    [(5, 5, True), (3, 5, True), (2, 5, False), (4, 4, False), (500, 1000, False), (501, 1000, True), (0, 9, False)],
)
def test_an_outage_is_suspected_if_most_of_many_agents_are_silent(silent: int, agents: int, expected: bool) -> None:
    silences = [MISSED_HEARTBEAT + 1] * silent + [MISSED_HEARTBEAT] * (agents - silent)
    assert suspects_outage(silences) == expected


@given(st.lists(st.floats(0, 30), min_size=MIN_AGENTS_FOR_OUTAGE))
def test_an_outage_is_suspected_before_its_first_agent_is_lost(last: list[float]) -> None:
    """`last`: how long before the outage each agent's last heartbeat was written, 30 s at most."""
    first_stale = STALE_AFTER - max(last)  # seconds into the outage
    assert suspects_outage([first_stale + one for one in last])


def test_in_an_outage_an_agent_is_lost_after_five_minutes() -> None:
    one, up = node(0, runtime="Agent"), ControllerProbe(ok=True, at=CLOCK, since=0.0)
    for silence, reason in (
        (61, "OutageSuspected"),
        (OUTAGE_LIMIT, "OutageSuspected"),
        (OUTAGE_LIMIT + 1, "AgentLost"),
    ):
        record = HeartbeatRecord("u1", NOW, CLOCK - silence)
        health = assess(one, up, record, CLOCK, outage=True)
        assert (health.healthy, health.reason) == (False, reason)
        after = written(one, health)
        assert is_lost(after) == (reason == "AgentLost")
        if reason == "OutageSuspected":
            assert assess(after, up, record, CLOCK).reason == "AgentLost"  # the outage is over, and it is still silent
            check_in = next_check(after, up, record, NOW, CLOCK, outage=True)
            assert check_in is not None
            assert 0 < check_in < 10
            # The clock was set back, or a new process does not know how long it was silent.
            assert assess(after, UP, HeartbeatRecord("u1", NOW, CLOCK), CLOCK).reason == "HeartbeatStale"


def test_a_lost_agent_stays_lost_until_its_next_heartbeat() -> None:
    silent = node(90, runtime="Agent")
    lost = written(silent, assess_new(silent, UP_LONG))
    assert (lost.status.healthy, is_lost(lost)) == (False, True)
    for probe in (UP, UP_LONG, DOWN):
        for now in (NOW, NOW - timedelta(hours=1)):  # another process, or the clock set back
            assert status_changes(lost, assess_new(lost, probe, now), now) == {}
    # A heartbeat that arrived while no operator ran: the condition is about an earlier one.
    status = lost.status
    assert status.observedHeartbeat == status.lastHeartbeat
    revived = node(
        5, runtime="Agent", healthy=False, conditions=status.conditions, observedHeartbeat=status.observedHeartbeat
    )
    assert not is_lost(revived)
    assert status_changes(revived, assess_new(revived, UP_LONG), NOW)["observedHeartbeat"] is None
    assert assess_new(revived, UP_LONG).healthy
    # A node that runs Pods has no agent to lose.
    assert not is_lost(msgspec.structs.replace(lost, spec=node().spec))


def test_a_lost_agent_is_recognized_by_reason_and_heartbeat_not_by_message() -> None:
    silent = node(90, runtime="Agent")
    lost = written(silent, assess_new(silent, UP_LONG))
    (ready,) = lost.status.conditions
    reworded = msgspec.structs.replace(ready, message="in other words")
    assert is_lost(msgspec.structs.replace(lost, status=msgspec.structs.replace(lost.status, conditions=(reworded,))))
    # The reason alone, without the heartbeat it is about, does not make an agent lost.
    unrecorded = msgspec.structs.replace(lost.status, observedHeartbeat=None)
    assert not is_lost(msgspec.structs.replace(lost, status=unrecorded))


@given(skew=st.floats(-3600, 3600), beats=st.integers(1, 30))
def test_clock_skew_does_not_affect_an_agent_that_sends_heartbeats(skew: float, beats: int) -> None:
    """A heartbeat every ten seconds, by a wrong clock: healthy from the second on."""
    known = record_heartbeat(node(skew, runtime="Agent"), None, NOW, CLOCK)
    for beat in range(1, beats + 1):
        clock = CLOCK + 10 * beat
        one = node(skew - 10 * beat, runtime="Agent")
        before, known = known, record_heartbeat(one, known, NOW + timedelta(seconds=10 * beat), clock)
        assert known != before
        probe = ControllerProbe(ok=True, at=clock, since=0.0)
        assert assess(one, probe, known, clock).healthy
        assert assess(one, probe, known, clock + STALE_AFTER).healthy
        later = clock + STALE_AFTER + 1
        assert assess(one, ControllerProbe(ok=True, at=later, since=0.0), known, later).reason == "AgentLost"


def test_a_recreated_node_starts_a_new_record() -> None:
    old = record_heartbeat(node(0), None, NOW, CLOCK)
    new = msgspec.structs.replace(node(90), metadata=MetaView("n", "ns", "u2"))
    assert record_heartbeat(new, old, NOW, CLOCK + 1) == HeartbeatRecord(
        "u2", NOW - timedelta(seconds=90), CLOCK + 1, 90
    )


def test_the_uptime_of_a_controller_restarts_after_a_failed_or_missing_probe() -> None:
    probe, clock = UP.following(None), CLOCK
    for _ in range(3):
        clock += PROBE_INTERVAL
        probe = ControllerProbe(ok=True, at=clock).following(probe)
    assert probe.ok_for(clock + 1) == 3 * PROBE_INTERVAL + 1
    assert ControllerProbe(ok=False, at=clock + 30).following(probe).ok_for(clock + 31) == 0
    assert ControllerProbe(ok=True, at=clock + 30).following(DOWN).ok_for(clock + 31) == 1
    assert ControllerProbe(ok=True, at=clock + 61).following(probe).ok_for(clock + 62) == 1


@pytest.mark.parametrize(
    ("one", "deleted"),
    [
        (node(DAY, runtime="Agent", made_by=BY_AGENT), True),
        (node(DAY - 1, runtime="Agent", made_by=BY_AGENT), False),
        (node(DAY, runtime="Agent"), False),  # created by a user
        (node(DAY, runtime="Agent", made_by="me"), False),
        (node(DAY, made_by=BY_AGENT), False),
        (node(None, runtime="Agent", made_by=BY_AGENT), False),
    ],
)
def test_a_node_registered_by_an_agent_is_deleted_after_a_day_without_heartbeat(one: NodeView, deleted: bool) -> None:
    assert not should_delete(one, NOW)  # not lost yet
    lost = written(one, assess_new(one, UP_LONG))
    assert should_delete(lost, NOW) == deleted
    if one.metadata.labels.get(REGISTERED_BY) == BY_AGENT and is_lost(lost) and not deleted:
        assert next_check(lost, UP_LONG, record_heartbeat(lost, None, NOW, CLOCK), NOW, CLOCK) == STALE_AFTER


def test_only_changed_fields_are_written() -> None:
    changes = status_changes(node(), assess_new(node(), UP), NOW)
    assert changes.keys() == {"healthy", "observedGeneration", "conditions"}
    there = written(node(), assess_new(node(), UP))
    assert status_changes(there, assess_new(there, UP), NOW + timedelta(hours=1)) == {}


def test_the_transition_time_changes_with_the_status_of_the_condition() -> None:
    first = status_changes(node(), assess_new(node(), UP), NOW)
    there = node(healthy=True, observedGeneration=2, conditions=tuple(first["conditions"]))
    moved = msgspec.structs.replace(there, metadata=msgspec.structs.replace(there.metadata, generation=4))
    (same,) = status_changes(moved, assess_new(moved, UP), NOW + timedelta(hours=1))["conditions"]
    assert (same.lastTransitionTime, same.observedGeneration) == (NOW, 4)
    (turned,) = status_changes(moved, assess_new(moved, DOWN), NOW + timedelta(hours=1))["conditions"]
    assert turned.lastTransitionTime == NOW + timedelta(hours=1)


def test_other_conditions_are_kept() -> None:
    other = Condition("Drained", "True", NOW, "Maintenance")
    kept = status_changes(node(conditions=(other,)), assess_new(node(), UP), NOW)["conditions"]
    assert [one.type for one in kept] == ["Drained", "Ready"]


@given(age=st.floats(-1e6, 1e6) | st.none(), ok=st.booleans(), runtime=st.sampled_from(["Pod", "Agent"]))
def test_only_the_fields_of_the_reconciler_are_written(age: float | None, ok: bool, runtime: str) -> None:
    one = node(age, runtime=runtime)
    changes = status_changes(one, assess_new(one, msgspec.structs.replace(UP_LONG, ok=ok)), NOW)
    assert changes.keys() <= {"healthy", "observedHeartbeat", "observedGeneration", "conditions"}


@given(age=st.floats(-1e6, 1e6), uptime=st.floats(0, 200), runtime=st.sampled_from(["Pod", "Agent"]))
def test_a_silent_node_reaches_its_final_state_in_few_checks(age: float, uptime: float, runtime: str) -> None:
    one = node(age, runtime=runtime)
    record, clock, now, checks = record_heartbeat(one, None, NOW, CLOCK), CLOCK, NOW, 0
    while True:
        probe = ControllerProbe(ok=True, at=clock, since=CLOCK - uptime)
        one = written(one, assess(one, probe, record, clock))
        wait = next_check(one, probe, record, now, clock)
        if wait is None:
            break
        clock, now, checks = clock + wait, now + timedelta(seconds=wait), checks + 1
        assert checks < 5
    ready = one.status.conditions[0].reason
    assert ready == ("AgentLost" if runtime == "Agent" else "HeartbeatStale")
    assert clock - CLOCK <= 2 * STALE_AFTER + 1
