"""What a VmafxNode's status should say. Pure: every case is a unit test without a cluster.

Two clocks are asked. Heartbeats are times of the controller's clock, which may differ from ours by more than a node may
be silent. So a heartbeat that we saw come is as old as the time since then on our own clock that only goes forward,
whatever it says: a value that changes is a sign of life. Only of one that was there before us we know no better than to
compare it with our time of day. By a controller's clock that is behind, such a node is taken for silent when the
operator starts, and gets no job until its next heartbeat, ten seconds later; what runs on it stays, since that takes a
minute without one. By a clock that is ahead it is heard now, and silent a minute after. A heartbeat of which we hear
late, since our watch was broken, keeps its node for up to a minute longer than it should.
"""

from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec

from vmafx.api.meta import Condition
from vmafx.api.node import BY_AGENT, REGISTERED_BY, NodeView
from vmafx.runtime.conditions import Truth, find_condition, with_condition
from vmafx.runtime.status import changed_fields

STALE_AFTER = timedelta(seconds=60)
SILENCE = STALE_AFTER.total_seconds()
ANSWERING = 60.0  # seconds that the controller has answered before silence is the agent's
PROBE_INTERVAL = 30.0
DELETE_AFTER = timedelta(hours=24)
SOON = 0.001  # beyond the moment at which something is over


class ControllerProbe(msgspec.Struct, frozen=True):
    """What the namespace's controller answered, when last asked: at `at`, and well without a break since `since`."""

    ok: bool
    detail: str = ""
    at: float = 0.0
    since: float = 0.0

    def after(self, before: "ControllerProbe | None") -> "ControllerProbe":
        """The same, as what followed on that answer."""
        if before is None or not before.ok or before.is_old(self.at):
            return msgspec.structs.replace(self, since=self.at)
        return msgspec.structs.replace(self, since=before.since)

    def is_old(self, clock: float) -> bool:
        """Another should have come since. While this process stood still, anything may have happened."""
        return clock - self.at > 2 * PROBE_INTERVAL

    def ok_for(self, clock: float) -> float:
        return clock - self.since if self.ok and not self.is_old(clock) else 0.0


class HeartbeatRecord(msgspec.Struct, frozen=True):
    """Since when this process knows a node's heartbeat, and how old it was by then: not at all if we saw it come."""

    uid: str
    heartbeat: datetime | None
    since: float
    age: float = 0.0

    def silent_for(self, clock: float) -> float:
        return clock - self.since + self.age

    def is_certain(self, clock: float) -> bool:
        """Whether it did not change for long enough on our own clock, or was stale when first read."""
        return self.certain_in(clock) <= 0

    def certain_in(self, clock: float) -> float:
        return 0.0 if self.age > SILENCE else self.since + SILENCE - clock


class NodeHealth(msgspec.Struct, frozen=True):
    """Whether the node is alive, whether it is ready for new jobs, and why not."""

    healthy: bool
    reason: Literal["Healthy", "Draining", "ControllerUnreachable", "HeartbeatStale", "AgentLost"]
    message: str
    heartbeat: datetime | None = None  # the one for which its agent was found silent

    @property
    def ready(self) -> bool:
        """A draining agent is alive: its jobs stay with it, but it takes no new ones."""
        return self.healthy and self.reason != "Draining"


def record_heartbeat(node: NodeView, before: HeartbeatRecord | None, now: datetime, clock: float) -> HeartbeatRecord:
    """A node as it is now; `before`: what was known of it."""
    heartbeat, uid = node.status.lastHeartbeat, node.metadata.uid
    if before is not None and before.uid == uid:
        return before if before.heartbeat == heartbeat else HeartbeatRecord(uid, heartbeat, clock)
    age = (now - heartbeat).total_seconds() if heartbeat is not None else 0.0
    return HeartbeatRecord(uid, heartbeat, clock, max(age, 0.0))


def assess(node: NodeView, probe: ControllerProbe, heard: HeartbeatRecord, clock: float) -> NodeHealth:
    """Healthy means: the controller answers, and the agent, if there is one, was heard within STALE_AFTER."""
    stale, lost = _stale(node), _lost(node)
    # Once found silent it stays so until another heartbeat comes, even if our clock is set back meanwhile.
    if lost is not None and _was_found(node, "AgentLost"):
        return lost
    if stale is not None and (heard.silent_for(clock) > SILENCE or _was_found(node, "HeartbeatStale")):
        # It is the agent's silence only if the controller was there to hear it.
        certain = heard.is_certain(clock) and probe.ok_for(clock) >= ANSWERING
        return lost if lost is not None and certain else stale
    if not probe.ok:
        return NodeHealth(False, "ControllerUnreachable", f"the controller does not answer: {probe.detail}")
    if node.status.draining:
        return NodeHealth(True, "Draining", _draining(node.status.assignedJobs))
    cordoned = "; cordoned: it gets no new jobs (spec.unschedulable is true)" if node.spec.unschedulable else ""
    return NodeHealth(True, "Healthy", f"the controller answers{cordoned}")


def is_lost(node: NodeView) -> bool:
    """Whether its status says that its jobs are to go elsewhere, and no heartbeat has come since."""
    return node.spec.runtime == "Agent" and _was_found(node, "AgentLost")


def last_heartbeat(node: NodeView) -> str:
    """When, by the controller's clock."""
    heartbeat = node.status.lastHeartbeat
    return "ever" if heartbeat is None else heartbeat.astimezone(UTC).isoformat().replace("+00:00", "Z")


def should_delete(node: NodeView, now: datetime) -> bool:
    """Whether it is one that an agent made, which nobody has heard for a day."""
    left = _goes_in(node, now)
    return left is not None and left <= 0


def next_check(
    node: NodeView, probe: ControllerProbe, heard: HeartbeatRecord, now: datetime, clock: float
) -> float | None:
    """Seconds until it is to be judged again if nothing happens before; None: not until something does."""
    if heard.heartbeat is None:
        return None
    if (left := SILENCE - heard.silent_for(clock)) >= 0:
        return left + SOON
    if node.spec.runtime != "Agent":
        return None
    if not is_lost(node):
        return max(heard.certain_in(clock), ANSWERING - probe.ok_for(clock), 0.0) + SOON if probe.ok else None
    left_to_go = _goes_in(node, now)
    return None if left_to_go is None else max(left_to_go, SILENCE)


def patch(node: NodeView, verdict: NodeHealth, now: datetime) -> dict[str, Any]:
    """The fields of the status that have to change; empty if it says all this already."""
    ready: Truth = "True" if verdict.ready else "False"
    wanted: dict[str, Any] = {
        "healthy": verdict.healthy,
        "observedHeartbeat": verdict.heartbeat,
        "observedGeneration": node.metadata.generation,
        "conditions": tuple(with_condition(node, "Ready", ready, verdict.reason, verdict.message, now)),
    }
    return changed_fields(node.status, wanted)


def readiness(node: NodeView) -> Condition | None:
    return find_condition(node.status.conditions, "Ready")


def _draining(jobs: int) -> str:
    """The count is some seconds old: 0 does not mean that the agent has finished."""
    if not jobs:
        return "the agent is draining: it takes no new jobs"
    return f"the agent is draining: it finishes {jobs} {'job' if jobs == 1 else 'jobs'} and takes no new ones"


def _stale(node: NodeView) -> NodeHealth | None:
    heartbeat = node.status.lastHeartbeat
    if heartbeat is None:
        return None
    return NodeHealth(
        False, "HeartbeatStale", f"no heartbeat since {last_heartbeat(node)}; is the agent running?", heartbeat
    )


def _lost(node: NodeView) -> NodeHealth | None:
    """Pods need no agent."""
    heartbeat = node.status.lastHeartbeat
    if heartbeat is None or node.spec.runtime != "Agent":
        return None
    return NodeHealth(
        False, "AgentLost", f"no heartbeat since {last_heartbeat(node)}; its jobs go elsewhere", heartbeat
    )


def _was_found(node: NodeView, reason: str) -> bool:
    """Whether its status says so of the very heartbeat that is its last: a later one is a sign of life."""
    said, heartbeat = readiness(node), node.status.lastHeartbeat
    if said is None or heartbeat is None:
        return False
    return said.reason == reason and node.status.observedHeartbeat == heartbeat


def _goes_in(node: NodeView, now: datetime) -> float | None:
    """Counted from its last heartbeat, so that a restart of ours does not begin anew."""
    heartbeat = node.status.lastHeartbeat
    if heartbeat is None or not is_lost(node) or node.metadata.labels.get(REGISTERED_BY) != BY_AGENT:
        return None
    return (DELETE_AFTER - (now - heartbeat)).total_seconds()
