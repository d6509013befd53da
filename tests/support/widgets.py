"""A minimal kind with children, built like those of the operator: a Widget has a ConfigMap and optionally a Service."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

from tests.support.operator_context import context
from tests.support.waiting import eventually
from vmafx.api.meta import ApiModel, Condition, MetaView
from vmafx.clock import utc_now
from vmafx.kube import CRDS, Client, ObjectKey, Resource
from vmafx.kube.errors import AlreadyExists
from vmafx.kube.resources import UntypedObject
from vmafx.operator.context import FIELD_MANAGER, OperatorContext
from vmafx.runtime.children import Children, SyncResult
from vmafx.runtime.conditions import Truth, with_condition
from vmafx.runtime.informer import Informer
from vmafx.runtime.reconcile import ReconcileLoop, ReconcileResult
from vmafx.runtime.status import StatusWriter, changed_fields

GROUP = "test.vmafx.dev"
RETRY_AFTER = 0.2  # seconds, while a child is blocked
CONFIG_MAPS: Resource[UntypedObject] = Resource("", "v1", "configmaps", "ConfigMap", dict)
SERVICES: Resource[UntypedObject] = Resource("", "v1", "services", "Service", dict)


class WidgetSpec(ApiModel):
    text: str
    note: str | None = None
    port: int | None = None


class WidgetStatus(ApiModel):
    text: str | None = None
    observedGeneration: int = 0
    conditions: tuple[Condition, ...] = ()


class Widget(ApiModel):
    metadata: MetaView
    spec: WidgetSpec
    status: WidgetStatus = WidgetStatus()


WIDGETS: Resource[Widget] = Resource(GROUP, "v1", "widgets", "Widget", Widget)
DEFINITION: UntypedObject = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"widgets.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"kind": "Widget", "listKind": "WidgetList", "plural": "widgets", "singular": "widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


def children_of(widget: Widget) -> list[UntypedObject]:
    """The desired children of a widget (pure)."""
    name, spec = widget.metadata.name, widget.spec
    data = {"text": spec.text} | ({"note": spec.note} if spec.note is not None else {})
    wanted: list[UntypedObject] = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}]
    if spec.port is not None:
        meta = {"name": name, "labels": {"widget": name}}
        ports = {"selector": {"widget": name}, "ports": [{"name": "http", "port": spec.port}]}
        wanted.append({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": ports})
    return wanted


class WidgetReconciler:
    """Gather, decide, act: the spec determines the children, the status says whether they exist."""

    def __init__(self, context: OperatorContext) -> None:
        self.widgets: Informer[Widget] = Informer(context.client, WIDGETS, namespace=context.namespace)
        caches = [context.children(kind) for kind in (CONFIG_MAPS, SERVICES)]
        self.children = Children(context.client, FIELD_MANAGER, self.widgets, caches)
        self.status = StatusWriter(context.client, self.widgets)
        self.loop = ReconcileLoop("widget", self.reconcile, context.metrics, max_concurrent=context.max_concurrent)
        self.loop.watches(self.widgets, when=self.status.needs_reconcile)
        for cache in caches:
            self.loop.owns(cache, WIDGETS.kind, when=partial(self.children.needs_reconcile, cache.resource))
        self.reconciled = 0

    async def reconcile(self, key: ObjectKey) -> ReconcileResult:
        widget = self.widgets.store.get(key)
        if widget is None or self.status.must_wait(key, widget):
            return ReconcileResult.done()
        self.reconciled += 1
        synced = await self.children.sync(widget, children_of(widget))
        await self.status.write(widget, _status(widget, synced))
        if not synced.complete:
            return ReconcileResult.after(RETRY_AFTER)
        self.status.ignore_echo(key)
        return ReconcileResult.retry() if synced.outdated else ReconcileResult.done()


def _status(widget: Widget, synced: SyncResult) -> dict[str, Any]:
    ready: Truth = "True" if synced.complete else "False"
    reason, message = "Applied" if synced.complete else "Waiting", "all children are there" if synced.complete else ""
    if synced.failures:
        reason, message = synced.failures[0].reason, "; ".join(one.message for one in synced.failures)
    config = synced.children.get(("ConfigMap", widget.metadata.name))
    wanted = {
        "text": config["data"].get("text") if config is not None else None,
        "observedGeneration": widget.metadata.generation,
        "conditions": tuple(with_condition(widget, "Ready", ready, reason, message, utc_now())),
    }
    return changed_fields(widget.status, wanted)


def set_up(context: OperatorContext) -> WidgetReconciler:
    made = WidgetReconciler(context)
    context.manager.add_informer(made.widgets)
    context.manager.add_loop(made.loop)
    return made


@asynccontextmanager
async def reconciling(client: Client, namespace: str) -> AsyncIterator[WidgetReconciler]:
    """Run the reconciler of widgets."""
    await install(client)
    made = context(client, namespace)
    reconciler, stop = set_up(made), asyncio.Event()
    running = asyncio.create_task(made.manager.run(stop))
    try:
        await eventually(lambda: made.manager.not_ready() is None, "the caches are synced", every=0.02)
        yield reconciler
    finally:
        stop.set()
        await running


async def install(client: Client) -> None:
    with suppress(AlreadyExists):
        await client.create(CRDS, DEFINITION)
    key = ObjectKey("", DEFINITION["metadata"]["name"])

    async def established() -> bool:
        told = (await client.get(CRDS, key)).get("status", {}).get("conditions") or []
        return any(one["type"] == "Established" and one["status"] == "True" for one in told)

    await eventually(established, "the kind is served", every=0.05)
