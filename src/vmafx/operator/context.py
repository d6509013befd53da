"""What every kind of the operator is set up with."""

from collections.abc import Callable
from datetime import datetime
from functools import cached_property
from typing import Any

import msgspec

from vmafx.api.hardware import INTEL_DEVICE
from vmafx.api.job import JobView
from vmafx.api.node import NodeView
from vmafx.api.training import TrainingView
from vmafx.clock import loop_time, utc_now
from vmafx.jobs.cache import jobs_informer
from vmafx.kube import NODES, TRAININGS, Client, ObjectKey, Resource
from vmafx.runtime.child import Child, child_informer, optional_child_informer
from vmafx.runtime.events import EventRecorder
from vmafx.runtime.informer import Informer, OptionalInformer
from vmafx.runtime.manager import Manager
from vmafx.runtime.metrics import Metrics

FIELD_MANAGER = "vmafx-operator"  # for server-side apply, and for the managed-by label of children
BY_NODE, BY_NAMESPACE = "node", "namespace"  # indexes of the caches


class OperatorContext(msgspec.Struct, kw_only=True, eq=False, dict=True):
    """The shared parts of the process, and caches that several kinds read.

    A cache is created and added to the manager on first use. `now` is wall-clock time, `clock` is monotonic.
    """

    client: Client
    manager: Manager
    metrics: Metrics
    events: EventRecorder
    namespace: str = ""  # the namespace to watch; empty for all
    max_concurrent: int = 1  # concurrent reconciliations per kind
    intel_device: str = INTEL_DEVICE  # the resource that a Pod requests to get an Intel GPU
    now: Callable[[], datetime] = utc_now
    clock: Callable[[], float] = loop_time

    @cached_property
    def jobs(self) -> Informer[JobView]:
        """Unfinished jobs, indexed by their assigned node."""
        jobs = jobs_informer(self.client, self.namespace, {BY_NODE: _assigned_node})
        self.manager.add_informer(jobs, fresh=True)
        return jobs

    @cached_property
    def nodes(self) -> Informer[NodeView]:
        """All nodes, indexed by namespace."""
        indexes = {BY_NAMESPACE: lambda node: (node.metadata.namespace,)}
        nodes = Informer(self.client, NODES.decoded_as(NodeView), namespace=self.namespace, indexes=indexes)
        self.manager.add_informer(nodes, fresh=True)
        return nodes

    @cached_property
    def trainings(self) -> Informer[TrainingView]:
        """All trainings, indexed by namespace."""
        indexes = {BY_NAMESPACE: lambda training: (training.metadata.namespace,)}
        trainings = Informer(self.client, TRAININGS.decoded_as(TrainingView), namespace=self.namespace, indexes=indexes)
        self.manager.add_informer(trainings, fresh=True)
        return trainings

    def children(self, resource: Resource[Any]) -> Informer[Child]:
        """The objects of this resource that the operator created for an owner: one cache, shared by all kinds."""
        kind = (resource.api_version, resource.kind)
        if kind not in self._children:
            self._children[kind] = child_informer(self.client, resource, self.namespace, FIELD_MANAGER)
            self.manager.add_informer(self._children[kind], fresh=True)
        return self._children[kind]

    def optional_children(self, resource: Resource[Any]) -> OptionalInformer[Child]:
        """The same, for a resource that the server may not have. Only one kind of the operator can use it."""
        cache = optional_child_informer(self.client, resource, self.namespace, FIELD_MANAGER)
        self.manager.add_informer(cache)
        return cache

    @cached_property
    def _children(self) -> dict[tuple[str, str], Informer[Child]]:
        return {}


def _assigned_node(job: JobView) -> tuple[ObjectKey, ...]:
    node = job.status.assignedNode
    return (ObjectKey(job.metadata.namespace, node),) if node else ()
