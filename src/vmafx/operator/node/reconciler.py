"""The VmafxNode reconciler: writes `healthy` and its condition, only when they change; never lastHeartbeat.

It says which agents are lost. To take their jobs away is for the job reconciler, which reads that in the node's status.
"""

import asyncio
from contextlib import suppress

from vmafx.api.meta import API_VERSION
from vmafx.api.node import NodeView
from vmafx.kube import NODES, ObjectKey
from vmafx.kube.errors import Conflict, NotFound
from vmafx.logs import log
from vmafx.operator.context import BY_NAMESPACE, BY_NODE, OperatorContext
from vmafx.operator.node.decide import (
    HeartbeatRecord,
    NodeHealth,
    assess,
    is_lost,
    last_heartbeat,
    next_check,
    patch,
    readiness,
    record_heartbeat,
    should_delete,
)
from vmafx.operator.node.probes import ControllerProber
from vmafx.operator.node.settings import NodeSettings
from vmafx.runtime.events import EventSubject
from vmafx.runtime.reconcile import ReconcileLoop, ReconcileResult
from vmafx.runtime.status import StatusWriter
from vmafx.runtime.store import ObjectChange

MAX_CONCURRENT_WRITES = 4  # at a start all nodes are written: a connection for each would cost more than the writes


class NodeReconciler:
    """Looks at a node when it changes, when its namespace's controller comes or goes, when its agent goes quiet."""

    def __init__(self, context: OperatorContext, settings: NodeSettings) -> None:
        self._client, self._nodes, self._jobs, self._events = (
            context.client, context.nodes, context.jobs, context.events,
        )  # fmt: skip
        self._now, self._clock = context.now, context.clock
        self._heard: dict[ObjectKey, HeartbeatRecord] = {}
        self._status = StatusWriter(context.client, context.nodes)
        self._writing = asyncio.Semaphore(MAX_CONCURRENT_WRITES)
        self.loop = ReconcileLoop("vmafxnode", self.reconcile, context.metrics, workers=context.workers)
        self.probes = ControllerProber(settings.controller_address, self._namespaces, self._look_again, context.clock)
        self._nodes.on_change(self._hear)
        self.loop.watches(self._nodes)

    def _hear(self, change: ObjectChange[NodeView]) -> None:
        """Also by who does not lead: to have listened for long is of use when it does."""
        if change.new is None:
            self._heard.pop(change.key, None)
        else:
            before = self._heard.get(change.key)
            self._heard[change.key] = record_heartbeat(change.new, before, self._now(), self._clock())

    async def reconcile(self, key: ObjectKey) -> ReconcileResult:
        node, probe, heard = self._nodes.store.get(key), self.probes.latest(key.namespace), self._heard.get(key)
        if node is None or heard is None or probe is None:  # gone; or not probed yet, which queues it again when it is
            return ReconcileResult.done()
        if self._status.must_wait(key, node):
            return ReconcileResult.done()
        now, clock = self._now(), self._clock()
        verdict = assess(node, probe, heard, clock)
        if changes := patch(node, verdict, now):
            async with self._writing:
                written = await self._status.write(node, changes)
            if written is not None:
                self._tell(node, verdict)
            return ReconcileResult.done()  # its echo, or what somebody else wrote meanwhile, brings us back
        if should_delete(node, now) and not self._jobs.store.by(BY_NODE, key):
            await self._remove(key, node)
        look = next_check(node, probe, heard, now, clock)
        return ReconcileResult.done() if look is None else ReconcileResult.after(look)

    async def _remove(self, key: ObjectKey, node: NodeView) -> None:
        """One that its agent made: who wrote a node by hand wants it there when the agent comes back."""
        meta = node.metadata
        with suppress(Conflict, NotFound):  # it was heard, or somebody was faster
            await self._client.delete(self._nodes.resource, key, uid=meta.uid, version=meta.resourceVersion)
            log.info("a node is removed, whose agent is gone for good", key=str(key), heard=last_heartbeat(node))

    def _tell(self, node: NodeView, verdict: NodeHealth) -> None:
        """One log line and one event when a node changes. A controller that went is logged by its probe."""
        before = readiness(node)
        was = node.status.healthy, before is not None and before.reason == "Draining"
        turned = node.status.healthy is not None and was != (verdict.healthy, verdict.reason == "Draining")
        lost = verdict.reason == "AgentLost" and not is_lost(node)
        if (turned or lost) and verdict.reason != "ControllerUnreachable":
            meta = node.metadata
            say = log.warn if lost else log.info
            alive = "node draining" if verdict.reason == "Draining" else "node healthy"
            text = alive if verdict.healthy else "agent lost" if lost else "node unhealthy"
            heartbeat = {"heartbeat": last_heartbeat(node)} if node.status.lastHeartbeat is not None else {}
            say(text, node=str(ObjectKey(meta.namespace, meta.name)), reason=verdict.reason, **heartbeat)
            about = EventSubject(API_VERSION, NODES.kind, meta.namespace, meta.name, meta.uid)
            self._events.emit(
                about, "Normal" if verdict.healthy else "Warning", verdict.reason, "Judge", verdict.message
            )

    def _namespaces(self) -> set[str]:
        return {str(namespace) for namespace in self._nodes.store.values_of(BY_NAMESPACE)}

    def _look_again(self, namespace: str) -> None:
        for node in self._nodes.store.by(BY_NAMESPACE, namespace):
            self.loop.queue.add(ObjectKey(namespace, node.metadata.name))
