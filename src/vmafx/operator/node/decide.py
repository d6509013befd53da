"""Decides the health of a VmafxNode, and when to check it again. Pure: every case is a unit test without a cluster.

Heartbeat times come from the controller's clock, which may differ from the operator's by more than the time after
which a node is stale. So a heartbeat is dated by when it arrives, on the operator's monotonic clock: a changed value
is a sign of life. Only a heartbeat older than this process is compared with the wall clock.

- If the controller's clock is behind, such a node is stale when the operator starts, and gets no new jobs until its
  next heartbeat is written, at most 30 seconds later. Its running jobs stay, because an agent counts as lost only
  after a minute without a heartbeat.
- If it is ahead, the heartbeat counts as new, and the node is stale a minute later.
- A heartbeat that arrives late, because the watch was interrupted, keeps its node healthy for up to a minute too long.
"""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec

from vmafx.api.meta import Condition
from vmafx.api.node import BY_AGENT, REGISTERED_BY, NodeView
from vmafx.runtime.conditions import Truth, find_condition, with_condition
from vmafx.runtime.status import changed_fields

STALE_AFTER = 60.0  # seconds without a heartbeat
MIN_CONTROLLER_UPTIME = 60.0  # seconds that the controller has answered before an agent counts as lost
PROBE_INTERVAL = 30.0  # seconds between probes of a controller
MIN_AGENTS_FOR_OUTAGE = 5  # with jobs: of fewer, most may well fail at the same time
MISSED_HEARTBEAT = 25.0  # seconds; heartbeats are written every 20 to 30
OUTAGE_LIMIT = 300.0  # seconds without a heartbeat, while the controller answers, for which jobs stay in an outage
OUTAGE_CHECK = 5.0  # seconds between checks whether an outage is over
DELETE_AFTER = timedelta(hours=24)  # without a heartbeat, for nodes registered by an agent
MARGIN = 0.001  # seconds past a limit, so that the next check finds it exceeded


class ControllerProbe(msgspec.Struct, frozen=True):
    """The result of the latest probe of a namespace's controller, in monotonic time."""

    ok: bool
    detail: str = ""
    at: float = 0.0
    since: float = 0.0  # since when every probe succeeded

    def following(self, previous: "ControllerProbe | None") -> "ControllerProbe":
        """This probe, with `since` carried over from the one before."""
        if previous is None or not previous.ok or previous.is_old(self.at):
            return msgspec.structs.replace(self, since=self.at)
        return msgspec.structs.replace(self, since=previous.since)

    def is_old(self, clock: float) -> bool:
        """Whether the next probe is overdue: the process was suspended, and the controller may have been down."""
        return clock - self.at > 2 * PROBE_INTERVAL

    def ok_for(self, clock: float) -> float:
        """Seconds for which the controller has answered without interruption."""
        return clock - self.since if self.ok and not self.is_old(clock) else 0.0


class HeartbeatRecord(msgspec.Struct, frozen=True):
    """A node's heartbeat: when this process first saw it, and how old it was then (0 if it was seen to arrive)."""

    uid: str
    heartbeat: datetime | None
    since: float
    age: float = 0.0

    def silent_for(self, clock: float) -> float:
        return clock - self.since + self.age

    def certain_in(self, clock: float) -> float:
        """Seconds until the silence is certain: observed for STALE_AFTER, or stale when first seen."""
        return 0.0 if self.age > STALE_AFTER else self.since + STALE_AFTER - clock


class NodeHealth(msgspec.Struct, frozen=True):
    """Whether a node is alive and ready for new jobs, and why not."""

    healthy: bool
    reason: Literal["Healthy", "Draining", "ControllerUnreachable", "HeartbeatStale", "OutageSuspected", "AgentLost"]
    message: str
    heartbeat: datetime | None = None  # the last one, if the agent is stale or lost

    @property
    def ready(self) -> bool:
        """A draining agent is alive and keeps its jobs, but takes no new ones."""
        return self.healthy and self.reason != "Draining"


def record_heartbeat(node: NodeView, before: HeartbeatRecord | None, now: datetime, clock: float) -> HeartbeatRecord:
    """The record of a node's current heartbeat, given the previous record."""
    heartbeat, uid = node.status.lastHeartbeat, node.metadata.uid
    if before is not None and before.uid == uid:
        return before if before.heartbeat == heartbeat else HeartbeatRecord(uid, heartbeat, clock)
    age = (now - heartbeat).total_seconds() if heartbeat is not None else 0.0
    return HeartbeatRecord(uid, heartbeat, clock, max(age, 0.0))


def suspects_outage(silences: Collection[float]) -> bool:
    """Whether most agents with jobs fell silent together: then something between them and the controller has failed.

    `silences` are the seconds since the last heartbeat of each. When the first one is stale, the others have missed one
    heartbeat at least. Agents that do not fail miss none, but may be late: then this is true for some seconds.
    """
    silent = sum(silence > MISSED_HEARTBEAT for silence in silences)
    return len(silences) >= MIN_AGENTS_FOR_OUTAGE and 2 * silent > len(silences)


def assess(
    node: NodeView, probe: ControllerProbe, record: HeartbeatRecord, clock: float, *, outage: bool = False
) -> NodeHealth:
    """Healthy means: the controller answers, and the agent, if any, sent a heartbeat within STALE_AFTER.

    In a suspected `outage`, an agent is lost later.
    """
    stale, lost = _stale_health(node), _lost_health(node)
    # A stale or lost node stays so until its next heartbeat, even if the wall clock is set back.
    if lost is not None and _has_reason(node, "AgentLost"):
        return lost
    silent_for, known = record.silent_for(clock), _has_reason(node, "HeartbeatStale", "OutageSuspected")
    if stale is not None and (silent_for > STALE_AFTER or known):
        # The agent is lost only if the controller was up to receive its heartbeats.
        certain = record.certain_in(clock) <= 0 and probe.ok_for(clock) >= MIN_CONTROLLER_UPTIME
        if lost is None or not certain:
            return stale
        # An outage of the controller does not count: its agents need time to find it again.
        waited = min(silent_for, probe.ok_for(clock))
        return _outage_health(node) if outage and waited <= OUTAGE_LIMIT else lost
    if not probe.ok:
        return NodeHealth(False, "ControllerUnreachable", f"the health check of the controller failed: {probe.detail}")
    if node.status.draining:
        return NodeHealth(True, "Draining", _draining_message(node.status.assignedJobs))
    cordoned = "; cordoned: it gets no new jobs (spec.unschedulable is true)" if node.spec.unschedulable else ""
    return NodeHealth(True, "Healthy", f"the controller answers{cordoned}")


def status_changes(node: NodeView, health: NodeHealth, now: datetime) -> dict[str, Any]:
    """The fields of the status that have to change; empty if none."""
    ready: Truth = "True" if health.ready else "False"
    wanted: dict[str, Any] = {
        "healthy": health.healthy,
        "observedHeartbeat": health.heartbeat,
        "observedGeneration": node.metadata.generation,
        "conditions": tuple(with_condition(node, "Ready", ready, health.reason, health.message, now)),
    }
    return changed_fields(node.status, wanted)


def should_delete(node: NodeView, now: datetime) -> bool:
    """Whether an agent registered the node and has been lost for DELETE_AFTER."""
    left = _deletion_in(node, now)
    return left is not None and left <= 0


def next_check(
    node: NodeView,
    probe: ControllerProbe,
    record: HeartbeatRecord,
    now: datetime,
    clock: float,
    *,
    outage: bool = False,
) -> float | None:
    """Seconds until time alone may change the result; None if it cannot."""
    if record.heartbeat is None:
        return None
    if (left := STALE_AFTER - record.silent_for(clock)) >= 0:
        return left + MARGIN
    if node.spec.runtime != "Agent":
        return None
    if not is_lost(node):
        if not probe.ok:
            return None
        lost_in = max(record.certain_in(clock), MIN_CONTROLLER_UPTIME - probe.ok_for(clock), 0.0)
        return max(lost_in, OUTAGE_CHECK if outage else 0.0) + MARGIN
    deletion_in = _deletion_in(node, now)
    return None if deletion_in is None else max(deletion_in, STALE_AFTER)


def is_lost(node: NodeView) -> bool:
    """Whether the node's status says that its agent is lost, and no heartbeat has arrived since."""
    return node.spec.runtime == "Agent" and _has_reason(node, "AgentLost")


def readiness(node: NodeView) -> Condition | None:
    return find_condition(node.status.conditions, "Ready")


def heartbeat_text(node: NodeView) -> str:
    """The time of the last heartbeat, by the controller's clock."""
    heartbeat = node.status.lastHeartbeat
    return "never" if heartbeat is None else heartbeat.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _stale_health(node: NodeView) -> NodeHealth | None:
    heartbeat = node.status.lastHeartbeat
    if heartbeat is None:
        return None
    message = f"no heartbeat since {heartbeat_text(node)}; is the agent running?"
    return NodeHealth(False, "HeartbeatStale", message, heartbeat)


def _lost_health(node: NodeView) -> NodeHealth | None:
    """None for a node that runs Pods: they need no agent."""
    heartbeat = node.status.lastHeartbeat
    if heartbeat is None or node.spec.runtime != "Agent":
        return None
    message = f"no heartbeat since {heartbeat_text(node)}; its jobs move to other nodes"
    return NodeHealth(False, "AgentLost", message, heartbeat)


def _outage_health(node: NodeView) -> NodeHealth:
    message = (
        f"no heartbeat since {heartbeat_text(node)}, and most agents of this namespace are silent; its jobs stay for"
        f" up to {OUTAGE_LIMIT / 60:.0f} minutes: check the way from the agents to the controller's gRPC port"
    )
    return NodeHealth(False, "OutageSuspected", message, node.status.lastHeartbeat)


def _draining_message(jobs: int) -> str:
    """The count lags by some seconds: 0 does not mean that the agent has finished."""
    if not jobs:
        return "the agent is draining: it takes no new jobs"
    return f"the agent is draining: it finishes {jobs} {'job' if jobs == 1 else 'jobs'} and takes no new ones"


def _has_reason(node: NodeView, *reasons: str) -> bool:
    """Whether the Ready condition has one of these reasons, and was written for the latest heartbeat."""
    ready, heartbeat = readiness(node), node.status.lastHeartbeat
    if ready is None or heartbeat is None:
        return False
    return ready.reason in reasons and node.status.observedHeartbeat == heartbeat


def _deletion_in(node: NodeView, now: datetime) -> float | None:
    """Seconds until the node may be deleted, counted from its last heartbeat, so that a restart changes nothing."""
    heartbeat = node.status.lastHeartbeat
    if heartbeat is None or not is_lost(node) or node.metadata.labels.get(REGISTERED_BY) != BY_AGENT:
        return None
    return (DELETE_AFTER - (now - heartbeat)).total_seconds()
