"""The VmafxNode reconciler: writes a node's health when it changes, and deletes nodes whose agent is lost for good.

It never writes lastHeartbeat, which is the controller's. It marks agents as lost; the job reconciler moves their jobs.
"""

import asyncio
from contextlib import suppress

from vmafx.api.meta import API_VERSION
from vmafx.api.node import NodeView
from vmafx.kube import NODES, ObjectKey, key_of
from vmafx.kube.errors import Conflict, NotFound
from vmafx.logs import log
from vmafx.operator.context import BY_NAMESPACE, BY_NODE, OperatorContext
from vmafx.operator.node.decide import (
    STALE_AFTER,
    HeartbeatRecord,
    NodeHealth,
    assess,
    heartbeat_text,
    is_lost,
    next_check,
    readiness,
    record_heartbeat,
    should_delete,
    status_changes,
    suspects_outage,
)
from vmafx.operator.node.probes import ControllerProber
from vmafx.operator.node.settings import NodeSettings
from vmafx.runtime.events import EventSubject
from vmafx.runtime.reconcile import ReconcileLoop, ReconcileResult
from vmafx.runtime.status import StatusWriter
from vmafx.runtime.store import ObjectChange

SILENCES_TTL = 1.0  # seconds; when thousands of agents fall silent, they are not counted for each of them
MAX_CONCURRENT_WRITES = 4  # all nodes are written at a start: a connection for each would cost more than the writes


class NodeReconciler:
    """Reconciles a node when it changes, when its controller starts or stops answering, and when a check is due."""

    def __init__(self, context: OperatorContext, settings: NodeSettings) -> None:
        self._client, self._nodes, self._jobs, self._events = (
            context.client, context.nodes, context.jobs, context.events,
        )  # fmt: skip
        self._now, self._clock = context.now, context.clock
        self._heartbeats: dict[ObjectKey, HeartbeatRecord] = {}
        self._known_silences: dict[str, tuple[float, list[float]]] = {}  # by namespace, and when they were computed
        self._status = StatusWriter(context.client, context.nodes)
        self._write_slots = asyncio.Semaphore(MAX_CONCURRENT_WRITES)
        self.loop = ReconcileLoop("vmafxnode", self.reconcile, context.metrics, max_concurrent=context.max_concurrent)
        self.prober = ControllerProber(
            settings.controller_address, self._namespaces, self._requeue_namespace, context.clock
        )
        self._nodes.on_change(self._record_heartbeat)
        self.loop.watches(self._nodes)

    async def reconcile(self, key: ObjectKey) -> ReconcileResult:
        node, probe, record = self._nodes.store.get(key), self.prober.latest(key.namespace), self._heartbeats.get(key)
        if node is None or record is None or probe is None:  # deleted; or the first probe will queue it again
            return ReconcileResult.done()
        if self._status.must_wait(key, node):
            return ReconcileResult.done()
        now, clock = self._now(), self._clock()
        outage = record.silent_for(clock) > STALE_AFTER and suspects_outage(self._silences(key.namespace, clock))
        health = assess(node, probe, record, clock, outage=outage)
        if changes := status_changes(node, health, now):
            async with self._write_slots:
                written = await self._status.write(node, changes)
            if written is not None:
                self._report_change(node, health)
            return ReconcileResult.done()  # the watch queues it again, for this write or a conflicting one
        if should_delete(node, now) and not self._jobs.store.by(BY_NODE, key):
            await self._delete(key, node)
        check_in = next_check(node, probe, record, now, clock, outage=outage)
        return ReconcileResult.done() if check_in is None else ReconcileResult.after(check_in)

    def _silences(self, namespace: str, clock: float) -> list[float]:
        """Seconds since the last heartbeat of each agent that has jobs and is not lost."""
        if (known := self._known_silences.get(namespace)) is not None and clock - known[0] < SILENCES_TTL:
            return known[1]
        self._known_silences = {one: known for one, known in self._known_silences.items() if one in self._namespaces()}
        silences = []
        for node in self._nodes.store.by(BY_NAMESPACE, namespace):
            key = ObjectKey(namespace, node.metadata.name)
            record = self._heartbeats.get(key)
            is_agent = record is not None and record.heartbeat is not None and node.spec.runtime == "Agent"
            if record is not None and is_agent and not is_lost(node) and self._jobs.store.by(BY_NODE, key):
                silences.append(record.silent_for(clock))
        self._known_silences[namespace] = clock, silences
        return silences

    async def _delete(self, key: ObjectKey, node: NodeView) -> None:
        meta = node.metadata
        with suppress(Conflict, NotFound):  # a heartbeat arrived, or it was deleted already
            await self._client.delete(self._nodes.resource, key, uid=meta.uid, version=meta.resourceVersion)
            log.info("deleted node of lost agent", node=str(key), heartbeat=heartbeat_text(node))

    def _report_change(self, node: NodeView, health: NodeHealth) -> None:
        """Log and emit an event when a node's health changes. The prober reports an unreachable controller."""
        ready = readiness(node)
        before = node.status.healthy, ready is not None and ready.reason == "Draining"
        changed = node.status.healthy is not None and before != (health.healthy, health.reason == "Draining")
        lost = health.reason == "AgentLost" and not is_lost(node)
        if not (changed or lost) or health.reason == "ControllerUnreachable":
            return
        meta = node.metadata
        if health.healthy:
            text = "node draining" if health.reason == "Draining" else "node healthy"
        else:
            text = "agent lost" if lost else "node unhealthy"
        write = log.warn if lost else log.info
        heartbeat = {"heartbeat": heartbeat_text(node)} if node.status.lastHeartbeat is not None else {}
        write(text, node=str(key_of(node)), reason=health.reason, **heartbeat)
        subject = EventSubject(API_VERSION, NODES.kind, meta.namespace, meta.name, meta.uid)
        self._events.emit(
            subject, "Normal" if health.healthy else "Warning", health.reason, "CheckHealth", health.message
        )

    def _record_heartbeat(self, change: ObjectChange[NodeView]) -> None:
        """Also on replicas that do not lead: a new leader then knows how long each agent has been silent."""
        if change.new is None:
            self._heartbeats.pop(change.key, None)
        else:
            before = self._heartbeats.get(change.key)
            self._heartbeats[change.key] = record_heartbeat(change.new, before, self._now(), self._clock())

    def _namespaces(self) -> set[str]:
        return {str(namespace) for namespace in self._nodes.store.values_of(BY_NAMESPACE)}

    def _requeue_namespace(self, namespace: str) -> None:
        for node in self._nodes.store.by(BY_NAMESPACE, namespace):
            self.loop.queue.add(ObjectKey(namespace, node.metadata.name))
