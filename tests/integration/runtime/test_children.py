"""A kind with children, on a real API server: applied, kept as wanted, pruned, told in a status, never taken over."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

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
from vmafx.kube import Client, ObjectKey, Resource
from vmafx.kube.errors import NotFound
from vmafx.kube.resources import UntypedObject
from vmafx.operator.context import FIELD_MANAGER
from vmafx.runtime.children import MANAGED_BY, Child, Children, child_informer
from vmafx.runtime.conditions import find_condition
from vmafx.runtime.informer import Informer
from vmafx.runtime.status import StatusWriter
from vmafx.runtime.store import ObjectChange


def patches(registry: CollectorRegistry) -> float:
    """How many the client has sent."""
    return sum(
        sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "rest_client_requests_total" and sample.labels.get("method") == "PATCH"
    )


class Widgets:
    """What a person does with widgets, and sees of them."""

    def __init__(self, client: Client, namespace: str, reconciler: WidgetReconciler) -> None:
        self.client, self.namespace, self.reconciler = client, namespace, reconciler

    def key(self, name: str = "w") -> ObjectKey:
        return ObjectKey(self.namespace, name)

    async def make(self, name: str = "w", **spec: Any) -> Widget:
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
        """The widget, once its status speaks of its spec."""
        found: list[Widget] = []

        async def told() -> bool:
            widget = await self.client.get(WIDGETS, self.key(name))
            ready = find_condition(widget.status.conditions, "Ready")
            found[:] = [widget]
            as_it_is = widget.status.observedGeneration == widget.metadata.generation
            return as_it_is and ready is not None and ready.reason == reason

        await eventually(told, f"{name} is {reason}", every=0.02)
        return found[0]

    async def looked(self, times: int) -> None:
        await eventually(lambda: self.reconciler.reconciled >= times, f"it was looked at {times} times", every=0.02)

    async def idle(self) -> None:
        """Until the operator has seen everything, and has nothing to do."""

        async def at_rest() -> bool:
            queue, shown = self.reconciler.loop.queue, self.reconciler.widgets.store
            there = (await self.client.list(WIDGETS, self.namespace)).items
            seen = all(shown.get(ObjectKey(one.metadata.namespace, one.metadata.name)) == one for one in there)
            return seen and not queue and not queue._working

        await eventually(at_rest, "nothing is left to do", every=0.02)

    async def until(self, kind: Resource[UntypedObject], holds: Any, what: str) -> None:
        async def looked() -> bool:
            return bool(holds(await self.get(kind)))

        await eventually(looked, what, every=0.02)


@pytest.fixture
async def widgets(client: Client, namespace: str) -> AsyncIterator[Widgets]:
    async with reconciling(client, namespace) as reconciler:
        yield Widgets(client, namespace, reconciler)


async def test_children_are_made_owned_and_told_of_in_the_status(widgets: Widgets) -> None:
    made = await widgets.make(text="hello", port=80)
    told = await widgets.settled()
    assert (told.status.text, [one.type for one in told.status.conditions]) == ("hello", ["Ready"])
    for kind in (CONFIG_MAPS, SERVICES):
        child = await widgets.get(kind)
        assert child is not None
        (owner,) = child["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"], owner["kind"]) == (made.metadata.uid, True, "Widget")
        assert child["metadata"]["labels"][MANAGED_BY] == FIELD_MANAGER
        assert [one["operation"] for one in child["metadata"]["managedFields"]] == ["Apply"]


async def test_what_is_no_longer_wanted_is_removed(widgets: Widgets) -> None:
    """A field of a child, and a whole child."""
    await widgets.make(text="hello", note="mind the gap", port=80)
    await widgets.settled()
    child = await widgets.get(CONFIG_MAPS)
    assert child is not None
    assert child["data"] == {"text": "hello", "note": "mind the gap"}
    await widgets.change(text="bye", note=None, port=None)
    assert (await widgets.settled()).status.text == "bye"
    await widgets.until(CONFIG_MAPS, lambda child: child["data"] == {"text": "bye"}, "the note is gone")
    await widgets.until(SERVICES, lambda service: service is None, "the Service is gone")
    await widgets.change(port=81)
    await widgets.until(
        SERVICES, lambda service: service and service["spec"]["ports"][0]["port"] == 81, "the Service is back"
    )


@pytest.mark.parametrize("how", ["changed", "emptied", "without our label", "deleted"])
async def test_drift_is_repaired(how: str, widgets: Widgets) -> None:
    await widgets.make(text="hello")
    await widgets.settled()
    key, config = widgets.key(), CONFIG_MAPS
    match how:
        case "changed":
            await widgets.client.merge_patch(config, key, {"data": {"text": "mine now"}})
        case "emptied":
            await widgets.client.merge_patch(config, key, {"data": None})
        case "without our label":
            await widgets.client.merge_patch(config, key, {"metadata": {"labels": {MANAGED_BY: None}}})
        case "deleted":
            await widgets.client.delete(config, key)

    def repaired(child: UntypedObject | None) -> bool:
        return (
            child is not None
            and child.get("data") == {"text": "hello"}
            and child["metadata"].get("labels", {}).get(MANAGED_BY) == FIELD_MANAGER
        )

    await widgets.until(config, repaired, "the ConfigMap is as wanted")


async def test_what_others_add_stays(widgets: Widgets) -> None:
    await widgets.make(text="hello", port=80)
    await widgets.settled()
    key = widgets.key()
    await widgets.client.merge_patch(
        CONFIG_MAPS, key, {"data": {"theirs": "x"}, "metadata": {"annotations": {"note": "y"}}}
    )
    await widgets.change(text="bye")
    await widgets.settled()
    child = await widgets.get(CONFIG_MAPS)
    assert child is not None
    assert child["data"] == {"text": "bye", "theirs": "x"}
    assert child["metadata"]["annotations"] == {"note": "y"}


async def test_what_is_as_wanted_is_not_written_again(widgets: Widgets, registry: CollectorRegistry) -> None:
    """However often it is looked at, and whatever happens to the fields of others."""
    await widgets.make(text="hello", port=80)
    await widgets.settled()
    await widgets.idle()
    asked, patched = widgets.reconciler.reconciled, patches(registry)
    for number in range(3):
        await widgets.client.merge_patch(CONFIG_MAPS, widgets.key(), {"data": {"theirs": str(number)}})
        await widgets.looked(asked + number + 1)
    await widgets.idle()
    assert patches(registry) - patched == 3  # the test's own


@pytest.mark.parametrize("owned", [False, True], ids=["nobody's", "another's"])
async def test_what_somebody_else_made_is_never_taken_over(owned: bool, widgets: Widgets) -> None:
    there = await widgets.client.create(CONFIG_MAPS, {"metadata": {"name": "x"}}, widgets.namespace)
    uid = there["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": uid, "controller": True}
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "w", "labels": {MANAGED_BY: FIELD_MANAGER}, "ownerReferences": [owner] if owned else []},
        "data": {"text": "theirs"},
    }
    theirs = await widgets.client.create(CONFIG_MAPS, body, widgets.namespace)
    await widgets.make(text="hello")
    told = await widgets.settled(reason="NameTaken")
    ready = find_condition(told.status.conditions, "Ready")
    assert ready is not None
    assert ready.message == "there is a ConfigMap w already, and it is not that of Widget w"
    assert await widgets.get(CONFIG_MAPS) == theirs
    await widgets.client.delete(WIDGETS, widgets.key())
    await eventually(lambda: widgets.reconciler.widgets.store.get(widgets.key()) is None, "the widget is gone")
    assert await widgets.get(CONFIG_MAPS) == theirs


class LateChildren(Children[Widget]):
    """Somebody else makes the child just after we saw that there is none."""

    async def _find(self, resource: Resource[Child], key: ObjectKey) -> Child | None:
        found = await super()._find(resource, key)
        if found is None:
            theirs = {"metadata": {"name": key.name}, "data": {"text": "theirs"}}
            await self._client.create(CONFIG_MAPS, theirs, key.namespace)
        return found


def alone(client: Client, namespace: str, kind: type[Children[Widget]] = Children) -> Children[Widget]:
    """Without a reconciler, and with empty caches."""
    cache = child_informer(client, CONFIG_MAPS, namespace, FIELD_MANAGER)
    return kind(client, FIELD_MANAGER, Informer(client, WIDGETS, namespace=namespace), [cache])


def config(name: str, **more: Any) -> UntypedObject:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": "ours"}} | more


async def test_nor_is_what_somebody_makes_at_the_same_moment(client: Client, namespace: str) -> None:
    owner, children = Widget(MetaView("w", namespace, "0000"), WidgetSpec("x")), alone(client, namespace, LateChildren)
    first = await children.sync(owner, [config("late")])
    assert [one.reason for one in first.failures] == ["Refused"]
    second = await children.sync(owner, [config("late")])
    assert [one.reason for one in second.failures] == ["NameTaken"]
    assert (await client.get(CONFIG_MAPS, ObjectKey(namespace, "late")))["data"] == {"text": "theirs"}


async def test_one_child_that_is_refused_keeps_nothing_from_the_others(widgets: Widgets) -> None:
    await widgets.make(text="hello", port=80)
    await widgets.settled()
    await widgets.change(text="bye", port=700_000)  # no such port
    told = await widgets.settled(reason="Refused")
    ready = find_condition(told.status.conditions, "Ready")
    assert ready is not None
    assert "700000" in ready.message
    assert told.status.text == "bye"
    await widgets.change(port=None)
    await widgets.settled()
    await widgets.until(SERVICES, lambda service: service is None, "the Service is gone")


async def test_an_owner_that_is_being_deleted_gets_no_children(client: Client, namespace: str) -> None:
    going = Widget(MetaView("w", namespace, "0000", deletionTimestamp=datetime.now(UTC)), WidgetSpec("x"))
    synced = await alone(client, namespace).sync(going, [config("w")])
    assert (synced.children, synced.failures) == ({}, ())
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAPS, ObjectKey(namespace, "w"))


async def test_an_owner_goes_with_its_children(widgets: Widgets) -> None:
    """In the foreground: its children first, and none of them comes back in the meantime."""
    await widgets.make(text="hello", port=80)
    await widgets.settled()
    await widgets.client.delete(WIDGETS, widgets.key(), propagation="Foreground")
    await eventually(lambda: widgets.reconciler.widgets.store.get(widgets.key()) is None, "the widget is gone")
    await widgets.until(CONFIG_MAPS, lambda child: child is None, "so is its ConfigMap")
    assert widgets.reconciler.children._applied == {}
    assert widgets.reconciler.status._writes == {}


async def test_a_namesake_waits_until_what_was_anothers_is_gone(widgets: Widgets) -> None:
    """Deleted and applied again, as people do."""
    await widgets.make(text="hello")
    await widgets.settled()
    held = {"metadata": {"finalizers": ["test.vmafx.dev/held"]}}
    await widgets.client.merge_patch(CONFIG_MAPS, widgets.key(), held)
    await widgets.client.delete(WIDGETS, widgets.key())
    await widgets.until(
        CONFIG_MAPS, lambda child: child and "deletionTimestamp" in child["metadata"], "the ConfigMap is on its way out"
    )
    await widgets.make(text="again")
    told = await widgets.settled(reason="Waiting")
    assert told.status.text is None
    await widgets.client.merge_patch(CONFIG_MAPS, widgets.key(), {"metadata": {"finalizers": None}})
    assert (await widgets.settled()).status.text == "again"


async def test_a_child_of_a_shape_that_could_change_unseen_is_refused(client: Client, namespace: str) -> None:
    owner = Widget(MetaView("w", namespace, "0000"), WidgetSpec("x"))
    with pytest.raises(TypeError, match="shape would not be seen to change"):
        await alone(client, namespace).sync(owner, [config("x", shape="round")])
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAPS, ObjectKey(namespace, "x"))


async def test_the_children_of_one_owner_are_not_those_of_another(widgets: Widgets) -> None:
    await widgets.make(text="one", port=80)
    await widgets.make("other", text="two", port=80)
    await widgets.settled()
    await widgets.settled("other")
    await widgets.change(port=None)
    await widgets.until(SERVICES, lambda service: service is None, "the one Service is gone")
    assert await widgets.get(SERVICES, "other") is not None


async def test_after_a_restart_what_is_there_is_known_again(client: Client, namespace: str) -> None:
    async with reconciling(client, namespace) as reconciler:
        widgets = Widgets(client, namespace, reconciler)
        await widgets.make(text="hello", port=80)
        await widgets.settled()
    before = [await widgets.get(kind) for kind in (CONFIG_MAPS, SERVICES)]
    await client.merge_patch(WIDGETS, widgets.key(), {"spec": {"port": None}})
    async with reconciling(client, namespace):
        await widgets.settled()
        await widgets.until(SERVICES, lambda service: service is None, "the Service is gone")
        assert await widgets.get(CONFIG_MAPS) == before[0]


async def test_a_condition_keeps_its_time_while_its_status_stays(widgets: Widgets) -> None:
    await widgets.make(text="hello")
    ready = find_condition((await widgets.settled()).status.conditions, "Ready")
    await widgets.change(text="bye")
    again = find_condition((await widgets.settled()).status.conditions, "Ready")
    assert ready is not None
    assert again is not None
    assert (again.lastTransitionTime, again.observedGeneration) == (ready.lastTransitionTime, 2)


class Cached:
    """A status writer over a cache that shows what the test puts there."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.informer: Informer[Widget] = Informer(client, WIDGETS, namespace=namespace)
        self.writer, self.key = StatusWriter(client, self.informer), ObjectKey(namespace, "w")

    async def made(self, client: Client) -> Widget:
        await install(client)
        spec = {"text": "x"}
        body = {"apiVersion": WIDGETS.api_version, "kind": WIDGETS.kind, "metadata": {"name": "w"}, "spec": spec}
        return self.shows(await client.create(WIDGETS, body, self.key.namespace))

    def shows(self, widget: Widget) -> Widget:
        self.informer.store.put(self.key, widget)
        return widget


async def test_a_write_is_known_before_the_cache_shows_it(client: Client, namespace: str) -> None:
    cached = Cached(client, namespace)
    old, writer, key = await cached.made(client), cached.writer, cached.key
    new = await writer.write(old, {"text": "y"})
    assert new is not None
    assert new.status.text == "y"
    assert writer.must_wait(key, old)
    cached.shows(new)
    assert not writer.must_wait(key, new)
    assert not writer.is_stale(key, old)  # forgotten, now that the cache has it
    assert await writer.write(old, {"text": "z"}) is None  # somebody wrote since
    assert await writer.write(new, {}) is new


async def test_the_echo_of_a_quiet_write_is_no_news(client: Client, namespace: str) -> None:
    cached = Cached(client, namespace)
    old, writer, key = await cached.made(client), cached.writer, cached.key
    new = await writer.write(old, {"text": "y"})
    assert new is not None
    assert writer.needs_reconcile(ObjectChange(key, old, new))
    writer.ignore_echo(key)
    assert not writer.needs_reconcile(ObjectChange(key, old, new))
    assert writer.needs_reconcile(ObjectChange(key, old, new))  # only the first is an echo
    writer.ignore_echo(key)
    assert writer.needs_reconcile(ObjectChange(key, old, None))


async def test_what_came_while_the_cache_was_behind_waits_for_the_echo(client: Client, namespace: str) -> None:
    """A child changed, say, just after a quiet write: the echo is then what brings its owner back."""
    cached = Cached(client, namespace)
    old, writer, key = await cached.made(client), cached.writer, cached.key
    new = await writer.write(old, {"text": "y"})
    assert new is not None
    writer.ignore_echo(key)
    assert writer.must_wait(key, old)
    assert writer.needs_reconcile(ObjectChange(key, old, new))


async def test_a_watch_that_is_faster_than_the_answer_leaves_nothing_to_wait_for(
    client: Client, namespace: str
) -> None:
    cached = Cached(client, namespace)
    old, writer, key = await cached.made(client), cached.writer, cached.key
    meta = msgspec.structs.replace(old.metadata, resourceVersion=str(10**15))
    cached.shows(msgspec.structs.replace(old, metadata=meta))
    assert await writer.write(old, {"text": "y"}) is not None
    assert not writer.is_stale(key, old)
