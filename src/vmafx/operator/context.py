"""What every kind of the operator is set up with."""

from collections.abc import Callable
from datetime import datetime
from functools import cached_property
from typing import Any

import msgspec

from vmafx.api.job import JobView
from vmafx.api.node import NodeView
from vmafx.clock import loop_time, utc_now
from vmafx.jobs.cache import jobs_informer
from vmafx.kube import NODES, Client, ObjectKey, Resource
from vmafx.runtime.children import Child, child_informer
from vmafx.runtime.events import EventRecorder
from vmafx.runtime.informer import Informer
from vmafx.runtime.manager import Manager
from vmafx.runtime.metrics import Metrics

FIELD_MANAGER = "vmafx-operator"  # of children, and of the fields that are applied
BY_NODE, BY_NAMESPACE = "node", "namespace"


class OperatorContext(msgspec.Struct, kw_only=True, eq=False, dict=True):
    """The process's parts; and the caches that several kinds read, made and added to the manager when first asked for.

    `now` is the time of day, `clock` one that only goes forward.
    """

    client: Client
    manager: Manager
    metrics: Metrics
    events: EventRecorder
    namespace: str = ""  # the only one that is watched; empty: all are
    workers: int = 1  # reconciliations at once, for each kind
    now: Callable[[], datetime] = utc_now
    clock: Callable[[], float] = loop_time

    def children(self, resource: Resource[Any]) -> Informer[Child]:
        """The objects of this kind that the operator made for owners: one cache, whichever kinds have such children."""
        place = (resource.api_version, resource.kind)
        if place not in self._children:
            self._children[place] = child_informer(self.client, resource, self.namespace, FIELD_MANAGER)
            self.manager.add_informer(self._children[place])
        return self._children[place]

    @cached_property
    def _children(self) -> dict[tuple[str, str], Informer[Child]]:
        return {}

    @cached_property
    def jobs(self) -> Informer[JobView]:
        """Unfinished jobs, also by the node that they have."""
        jobs = jobs_informer(self.client, self.namespace, {BY_NODE: _node_of})
        self.manager.add_informer(jobs, fresh=True)
        return jobs

    @cached_property
    def nodes(self) -> Informer[NodeView]:
        indexes = {BY_NAMESPACE: lambda node: (node.metadata.namespace,)}
        nodes = Informer(self.client, NODES.seen_as(NodeView), namespace=self.namespace, indexes=indexes)
        self.manager.add_informer(nodes, fresh=True)
        return nodes


def _node_of(job: JobView) -> tuple[ObjectKey, ...]:
    node = job.status.assignedNode
    return (ObjectKey(job.metadata.namespace, node),) if node else ()
