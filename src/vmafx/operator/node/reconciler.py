"""The VmafxNode controller: writes `healthy` and its condition, only when they change; never lastHeartbeat."""

import asyncio
from collections.abc import Callable
from datetime import datetime

from vmafx.api.meta import API_VERSION
from vmafx.api.node import NodeView
from vmafx.kube import NODES, Client, Key
from vmafx.kube.errors import Conflict, NotFound
from vmafx.operator.node.decide import Verdict, judge, patch, until_stale
from vmafx.operator.node.probes import Probes
from vmafx.runtime.controller import Controller, Result
from vmafx.runtime.events import EventRecorder, Regarding
from vmafx.runtime.informer import Informer
from vmafx.runtime.metrics import Metrics
from vmafx.runtime.times import utc_now

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
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._client, self._nodes, self._events, self._now = client, nodes, events, now
        self.probes = Probes(address, self._namespaces, self._look_again)
        self._writing = asyncio.Semaphore(WRITES_AT_ONCE)

    def controller(self, metrics: Metrics, workers: int) -> Controller:
        controller = Controller("vmafxnode", self.reconcile, metrics, workers=workers)
        controller.watches(self._nodes)
        self._queue = controller.queue
        return controller

    async def reconcile(self, key: Key) -> Result:
        node, probe = self._nodes.store.get(key), self.probes.latest(key.namespace)
        if node is None or probe is None:  # gone; or not probed yet, which queues it again when it is
            return Result.done()
        now = self._now()
        verdict = judge(node, probe, now)
        if changes := patch(node, verdict, now):
            try:
                async with self._writing:
                    await self._client.patch_status(VIEW, key, changes, version=node.metadata.resourceVersion)
            except (Conflict, NotFound):
                return Result.done()  # somebody was faster; what they wrote brings us back
            self._tell(node, verdict)
        silent_in = until_stale(node, now)
        return Result.done() if silent_in is None else Result.after(silent_in)

    def _tell(self, node: NodeView, verdict: Verdict) -> None:
        """An event for a node that turned. Not when the controller went: that is no one node's affair."""
        turned = node.status.healthy is not None and node.status.healthy != verdict.healthy
        if turned and verdict.reason != "ControllerUnreachable":
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
