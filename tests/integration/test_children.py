"""A kind with children, on a real API server: applied, kept as wanted, pruned, told in a status, never taken over."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.waiting import eventually
from tests.support.widgets import CONFIG_MAPS, MANAGER, SERVICES, WIDGETS, Widget, WidgetReconciler, reconciling
from vmafx.kube import Client, Key, Resource
from vmafx.kube.errors import Conflict, NotFound
from vmafx.kube.resources import Untyped
from vmafx.runtime.children import MANAGED_BY, Child, Children, NameTaken, Owner, child_informer
from vmafx.runtime.conditions import find_condition


class Widgets:
    """What a person does with widgets, and sees of them."""

    def __init__(self, client: Client, namespace: str, reconciler: WidgetReconciler) -> None:
        self.client, self.namespace, self.reconciler = client, namespace, reconciler

    def key(self, name: str = "w") -> Key:
        return Key(self.namespace, name)

    async def make(self, name: str = "w", **spec: Any) -> Widget:
        body = {"apiVersion": WIDGETS.api_version, "kind": WIDGETS.kind, "metadata": {"name": name}, "spec": spec}
        return await self.client.create(WIDGETS, body, self.namespace)

    async def change(self, **spec: Any) -> None:
        await self.client.merge_patch(WIDGETS, self.key(), {"spec": spec})

    async def get(self, kind: Resource[Untyped], name: str = "w") -> Untyped | None:
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

    async def until(self, kind: Resource[Untyped], holds: Any, what: str) -> None:
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
        assert child["metadata"]["labels"][MANAGED_BY] == MANAGER
        assert [one["operation"] for one in child["metadata"]["managedFields"]] == ["Apply"]


async def test_what_is_no_longer_wanted_is_removed(widgets: Widgets) -> None:
    """A field of a child, and a whole child."""
    await widgets.make(text="hello", port=80)
    await widgets.settled()
    await widgets.change(text="bye", port=None)
    assert (await widgets.settled()).status.text == "bye"
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

    def repaired(child: Untyped | None) -> bool:
        return (
            child is not None
            and child.get("data") == {"text": "hello"}
            and child["metadata"].get("labels", {}).get(MANAGED_BY) == MANAGER
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


async def test_what_is_as_wanted_is_not_written_again(widgets: Widgets) -> None:
    """However often it is looked at, and whatever happens to the fields of others."""
    await widgets.make(text="hello", port=80)
    await widgets.settled()
    before = [await widgets.get(kind) for kind in (CONFIG_MAPS, SERVICES)]
    asked = widgets.reconciler.reconciled
    for number in range(3):
        await widgets.client.merge_patch(CONFIG_MAPS, widgets.key(), {"data": {"theirs": str(number)}})
        await widgets.looked(asked + number + 1)
    after = [await widgets.get(kind) for kind in (CONFIG_MAPS, SERVICES)]
    assert after[1] == before[1]
    assert before[0] is not None
    assert after[0] is not None
    ours = [one for one in after[0]["metadata"]["managedFields"] if one["manager"] == MANAGER]
    assert ours == before[0]["metadata"]["managedFields"]


@pytest.mark.parametrize("owned", [False, True], ids=["nobody's", "another's"])
async def test_what_somebody_else_made_is_never_taken_over(owned: bool, widgets: Widgets) -> None:
    there = await widgets.client.create(CONFIG_MAPS, {"metadata": {"name": "x"}}, widgets.namespace)
    uid = there["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": uid, "controller": True}
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "w", "labels": {MANAGED_BY: MANAGER}, "ownerReferences": [owner] if owned else []},
        "data": {"text": "theirs"},
    }
    theirs = await widgets.client.create(CONFIG_MAPS, body, widgets.namespace)
    await widgets.make(text="hello")
    told = await widgets.settled(reason="NameTaken")
    ready = find_condition(told.status.conditions, "Ready")
    assert ready is not None
    assert ready.message == "there is a ConfigMap w already, and it is not Widget w's"
    assert await widgets.get(CONFIG_MAPS) == theirs
    await widgets.client.delete(WIDGETS, widgets.key())
    await eventually(lambda: widgets.reconciler.widgets.store.get(widgets.key()) is None, "the widget is gone")
    assert await widgets.get(CONFIG_MAPS) == theirs


class LateChildren(Children):
    """Somebody else makes the child just after we saw that there is none."""

    async def _find(self, resource: Resource[Child], key: Key) -> Child | None:
        found = await super()._find(resource, key)
        if found is None:
            await self._client.create(
                CONFIG_MAPS, {"metadata": {"name": key.name}, "data": {"text": "theirs"}}, "default"
            )
        return found


async def test_nor_is_what_somebody_makes_at_the_same_moment(client: Client, namespace: str) -> None:
    cache = child_informer(client, CONFIG_MAPS, namespace, MANAGER)
    owner = Owner(WIDGETS.api_version, WIDGETS.kind, "default", "w", "0000")
    children = LateChildren(client, MANAGER, [cache])
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": namespace}, "data": {"text": "ours"}}
    with pytest.raises(Conflict):
        await children.sync(owner, [body])
    with pytest.raises(NameTaken, match="is not Widget w's"):
        await children.sync(owner, [body])
    assert (await client.get(CONFIG_MAPS, Key("default", namespace)))["data"] == {"text": "theirs"}


async def test_a_child_of_a_shape_that_could_change_unseen_is_refused(client: Client, namespace: str) -> None:
    children = Children(client, MANAGER, [child_informer(client, CONFIG_MAPS, namespace, MANAGER)])
    owner = Owner(WIDGETS.api_version, WIDGETS.kind, namespace, "w", "0000")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "immutable": True}
    with pytest.raises(TypeError, match="immutable would not be seen to change"):
        await children.sync(owner, [body])
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAPS, Key(namespace, "x"))


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


async def test_a_status_is_written_once_and_not_decided_on_twice(widgets: Widgets) -> None:
    """The echo of a write is no news, and a cache that does not show it yet is not decided on."""
    await widgets.make(text="hello")
    told = await widgets.settled()
    await eventually(lambda: not widgets.reconciler.controller.queue, "nothing waits", every=0.02)
    looked, version = widgets.reconciler.reconciled, told.metadata.resourceVersion
    await widgets.make("other", text="x")
    await widgets.settled("other")
    assert (await client_version(widgets)) == version
    assert widgets.reconciler.reconciled > looked
    ready = find_condition(told.status.conditions, "Ready")
    assert ready is not None
    await widgets.change(text="bye")
    again = find_condition((await widgets.settled()).status.conditions, "Ready")
    assert again is not None
    assert (again.lastTransitionTime, again.observedGeneration) == (ready.lastTransitionTime, 2)


async def client_version(widgets: Widgets) -> str:
    return (await widgets.client.get(WIDGETS, widgets.key())).metadata.resourceVersion
