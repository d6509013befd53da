"""Children and status writes of a sample kind (Widget), on a real API server."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from tests.support.proxy import FaultyProxy, Refuse
from tests.support.waiting import eventually
from tests.support.widgets import (
    CONFIG_MAPS,
    SERVICES,
    WIDGETS,
    Widget,
    WidgetReconciler,
    WidgetSpec,
    install,
    reconciling,
)
from vmafx.api.meta import MetaView
from vmafx.kube import Client, ObjectKey, Resource, key_of
from vmafx.kube.errors import NotFound
from vmafx.kube.resources import UntypedObject
from vmafx.operator.context import FIELD_MANAGER
from vmafx.runtime.child import MANAGED_BY, Child, child_informer, owner_reference
from vmafx.runtime.children import Children
from vmafx.runtime.conditions import find_condition
from vmafx.runtime.informer import Informer
from vmafx.runtime.status import StatusWriter
from vmafx.runtime.store import ObjectChange


def patch_count(registry: CollectorRegistry) -> float:
    """The number of PATCH requests that the client has sent."""
    return sum(
        sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "rest_client_requests_total" and sample.labels.get("method") == "PATCH"
    )


class Widgets:
    """Creates, changes and reads widgets and their children through the API server."""

    def __init__(self, client: Client, namespace: str, reconciler: WidgetReconciler) -> None:
        self.client, self.namespace, self.reconciler = client, namespace, reconciler

    def key(self, name: str = "w") -> ObjectKey:
        return ObjectKey(self.namespace, name)

    async def create(self, name: str = "w", **spec: Any) -> Widget:
        body = {"apiVersion": WIDGETS.api_version, "kind": WIDGETS.kind, "metadata": {"name": name}, "spec": spec}
        return await self.client.create(WIDGETS, body, self.namespace)

    async def change(self, **spec: Any) -> None:
        await self.client.merge_patch(WIDGETS, self.key(), {"spec": spec})

    async def get(self, kind: Resource[UntypedObject], name: str = "w") -> UntypedObject | None:
        try:
            return await self.client.get(kind, self.key(name))
        except NotFound:
            return None

    async def settled(self, name: str = "w", reason: str = "Applied") -> Widget:
        """The widget, once its status is about its current generation."""
        found: list[Widget] = []

        async def observed() -> bool:
            widget = await self.client.get(WIDGETS, self.key(name))
            ready = find_condition(widget.status.conditions, "Ready")
            found[:] = [widget]
            current = widget.status.observedGeneration == widget.metadata.generation
            return current and ready is not None and ready.reason == reason

        await eventually(observed, f"{name} is {reason}", every=0.02)
        return found[0]

    async def reconciled(self, times: int) -> None:
        await eventually(lambda: self.reconciler.reconciled >= times, f"{times} reconciliations", every=0.02)

    async def idle(self) -> None:
        """Wait until the cache is up to date and the work queue is empty."""

        async def is_idle() -> bool:
            queue, store = self.reconciler.loop.queue, self.reconciler.widgets.store
            live = (await self.client.list(WIDGETS, self.namespace)).items
            cached = all(store.get(ObjectKey(one.metadata.namespace, one.metadata.name)) == one for one in live)
            return cached and not queue and not queue._working

        await eventually(is_idle, "the reconcile loop is idle", every=0.02)

    async def until(self, kind: Resource[UntypedObject], condition: Any, what: str) -> None:
        async def met() -> bool:
            return bool(condition(await self.get(kind)))

        await eventually(met, what, every=0.02)


@pytest.fixture
async def widgets(client: Client, namespace: str) -> AsyncIterator[Widgets]:
    async with reconciling(client, namespace) as reconciler:
        yield Widgets(client, namespace, reconciler)


async def test_children_are_applied_with_an_owner_reference_and_the_status_shows_them(widgets: Widgets) -> None:
    created = await widgets.create(text="hello", port=80)
    widget = await widgets.settled()
    assert (widget.status.text, [one.type for one in widget.status.conditions]) == ("hello", ["Ready"])
    for kind in (CONFIG_MAPS, SERVICES):
        child = await widgets.get(kind)
        assert child is not None
        (owner,) = child["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"], owner["kind"]) == (created.metadata.uid, True, "Widget")
        assert child["metadata"]["labels"][MANAGED_BY] == FIELD_MANAGER
        assert [one["operation"] for one in child["metadata"]["managedFields"]] == ["Apply"]


async def test_fields_and_children_that_are_no_longer_declared_are_removed(widgets: Widgets) -> None:
    await widgets.create(text="hello", note="mind the gap", port=80)
    await widgets.settled()
    child = await widgets.get(CONFIG_MAPS)
    assert child is not None
    assert child["data"] == {"text": "hello", "note": "mind the gap"}
    await widgets.change(text="bye", note=None, port=None)
    assert (await widgets.settled()).status.text == "bye"
    await widgets.until(CONFIG_MAPS, lambda child: child["data"] == {"text": "bye"}, "the note is removed")
    await widgets.until(SERVICES, lambda service: service is None, "the Service is deleted")
    await widgets.change(port=81)
    await widgets.until(
        SERVICES, lambda service: service and service["spec"]["ports"][0]["port"] == 81, "the Service exists again"
    )


@pytest.mark.parametrize("how", ["changed", "emptied", "label removed", "deleted"])
async def test_drift_of_a_child_is_reverted(how: str, widgets: Widgets) -> None:
    await widgets.create(text="hello")
    await widgets.settled()
    key, config = widgets.key(), CONFIG_MAPS
    match how:
        case "changed":
            await widgets.client.merge_patch(config, key, {"data": {"text": "drift"}})
        case "emptied":
            await widgets.client.merge_patch(config, key, {"data": None})
        case "label removed":
            await widgets.client.merge_patch(config, key, {"metadata": {"labels": {MANAGED_BY: None}}})
        case "deleted":
            await widgets.client.delete(config, key)

    def reverted(child: UntypedObject | None) -> bool:
        return (
            child is not None
            and child.get("data") == {"text": "hello"}
            and child["metadata"].get("labels", {}).get(MANAGED_BY) == FIELD_MANAGER
        )

    await widgets.until(config, reverted, "the ConfigMap is as declared")


async def test_fields_that_others_add_to_a_child_stay(widgets: Widgets) -> None:
    await widgets.create(text="hello", port=80)
    await widgets.settled()
    key = widgets.key()
    await widgets.client.merge_patch(
        CONFIG_MAPS, key, {"data": {"other": "x"}, "metadata": {"annotations": {"note": "y"}}}
    )
    await widgets.change(text="bye")
    await widgets.settled()
    child = await widgets.get(CONFIG_MAPS)
    assert child is not None
    assert child["data"] == {"text": "bye", "other": "x"}
    assert child["metadata"]["annotations"]["note"] == "y"


async def test_a_child_that_is_as_declared_is_not_written_again(widgets: Widgets, registry: CollectorRegistry) -> None:
    """However often its owner is reconciled, and whatever happens to the fields of others."""
    await widgets.create(text="hello", port=80)
    await widgets.settled()
    await widgets.idle()
    reconciled, patched = widgets.reconciler.reconciled, patch_count(registry)
    for number in range(3):
        await widgets.client.merge_patch(CONFIG_MAPS, widgets.key(), {"data": {"other": str(number)}})
        await widgets.reconciled(reconciled + number + 1)
    await widgets.idle()
    assert patch_count(registry) - patched == 3  # those of the test


@pytest.mark.parametrize("owned", [False, True], ids=["no owner", "another owner"])
async def test_an_existing_object_is_never_adopted(owned: bool, widgets: Widgets) -> None:
    other = await widgets.client.create(CONFIG_MAPS, {"metadata": {"name": "x"}}, widgets.namespace)
    uid = other["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": uid, "controller": True}
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "w", "labels": {MANAGED_BY: FIELD_MANAGER}, "ownerReferences": [owner] if owned else []},
        "data": {"text": "theirs"},
    }
    existing = await widgets.client.create(CONFIG_MAPS, body, widgets.namespace)
    await widgets.create(text="hello")
    widget = await widgets.settled(reason="NameTaken")
    ready = find_condition(widget.status.conditions, "Ready")
    assert ready is not None
    assert ready.message == "ConfigMap w already exists and is not controlled by Widget w"
    assert await widgets.get(CONFIG_MAPS) == existing
    await widgets.client.delete(WIDGETS, widgets.key())
    await eventually(lambda: widgets.reconciler.widgets.store.get(widgets.key()) is None, "the widget is deleted")
    assert await widgets.get(CONFIG_MAPS) == existing


def uncached_children(client: Client, namespace: str) -> Children[Widget]:
    """Children without a reconciler, with empty caches."""
    cache = child_informer(client, CONFIG_MAPS, namespace, FIELD_MANAGER)
    return Children(client, FIELD_MANAGER, Informer(client, WIDGETS, namespace=namespace), [cache])


def config(name: str, **more: Any) -> UntypedObject:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": "ours"}} | more


async def test_an_object_that_the_cache_does_not_have_is_not_adopted(client: Client, namespace: str) -> None:
    """Even if it has none of the declared fields, so that nothing would conflict."""
    owner = Widget(MetaView("w", namespace, "0000"), WidgetSpec("x"))
    theirs = await client.create(CONFIG_MAPS, {"metadata": {"name": "late"}}, namespace)
    synced = await uncached_children(client, namespace).sync(owner, [config("late")])
    assert [one.reason for one in synced.failures] == ["NameTaken"]
    assert await client.get(CONFIG_MAPS, ObjectKey(namespace, "late")) == theirs


async def test_a_rejected_child_does_not_block_the_others(widgets: Widgets) -> None:
    await widgets.create(text="hello", port=80)
    await widgets.settled()
    await widgets.change(text="bye", port=700_000)  # out of range
    widget = await widgets.settled(reason="Refused")
    ready = find_condition(widget.status.conditions, "Ready")
    assert ready is not None
    assert "700000" in ready.message
    assert widget.status.text == "bye"
    await widgets.change(port=None)
    await widgets.settled()
    await widgets.until(SERVICES, lambda service: service is None, "the Service is deleted")


async def test_an_owner_that_is_being_deleted_gets_no_children(client: Client, namespace: str) -> None:
    owner = Widget(MetaView("w", namespace, "0000", deletionTimestamp=datetime.now(UTC)), WidgetSpec("x"))
    synced = await uncached_children(client, namespace).sync(owner, [config("w")])
    assert (synced.children, synced.failures) == ({}, ())
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAPS, ObjectKey(namespace, "w"))


async def test_children_are_deleted_with_their_owner(widgets: Widgets) -> None:
    """In the foreground: the children first, and none of them is applied again meanwhile."""
    await widgets.create(text="hello", port=80)
    await widgets.settled()
    await widgets.client.delete(WIDGETS, widgets.key(), propagation="Foreground")
    await eventually(lambda: widgets.reconciler.widgets.store.get(widgets.key()) is None, "the widget is deleted")
    await widgets.until(CONFIG_MAPS, lambda child: child is None, "its ConfigMap is deleted")
    assert widgets.reconciler.children._applied == {}
    assert widgets.reconciler.status._writes == {}


async def test_an_owner_created_again_waits_until_the_old_child_is_deleted(widgets: Widgets) -> None:
    await widgets.create(text="hello")
    await widgets.settled()
    held = {"metadata": {"finalizers": ["test.vmafx.dev/held"]}}
    await widgets.client.merge_patch(CONFIG_MAPS, widgets.key(), held)
    await widgets.client.delete(WIDGETS, widgets.key())
    await widgets.until(
        CONFIG_MAPS, lambda child: child and "deletionTimestamp" in child["metadata"], "the ConfigMap is being deleted"
    )
    await widgets.create(text="again")
    widget = await widgets.settled(reason="Waiting")
    assert widget.status.text is None
    await widgets.client.merge_patch(CONFIG_MAPS, widgets.key(), {"metadata": {"finalizers": None}})
    assert (await widgets.settled()).status.text == "again"


async def test_a_child_with_a_field_that_is_not_watched_is_rejected(client: Client, namespace: str) -> None:
    owner = Widget(MetaView("w", namespace, "0000"), WidgetSpec("x"))
    with pytest.raises(TypeError, match="changes to shape of a child are not watched"):
        await uncached_children(client, namespace).sync(owner, [config("x", shape="round")])
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAPS, ObjectKey(namespace, "x"))


async def test_syncing_one_owner_leaves_the_children_of_others_alone(widgets: Widgets) -> None:
    await widgets.create(text="one", port=80)
    await widgets.create("other", text="two", port=80)
    await widgets.settled()
    await widgets.settled("other")
    await widgets.change(port=None)
    await widgets.until(SERVICES, lambda service: service is None, "the Service of the first widget is deleted")
    assert await widgets.get(SERVICES, "other") is not None


async def test_a_restarted_operator_prunes_children_and_rewrites_none(client: Client, namespace: str) -> None:
    async with reconciling(client, namespace) as reconciler:
        widgets = Widgets(client, namespace, reconciler)
        await widgets.create(text="hello", port=80)
        await widgets.settled()
    before = [await widgets.get(kind) for kind in (CONFIG_MAPS, SERVICES)]
    await client.merge_patch(WIDGETS, widgets.key(), {"spec": {"port": None}})
    async with reconciling(client, namespace):
        await widgets.settled()
        await widgets.until(SERVICES, lambda service: service is None, "the Service is deleted")
        assert await widgets.get(CONFIG_MAPS) == before[0]


async def test_a_condition_keeps_its_transition_time_while_its_status_stays(widgets: Widgets) -> None:
    await widgets.create(text="hello")
    ready = find_condition((await widgets.settled()).status.conditions, "Ready")
    await widgets.change(text="bye")
    again = find_condition((await widgets.settled()).status.conditions, "Ready")
    assert ready is not None
    assert again is not None
    assert (again.lastTransitionTime, again.observedGeneration) == (ready.lastTransitionTime, 2)


class ManualCache:
    """A status writer with a cache that only the test fills."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.informer: Informer[Widget] = Informer(client, WIDGETS, namespace=namespace)
        self.writer, self.key = StatusWriter(client, self.informer), ObjectKey(namespace, "w")

    async def create(self, client: Client) -> Widget:
        await install(client)
        spec = {"text": "x"}
        body = {"apiVersion": WIDGETS.api_version, "kind": WIDGETS.kind, "metadata": {"name": "w"}, "spec": spec}
        return self.put(await client.create(WIDGETS, body, self.key.namespace))

    def put(self, widget: Widget) -> Widget:
        self.informer.store.put(self.key, widget)
        return widget


async def test_an_object_is_stale_until_the_cache_shows_the_last_write(client: Client, namespace: str) -> None:
    cache = ManualCache(client, namespace)
    old, writer, key = await cache.create(client), cache.writer, cache.key
    new = await writer.write(old, {"text": "y"})
    assert new is not None
    assert new.status.text == "y"
    assert writer.must_wait(key, old)
    cache.put(new)
    assert not writer.must_wait(key, new)
    assert not writer.is_stale(key, old)  # forgotten: the cache shows it
    assert await writer.write(old, {"text": "z"}) is None  # changed since it was read
    assert await writer.write(new, {}) is new


async def test_the_watch_event_of_a_write_can_be_ignored_once(client: Client, namespace: str) -> None:
    cache = ManualCache(client, namespace)
    old, writer, key = await cache.create(client), cache.writer, cache.key
    new = await writer.write(old, {"text": "y"})
    assert new is not None
    assert writer.needs_reconcile(ObjectChange(key, old, new))
    writer.ignore_echo(key)
    assert not writer.needs_reconcile(ObjectChange(key, old, new))
    assert writer.needs_reconcile(ObjectChange(key, old, new))  # only the first one is ignored
    writer.ignore_echo(key)
    assert writer.needs_reconcile(ObjectChange(key, old, None))


async def test_a_reconciliation_of_a_stale_object_restores_an_ignored_watch_event(
    client: Client, namespace: str
) -> None:
    """For example, a child changed just after the write: the watch event of the write then requeues the owner."""
    cache = ManualCache(client, namespace)
    old, writer, key = await cache.create(client), cache.writer, cache.key
    new = await writer.write(old, {"text": "y"})
    assert new is not None
    writer.ignore_echo(key)
    assert writer.must_wait(key, old)
    assert writer.needs_reconcile(ObjectChange(key, old, new))


async def test_an_object_is_not_stale_if_the_watch_was_faster_than_the_response(client: Client, namespace: str) -> None:
    cache = ManualCache(client, namespace)
    old, writer, key = await cache.create(client), cache.writer, cache.key
    meta = msgspec.structs.replace(old.metadata, resourceVersion=str(10**15))
    cache.put(msgspec.structs.replace(old, metadata=meta))
    assert await writer.write(old, {"text": "y"}) is not None
    assert not writer.is_stale(key, old)


DEPLOYMENTS: Resource[UntypedObject] = Resource("apps", "v1", "deployments", "Deployment", dict)
LABELS = {"app": "x"}


def deployment(*, replicas: int | None = None, image: str = "i:1") -> UntypedObject:
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "c", "image": image}]}}
    spec: UntypedObject = {"selector": {"matchLabels": LABELS}, "template": template}
    if replicas is not None:
        spec["replicas"] = replicas
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}


INITIAL: dict[tuple[str, str], UntypedObject] = {("Deployment", "d"): {"spec": {"replicas": 4}}}


def deployments_of(client: Client, owner: Widget, kind: type[Children[Widget]] = Children) -> Children[Widget]:
    """Children of a process that has just started, and has only the owner in its caches."""
    owners: Informer[Widget] = Informer(client, WIDGETS, namespace=owner.metadata.namespace)
    owners.store.put(key_of(owner), owner)
    cache = child_informer(client, DEPLOYMENTS, owner.metadata.namespace, FIELD_MANAGER)
    return kind(client, FIELD_MANAGER, owners, [cache])


async def live_replicas(client: Client, namespace: str) -> tuple[int, bool]:
    """The replicas of the Deployment, and whether our manager owns them."""
    found = await client.get(DEPLOYMENTS, ObjectKey(namespace, "d"))
    entries = {(one["manager"], one["operation"]): one["fieldsV1"] for one in found["metadata"]["managedFields"]}
    return found["spec"]["replicas"], "f:replicas" in entries[FIELD_MANAGER, "Apply"].get("f:spec", {})


@pytest.fixture
async def owner(client: Client, namespace: str) -> Widget:
    await install(client)
    body = {"apiVersion": WIDGETS.api_version, "kind": WIDGETS.kind, "metadata": {"name": "w"}, "spec": {"text": "x"}}
    return await client.create(WIDGETS, body, namespace)


async def scale(client: Client, namespace: str, replicas: int) -> None:
    await client.merge_patch(DEPLOYMENTS, ObjectKey(namespace, "d"), {"spec": {"replicas": replicas}}, "scale")


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_field_is_handed_over_with_its_live_value(
    restarted: bool, client: Client, namespace: str, owner: Widget
) -> None:
    """The server resets a field that its only owner drops: it must have another owner first."""
    children = deployments_of(client, owner)
    await children.sync(owner, [deployment(replicas=3)])
    assert await live_replicas(client, namespace) == (3, True)
    if restarted:
        children = deployments_of(client, owner)
    await children.sync(owner, [deployment()], INITIAL)
    assert await live_replicas(client, namespace) == (3, False)
    await scale(client, namespace, 7)
    await children.sync(owner, [deployment(image="i:2")], INITIAL)
    assert await live_replicas(client, namespace) == (7, False)
    await children.sync(owner, [deployment(replicas=2)])
    assert await live_replicas(client, namespace) == (2, True)


async def test_a_child_is_created_with_the_initial_value(client: Client, namespace: str, owner: Widget) -> None:
    await deployments_of(client, owner).sync(owner, [deployment()], INITIAL)
    assert await live_replicas(client, namespace) == (4, False)


async def test_a_hand_over_does_not_overwrite_a_concurrent_change(
    client: Client, namespace: str, owner: Widget
) -> None:
    class ScaledMeanwhile(Children[Widget]):
        async def _owns(self, resource: Resource[Child], key: ObjectKey, fields: UntypedObject) -> bool:
            await scale(client, namespace, 9)
            return await super()._owns(resource, key, fields)

    await deployments_of(client, owner).sync(owner, [deployment(replicas=3)])
    await deployments_of(client, owner, ScaledMeanwhile).sync(owner, [deployment()], INITIAL)
    assert await live_replicas(client, namespace) == (9, False)


async def test_children_as_applied_are_known_before_the_cache_has_them(
    client: Client, namespace: str, owner: Widget, registry: CollectorRegistry
) -> None:
    children = deployments_of(client, owner)  # its cache never runs
    await children.sync(owner, [deployment(replicas=3)])
    patched = patch_count(registry)
    await children.sync(owner, [deployment(replicas=3)])
    assert patch_count(registry) == patched
    found = children.find(owner, DEPLOYMENTS, "d")
    assert found is not None
    assert found["spec"]["replicas"] == 3


@pytest.mark.parametrize("drift", [False, True])
async def test_after_a_restart_only_children_that_drifted_are_written(
    drift: bool, client: Client, namespace: str, owner: Widget, registry: CollectorRegistry
) -> None:
    await deployments_of(client, owner).sync(owner, [deployment(replicas=3)])
    if drift:
        await scale(client, namespace, 5)
    patched, children = patch_count(registry), deployments_of(client, owner)
    key, (cache,) = ObjectKey(namespace, "d"), children._informers.values()
    cache.store.put(key, await client.get(cache.resource, key))
    await children.sync(owner, [deployment(replicas=3)])
    assert (patch_count(registry) > patched) == drift  # more than once if its status changes meanwhile
    assert await live_replicas(client, namespace) == (3, True)


def config_maps_of(client: Client, owner: Widget) -> tuple[Children[Widget], Informer[Child]]:
    """Children with a cache that only the test fills."""
    owners: Informer[Widget] = Informer(client, WIDGETS, namespace=owner.metadata.namespace)
    owners.store.put(key_of(owner), owner)
    cache = child_informer(client, CONFIG_MAPS, owner.metadata.namespace, FIELD_MANAGER)
    return Children(client, FIELD_MANAGER, owners, [cache]), cache


async def test_a_child_deleted_by_a_sync_is_gone_before_the_cache_shows_it(
    client: Client, namespace: str, owner: Widget
) -> None:
    """A reconciler that still sees a deleted canary would send requests to it."""
    children, cache = config_maps_of(client, owner)
    key = ObjectKey(namespace, "c")
    await children.sync(owner, [config("c")])
    cache.store.put(key, await client.get(cache.resource, key))
    await children.sync(owner, [])
    assert children.find(owner, CONFIG_MAPS, "c") is None
    synced = await children.sync(owner, [config("c")])  # wanted again, while the cache is stale
    assert (synced.complete, synced.failures) == (True, ())
    found = children.find(owner, CONFIG_MAPS, "c")
    assert found is not None
    assert found.metadata.uid == (await client.get(CONFIG_MAPS, key))["metadata"]["uid"]


async def test_a_child_that_a_relist_does_not_have_is_created_again(
    client: Client, namespace: str, owner: Widget
) -> None:
    """It was created and deleted between two lists of the cache, which therefore never had it."""
    children, cache = config_maps_of(client, owner)
    key = ObjectKey(namespace, "c")
    await children.sync(owner, [config("c")])
    await client.delete(CONFIG_MAPS, key)
    await cache._list_pages()
    await children.sync(owner, [config("c")])
    assert (await client.get(CONFIG_MAPS, key))["data"] == {"text": "ours"}


async def test_a_deletion_that_conflicts_is_tried_again(client: Client, namespace: str, owner: Widget) -> None:
    async with FaultyProxy(client.config) as proxy, Client(proxy.config) as through:
        children, cache = config_maps_of(through, owner)
        key = ObjectKey(namespace, "c")
        await children.sync(owner, [config("c")])
        cache.store.put(key, await client.get(cache.resource, key))
        proxy.faults.append(Refuse(409))
        assert not (await children.sync(owner, [])).complete
        assert (await children.sync(owner, [])).complete
        with pytest.raises(NotFound):
            await client.get(CONFIG_MAPS, key)


async def test_a_deletion_that_the_server_rejects_is_a_failure(client: Client, namespace: str, owner: Widget) -> None:
    async with FaultyProxy(client.config) as proxy, Client(proxy.config) as through:
        children, cache = config_maps_of(through, owner)
        key = ObjectKey(namespace, "c")
        await children.sync(owner, [config("c")])
        cache.store.put(key, await client.get(cache.resource, key))
        proxy.faults.append(Refuse(403))
        synced = await children.sync(owner, [])
        assert [(one.name, one.reason) for one in synced.failures] == [("c", "Refused")]
        assert synced.failures[0].message.startswith("cannot be deleted: ")
        assert (await children.sync(owner, [])).complete


async def test_a_late_apply_of_an_older_declaration_is_rejected(client: Client, namespace: str, owner: Widget) -> None:
    """A former leader, which was stopped in the middle of a sync, must not undo what its successor did."""
    former, _ = config_maps_of(client, owner)
    await former.sync(owner, [config("c", data={"text": "one"})])
    leader, _ = config_maps_of(client, owner)
    await leader.sync(owner, [config("c", data={"text": "two"})])
    late = await former.sync(owner, [config("c", data={"text": "late"})])
    assert (late.complete, late.failures) == (False, ())
    assert (await client.get(CONFIG_MAPS, ObjectKey(namespace, "c")))["data"] == {"text": "two"}


async def test_a_child_of_a_deleted_namesake_is_deleted(client: Client, namespace: str, owner: Widget) -> None:
    """Without the garbage collector, which may take long; but never a child of a later owner of the same name."""
    earlier = msgspec.structs.replace(owner, metadata=msgspec.structs.replace(owner.metadata, uid="0000"))
    body = config("c")
    reference = owner_reference(WIDGETS, "w", "0000")
    labels = {MANAGED_BY: FIELD_MANAGER}
    stale = {**body, "metadata": {"name": "c", "labels": labels, "ownerReferences": [reference]}}
    held = {**stale, "metadata": {**stale["metadata"], "finalizers": ["test.vmafx.dev/held"]}}  # from the collector
    await client.create(CONFIG_MAPS, held, namespace)
    children, _ = config_maps_of(client, owner)
    assert not (await children.sync(owner, [body])).complete
    found = await client.get(CONFIG_MAPS, ObjectKey(namespace, "c"))
    assert "deletionTimestamp" in found["metadata"]
    await client.merge_patch(CONFIG_MAPS, ObjectKey(namespace, "c"), {"metadata": {"finalizers": None}})
    assert (await children.sync(owner, [body])).complete
    applied = await client.get(CONFIG_MAPS, ObjectKey(namespace, "c"))
    assert not (await config_maps_of(client, earlier)[0].sync(earlier, [body])).complete  # by an outdated process
    assert await client.get(CONFIG_MAPS, ObjectKey(namespace, "c")) == applied


async def test_a_child_that_is_not_in_the_cache_yet_is_deleted_too(
    client: Client, namespace: str, owner: Widget
) -> None:
    children, _ = config_maps_of(client, owner)
    await children.sync(owner, [config("c")])
    await children.sync(owner, [])
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAPS, ObjectKey(namespace, "c"))


async def test_nothing_is_deleted_before_all_declared_children_are_applied(
    client: Client, namespace: str, owner: Widget
) -> None:
    """A Service that still selects a Deployment must be applied before the Deployment may go."""
    children, _ = config_maps_of(client, owner)
    await children.sync(owner, [config("old")])
    refused = config("new", data={"a b": "an invalid key"})
    assert not (await children.sync(owner, [refused])).complete
    await client.get(CONFIG_MAPS, ObjectKey(namespace, "old"))
    assert (await children.sync(owner, [config("new")])).complete
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAPS, ObjectKey(namespace, "old"))
