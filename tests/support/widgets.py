"""A small kind with children, built as any kind of the operator: a Widget has a ConfigMap, and a Service if it asks."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from vmafx.api.meta import Condition, MetaView, Model
from vmafx.kube import CRDS, Client, Key, Resource
from vmafx.kube.errors import AlreadyExists
from vmafx.kube.resources import Untyped
from vmafx.runtime.children import Children, NameTaken, Owner, child_informer
from vmafx.runtime.conditions import Truth, with_condition
from vmafx.runtime.controller import Controller, Result
from vmafx.runtime.informer import Informer
from vmafx.runtime.manager import Manager
from vmafx.runtime.metrics import Metrics
from vmafx.runtime.status import StatusWriter, changed
from vmafx.times import utc_now

GROUP, MANAGER = "test.vmafx.dev", "widget-operator"
CONFIG_MAPS: Resource[Untyped] = Resource("", "v1", "configmaps", "ConfigMap", dict)
SERVICES: Resource[Untyped] = Resource("", "v1", "services", "Service", dict)


class WidgetSpec(Model):
    text: str
    port: int | None = None


class WidgetStatus(Model):
    text: str | None = None
    observedGeneration: int = 0
    conditions: tuple[Condition, ...] = ()


class Widget(Model):
    metadata: MetaView
    spec: WidgetSpec
    status: WidgetStatus = WidgetStatus()


WIDGETS: Resource[Widget] = Resource(GROUP, "v1", "widgets", "Widget", Widget)
DEFINITION: Untyped = {
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


def children_of(widget: Widget) -> list[Untyped]:
    """Pure: what a widget is to have."""
    name, text = widget.metadata.name, widget.spec.text
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": text}}
    if widget.spec.port is None:
        return [config]
    ports = [{"name": "http", "port": widget.spec.port}]
    meta = {"name": name, "labels": {"widget": name}}
    spec = {"selector": {"widget": name}, "ports": ports}
    return [config, {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec}]


class WidgetReconciler:
    """Gather, decide, do: the children are wanted by the spec alone, and the status says whether they are there."""

    def __init__(self, client: Client, namespace: str, metrics: Metrics) -> None:
        self.widgets: Informer[Widget] = Informer(client, WIDGETS, namespace=namespace)
        self.caches = [child_informer(client, kind, namespace, MANAGER) for kind in (CONFIG_MAPS, SERVICES)]
        self.children = Children(client, MANAGER, self.caches)
        self.status = StatusWriter(client, self.widgets)
        self.controller = Controller("widget", self.reconcile, metrics, workers=4)
        self.controller.watches(self.widgets, when=self.status.is_news)
        for cache in self.caches:
            self.controller.owns(cache, WIDGETS.kind)
        self.reconciled = 0

    async def reconcile(self, key: Key) -> Result:
        widget = self.widgets.store.get(key)
        if widget is None or self.status.is_behind(key, widget):
            return Result.done()
        self.status.settle(key)
        self.reconciled += 1
        meta = widget.metadata
        owner = Owner(WIDGETS.api_version, WIDGETS.kind, meta.namespace, meta.name, meta.uid)
        try:
            there = await self.children.sync(owner, children_of(widget))
        except NameTaken as error:
            await self.status.write(widget, _status(widget, "False", "NameTaken", str(error)))
            return Result.after(60)
        text = there[0].data["text"] if there else None
        await self.status.write(widget, _status(widget, "True", "Applied", "all children are there", text))
        self.status.quiet(key)
        return Result.done()


def _status(widget: Widget, ready: Truth, reason: str, message: str, text: str | None = None) -> dict[str, Any]:
    wanted = {
        "text": text,
        "observedGeneration": widget.metadata.generation,
        "conditions": tuple(with_condition(widget, "Ready", ready, reason, message, utc_now())),
    }
    return changed(widget.status, wanted)


@asynccontextmanager
async def reconciling(client: Client, namespace: str) -> AsyncIterator[WidgetReconciler]:
    """The widgets' operator, running."""
    await install(client)
    metrics = Metrics()
    manager = Manager(metrics, probes=None, metrics_at=None, election=None)
    made = WidgetReconciler(client, namespace, metrics)
    informers: list[Informer[Any]] = [made.widgets, *made.caches]
    for informer in informers:
        manager.add_informer(informer)
    manager.add_controller(made.controller)
    stop = asyncio.Event()
    running = asyncio.create_task(manager.run(stop))
    try:
        for informer in informers:
            await informer.synced.wait()
        yield made
    finally:
        stop.set()
        await running


async def install(client: Client) -> None:
    with suppress(AlreadyExists):
        await client.create(CRDS, DEFINITION)
    key = Key("", DEFINITION["metadata"]["name"])
    while True:
        told = (await client.get(CRDS, key)).get("status", {}).get("conditions") or []
        if any(one["type"] == "Established" and one["status"] == "True" for one in told):
            return
        await asyncio.sleep(0.05)
