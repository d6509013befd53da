"""What a VmafxNode's status should say. Pure: every case is a unit test without a cluster."""

from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec

from vmafx.api.meta import Condition
from vmafx.api.node import NodeView

STALE_AFTER = timedelta(seconds=60)


class Probe(msgspec.Struct, frozen=True):
    """What the namespace's controller answered, when last asked."""

    ok: bool
    detail: str = ""


class Verdict(msgspec.Struct, frozen=True):
    """Whether the node is given jobs, and why not."""

    healthy: bool
    reason: Literal["Healthy", "ControllerUnreachable", "HeartbeatStale"]
    message: str


def judge(node: NodeView, probe: Probe, now: datetime) -> Verdict:
    """Healthy means: the controller answers, and the agent, if there is one, was heard within STALE_AFTER."""
    heartbeat = node.status.lastHeartbeat
    if heartbeat is not None:
        stale = Verdict(False, "HeartbeatStale", f"no heartbeat since {_utc(heartbeat)}; is the agent running?")
        # Once found stale it stays so until another heartbeat comes, even if our clock is set back meanwhile.
        if now - heartbeat > STALE_AFTER or _said_already(node, stale):
            return stale
    if not probe.ok:
        return Verdict(False, "ControllerUnreachable", f"the controller does not answer: {probe.detail}")
    return Verdict(True, "Healthy", "the controller answers")


def _said_already(node: NodeView, verdict: Verdict) -> bool:
    said = ((one.reason, one.message) for one in node.status.conditions if one.type == "Ready")
    return (verdict.reason, verdict.message) in said


def _utc(when: datetime) -> str:
    return when.astimezone(UTC).isoformat().replace("+00:00", "Z")


def patch(node: NodeView, verdict: Verdict, now: datetime) -> dict[str, Any]:
    """The fields of the status that have to change; empty if it says all this already."""
    ready = Condition(
        type="Ready",
        status="True" if verdict.healthy else "False",
        reason=verdict.reason,
        message=verdict.message,
        observedGeneration=node.metadata.generation,
        lastTransitionTime=now,
    )
    wanted: dict[str, Any] = {"healthy": verdict.healthy, "observedGeneration": node.metadata.generation}
    changes = {name: value for name, value in wanted.items() if getattr(node.status, name) != value}
    old = next((one for one in node.status.conditions if one.type == "Ready"), None)
    if old is not None and old.status == ready.status:
        ready = msgspec.structs.replace(ready, lastTransitionTime=old.lastTransitionTime)
    if old != ready:
        changes["conditions"] = [*(one for one in node.status.conditions if one.type != "Ready"), ready]
    return changes


def until_stale(node: NodeView, now: datetime) -> float | None:
    """Seconds until silence of the agent makes the node unhealthy; None where nobody is waited for."""
    heartbeat = node.status.lastHeartbeat
    if heartbeat is None or now - heartbeat > STALE_AFTER:
        return None
    # A heartbeat from the future counts as one from now.
    return (min(heartbeat, now) + STALE_AFTER - now).total_seconds() + 0.001
