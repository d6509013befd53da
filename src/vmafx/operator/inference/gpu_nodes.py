"""Which Kubernetes nodes have the GPUs that services need.

Nodes are watched only once a service needs a GPU: on a large cluster that is a lot to read for nothing.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from vmafx.api.meta import ApiModel
from vmafx.inference.gpu import GpuDemand, GpuOptions
from vmafx.kube import Client, Resource
from vmafx.kube.core import KUBERNETES_NODES
from vmafx.runtime.conditions import NewCondition
from vmafx.runtime.informer import OptionalInformer
from vmafx.runtime.store import ObjectChange


class NodeMetaView(ApiModel):
    name: str
    namespace: str = ""
    resourceVersion: str = ""
    labels: Any = None


class GpuNodes:
    """The nodes of the cluster, with only the labels and resources that tell about GPUs."""

    def __init__(self, client: Client, options: GpuOptions, changed: Callable[[], None]) -> None:
        self._options, self._wanted = options, asyncio.Event()
        self._nodes: OptionalInformer[Any] = OptionalInformer(client, _view(options))
        self._changed = changed
        self._fits: dict[GpuDemand, bool] = {}  # whether a node fits, by demand; nodes change rarely
        self._nodes.on_change(self._on_change)
        self._nodes.on_available(changed)

    async def run(self) -> None:
        """Watch the nodes as soon as `condition` was asked for the first time."""
        await self._wanted.wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._nodes.run())
            await self._nodes.synced.wait()
            self._changed()

    def _on_change(self, change: ObjectChange[Any]) -> None:
        """Nodes report their health all the time; only what their GPUs make possible matters."""
        if self._fits and _gpus(change.old) != _gpus(change.new):
            before, self._fits = self._fits, {demand: self._any_fits(demand) for demand in self._fits}
            if before != self._fits:
                self._changed()

    def _any_fits(self, demand: GpuDemand) -> bool:
        nodes = (_gpus(node) for node in self._nodes.store.values())
        return any(demand.fits(labels, allocatable, self._options) for labels, allocatable in nodes)

    def condition(self, demand: GpuDemand | None) -> NewCondition | None:
        """The Schedulable condition of a service; None if it needs no GPU, or the nodes are not known yet."""
        if demand is None:
            return None
        self._wanted.set()
        if not self._nodes.synced.is_set():
            return None
        if self._nodes.unavailable is not None:
            message = f"cannot check whether a node has {demand}: the operator is not allowed to list nodes"
            return NewCondition("Schedulable", "Unknown", "NodesForbidden", message)
        if demand not in self._fits:
            self._fits[demand] = self._any_fits(demand)
        if self._fits[demand]:
            return NewCondition("Schedulable", "True", "NodeFound", f"a Kubernetes node has {demand}")
        return NewCondition("Schedulable", "False", "NoMatchingNode", f"no Kubernetes node has {demand}")


def _view(options: GpuOptions) -> Resource[Any]:
    """Nodes decoded into Structs that have a field for each label and resource of interest, and skip all others."""
    keys = [*(label.key for label in options.memory_labels.values()), "kubernetes.io/os"]
    resources = [name for vendor in options.memory_labels if (name := options.resource(vendor))]
    labels, allocatable = _picked("GpuLabels", keys), _picked("GpuResources", resources)
    meta = msgspec.defstruct("GpuNodeMeta", [("labels", labels, labels())], bases=(NodeMetaView,), frozen=True)
    status = msgspec.defstruct("GpuNodeStatus", [("allocatable", allocatable, allocatable())], frozen=True)
    node = msgspec.defstruct("GpuNode", [("metadata", meta), ("status", status, status())], frozen=True)
    return KUBERNETES_NODES.decoded_as(node)


def _picked(name: str, keys: list[str]) -> type[msgspec.Struct]:
    """A Struct with a text field for each key of an object."""
    fields = [(f"field_{number}", str, msgspec.field(default="", name=key)) for number, key in enumerate(keys)]
    return msgspec.defstruct(name, fields, frozen=True, omit_defaults=True)


def _gpus(node: Any) -> tuple[dict[str, str], dict[str, str]]:
    """The labels and resources of a node that tell about GPUs, by name."""
    if node is None:
        return {}, {}
    return msgspec.to_builtins(node.metadata.labels), msgspec.to_builtins(node.status.allocatable)
