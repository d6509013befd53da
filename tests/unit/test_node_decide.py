"""When a node is healthy, and what is written about it."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmafx.api.meta import Condition, MetaView
from vmafx.api.node import NodeStatusView, NodeView, VmafxNodeSpec
from vmafx.operator.node.decide import STALE_AFTER, Probe, judge, patch, until_stale

NOW = datetime(2026, 6, 6, 12, 0, 0, tzinfo=UTC)
OK, DOWN = Probe(ok=True), Probe(ok=False, detail="http://c/healthz: refused")


def node(heartbeat_age: float | None = None, **status: object) -> NodeView:
    heartbeat = None if heartbeat_age is None else NOW - timedelta(seconds=heartbeat_age)
    return NodeView(
        metadata=MetaView(name="n", namespace="ns", resourceVersion="7", generation=3),
        spec=VmafxNodeSpec(gpuVendor="cpu"),
        status=NodeStatusView(lastHeartbeat=heartbeat, **status),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("age", "probe", "healthy", "reason"),
    [
        (None, OK, True, "Healthy"),
        (None, DOWN, False, "ControllerUnreachable"),
        (0, OK, True, "Healthy"),
        (60, OK, True, "Healthy"),
        (61, OK, False, "HeartbeatStale"),
        (61, DOWN, False, "HeartbeatStale"),
        (30, DOWN, False, "ControllerUnreachable"),
        (-3600, OK, True, "Healthy"),
    ],
)
def test_healthy_is_a_controller_that_answers_and_an_agent_that_was_heard(
    age: float | None, probe: Probe, healthy: bool, reason: str
) -> None:
    verdict = judge(node(age), probe, NOW)
    assert (verdict.healthy, verdict.reason) == (healthy, reason)


def test_what_was_found_stale_stays_so_until_another_heartbeat_comes() -> None:
    silent = node(61)
    (ready,) = patch(silent, judge(silent, OK, NOW), NOW)["conditions"]
    told = node(61, healthy=False, conditions=(ready,))
    assert judge(told, OK, NOW - timedelta(hours=1)).reason == "HeartbeatStale"
    heard = node(30, healthy=False, conditions=(ready,))
    assert judge(heard, OK, NOW).healthy


def test_what_is_written_is_what_has_to_change() -> None:
    changes = patch(node(), judge(node(), OK, NOW), NOW)
    assert changes.keys() == {"healthy", "observedGeneration", "conditions"}
    told = node(healthy=True, observedGeneration=3, conditions=tuple(changes["conditions"]))
    assert patch(told, judge(told, OK, NOW), NOW + timedelta(hours=1)) == {}


def test_the_time_of_a_condition_is_that_of_its_last_turn() -> None:
    first = patch(node(), judge(node(), OK, NOW), NOW)
    there = node(healthy=True, observedGeneration=2, conditions=tuple(first["conditions"]))
    moved = msgspec.structs.replace(there, metadata=msgspec.structs.replace(there.metadata, generation=4))
    (same,) = patch(moved, judge(moved, OK, NOW), NOW + timedelta(hours=1))["conditions"]
    assert (same.lastTransitionTime, same.observedGeneration) == (NOW, 4)
    (turned,) = patch(moved, judge(moved, DOWN, NOW), NOW + timedelta(hours=1))["conditions"]
    assert turned.lastTransitionTime == NOW + timedelta(hours=1)


def test_the_conditions_of_others_stay() -> None:
    other = Condition("Drained", "True", NOW, "Maintenance")
    kept = patch(node(conditions=(other,)), judge(node(), OK, NOW), NOW)["conditions"]
    assert [one.type for one in kept] == ["Drained", "Ready"]


@given(age=st.floats(-1e6, 1e6) | st.none(), ok=st.booleans())
def test_nothing_but_its_own_fields_is_ever_written(age: float | None, ok: bool) -> None:
    changes = patch(node(age), judge(node(age), Probe(ok=ok), NOW), NOW)
    assert changes.keys() <= {"healthy", "observedGeneration", "conditions"}


@given(age=st.floats(-1e6, 1e6))
def test_a_node_is_looked_at_again_when_its_silence_starts_to_count(age: float) -> None:
    one = node(age)
    wait = until_stale(one, NOW)
    if wait is None:
        assert not judge(one, OK, NOW).healthy
    else:
        assert 0 < wait <= STALE_AFTER.total_seconds() + 0.01
        later = NOW + timedelta(seconds=wait)
        assert age < 0 or not judge(one, OK, later).healthy
