"""The VmafxNode controller: writes `healthy` and its condition, only when they change; never lastHeartbeat."""

from collections.abc import Callable
from datetime import UTC, datetime

from vmafx.api.node import NodeView
from vmafx.kube import NODES, Client, Key
from vmafx.kube.errors import Conflict, NotFound
from vmafx.operator.node.decide import judge, patch, until_stale
from vmafx.operator.node.probes import Probes
from vmafx.runtime.controller import Controller, Result
from vmafx.runtime.informer import Informer
from vmafx.runtime.manager import Manager
from vmafx.runtime.metrics import Metrics
from vmafx.runtime.store import Store

VIEW = NODES.seen_as(NodeView)
BY_NAMESPACE = "namespace"


class NodeReconciler:
    """Looks at a node when it changes, when its namespace's controller comes or goes, when its agent goes quiet."""

    def __init__(self, client: Client, nodes: Store[NodeView], probes: Probes, now: Callable[[], datetime]) -> None:
        self._client, self._nodes, self._probes, self._now = client, nodes, probes, now

    async def reconcile(self, key: Key) -> Result:
        node, probe = self._nodes.get(key), self._probes.latest(key.namespace)
        if node is None or probe is None:  # gone; or not probed yet, which queues it again when it is
            return Result.done()
        now = self._now()
        changes = patch(node, judge(node, probe, now), now)
        if changes:
            try:
                await self._client.patch_status(VIEW, key, changes, version=node.metadata.resourceVersion)
            except (Conflict, NotFound):
                return Result.done()  # somebody was faster; what they wrote brings us back
        silent_in = until_stale(node, now)
        return Result.done() if silent_in is None else Result.after(silent_in)


def nodes_informer(client: Client, namespace: str) -> Informer[NodeView]:
    """The cache of nodes, shared by all controllers."""
    indexes = {BY_NAMESPACE: lambda node: (node.metadata.namespace,)}
    return Informer(client, VIEW, namespace=namespace, indexes=indexes)


def add_node_controller(
    manager: Manager, client: Client, nodes: Informer[NodeView], metrics: Metrics, *, address: str, workers: int
) -> None:
    """Put the controller together and into the manager."""

    def requeue(namespace: str) -> None:
        for node in nodes.store.by(BY_NAMESPACE, namespace):
            controller.queue.add(Key(namespace, node.metadata.name))

    probes = Probes(address, lambda: map(str, nodes.store.values_of(BY_NAMESPACE)), requeue)
    reconciler = NodeReconciler(client, nodes.store, probes, lambda: datetime.now(UTC))
    controller = Controller("vmafxnode", reconciler.reconcile, metrics, workers=workers)
    controller.watches(nodes)
    manager.add_controller(controller)
    manager.while_leading(probes.run)
