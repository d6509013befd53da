"""The VmafxNode controller: writes `healthy` and its condition, only when they change; never lastHeartbeat.

It says which agents are lost. To take their jobs away is for the job controller, which reads that in the node's status.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime

from vmafx.api.meta import API_VERSION
from vmafx.api.node import NodeView
from vmafx.kube import NODES, Client, Key
from vmafx.kube.errors import Conflict, NotFound
from vmafx.logs import log
from vmafx.operator.node.decide import Heard, Verdict, hear, heard_last, is_lost, is_to_go, judge, next_look, patch
from vmafx.operator.node.probes import Probes
from vmafx.runtime.controller import Controller, Result
from vmafx.runtime.events import EventRecorder, Regarding
from vmafx.runtime.informer import Informer
from vmafx.runtime.metrics import Metrics
from vmafx.runtime.store import Change
from vmafx.times import loop_time, utc_now

VIEW = NODES.seen_as(NodeView)
BY_NAMESPACE = "namespace"
WRITES_AT_ONCE = 4  # at a start all nodes are written: a connection for each would cost more than the writes


def nodes_informer(client: Client, namespace: str) -> Informer[NodeView]:
    """The cache of nodes, shared by all controllers."""
    indexes = {BY_NAMESPACE: lambda node: (node.metadata.namespace,)}
    return Informer(client, VIEW, namespace=namespace, indexes=indexes)


class NodeReconciler:
    """Looks at a node when it changes, when its namespace's controller comes or goes, when its agent goes quiet."""

    def __init__(
        self,
        client: Client,
        nodes: Informer[NodeView],
        events: EventRecorder,
        *,
        address: str,
        has_jobs: Callable[[Key], bool],
        now: Callable[[], datetime] = utc_now,
        clock: Callable[[], float] = loop_time,
    ) -> None:
        self._client, self._nodes, self._events, self._has_jobs = client, nodes, events, has_jobs
        self._now, self._clock = now, clock
        self._heard: dict[Key, Heard] = {}
        nodes.on_change(self._hear)
        self.probes = Probes(address, self._namespaces, self._look_again, clock)
        self._writing = asyncio.Semaphore(WRITES_AT_ONCE)

    def controller(self, metrics: Metrics, workers: int) -> Controller:
        controller = Controller("vmafxnode", self.reconcile, metrics, workers=workers)
        controller.watches(self._nodes)
        self._queue = controller.queue
        return controller

    def _hear(self, change: Change[NodeView]) -> None:
        """Also by who does not lead: to have listened for long is of use when it does."""
        if change.new is None:
            self._heard.pop(change.key, None)
        else:
            before = self._heard.get(change.key)
            self._heard[change.key] = hear(change.new, before, self._now(), self._clock())

    async def reconcile(self, key: Key) -> Result:
        node, probe, heard = self._nodes.store.get(key), self.probes.latest(key.namespace), self._heard.get(key)
        if node is None or heard is None or probe is None:  # gone; or not probed yet, which queues it again when it is
            return Result.done()
        now, clock = self._now(), self._clock()
        verdict = judge(node, probe, heard, clock)
        if changes := patch(node, verdict, now):
            try:
                async with self._writing:
                    await self._client.patch_status(VIEW, key, changes, version=node.metadata.resourceVersion)
            except (Conflict, NotFound):
                return Result.done()  # somebody was faster; what they wrote, be it a heartbeat, brings us back
            self._tell(node, verdict)
            return Result.done()  # its echo brings us back
        if is_to_go(node, now) and not self._has_jobs(key):
            await self._remove(key, node)
        look = next_look(node, probe, heard, now, clock)
        return Result.done() if look is None else Result.after(look)

    async def _remove(self, key: Key, node: NodeView) -> None:
        """One that its agent made: who wrote a node by hand wants it there when the agent comes back."""
        meta = node.metadata
        with suppress(Conflict, NotFound):  # it was heard, or somebody was faster
            await self._client.delete(VIEW, key, uid=meta.uid, version=meta.resourceVersion)
            log.info("a node is removed, whose agent is gone for good", key=str(key), heard=heard_last(node))

    def _tell(self, node: NodeView, verdict: Verdict) -> None:
        """An event for a node that turned, or is lost. Not when the controller went: that is no one node's affair."""
        turned = node.status.healthy is not None and node.status.healthy != verdict.healthy
        lost = verdict.reason == "AgentLost" and not is_lost(node)
        if (turned or lost) and verdict.reason != "ControllerUnreachable":
            meta = node.metadata
            about = Regarding(API_VERSION, NODES.kind, meta.namespace, meta.name, meta.uid)
            self._events.emit(
                about, "Normal" if verdict.healthy else "Warning", verdict.reason, "Judge", verdict.message
            )

    def _namespaces(self) -> set[str]:
        return {str(namespace) for namespace in self._nodes.store.values_of(BY_NAMESPACE)}

    def _look_again(self, namespace: str) -> None:
        for node in self._nodes.store.by(BY_NAMESPACE, namespace):
            self._queue.add(Key(namespace, node.metadata.name))
