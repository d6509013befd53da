"""The store, compared with a plain dictionary."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from vmafx.kube import ObjectKey
from vmafx.runtime.store import Store


class Item(msgspec.Struct, frozen=True):
    colours: tuple[str, ...] = ()
    size: int = 0


KEYS = st.builds(ObjectKey, st.sampled_from("xy"), st.sampled_from("abc"))
ITEMS = st.builds(Item, st.lists(st.sampled_from("rgb"), max_size=3, unique=True).map(tuple), st.integers(0, 2))
STEPS = st.one_of(
    st.tuples(st.just("put"), KEYS, ITEMS),
    st.tuples(st.just("remove"), KEYS),
    st.tuples(st.just("replace"), st.dictionaries(KEYS, ITEMS)),
)


@given(st.lists(STEPS, max_size=30))
def test_a_store_equals_a_dictionary_and_reports_every_change(steps: list[Any]) -> None:
    store = Store({"colour": lambda item: item.colours, "size": lambda item: (item.size,)})
    model: dict[ObjectKey, Item] = {}
    replayed: dict[ObjectKey, Item] = {}  # built from the changes alone
    for step in steps:
        match step:
            case "put", key, item:
                model[key] = item
                changes = [store.put(key, item)]
            case "remove", key:
                model.pop(key, None)
                changes = [change for change in [store.remove(key)] if change]
            case "replace", items:
                model = dict(items)
                changes = store.replace(dict(items))
        for change in changes:
            assert replayed.get(change.key) == change.old
            if change.new is None:
                del replayed[change.key]
            else:
                replayed[change.key] = change.new
        assert dict(zip(store, store.values(), strict=True)) == model == replayed
        assert all(store.get(key) == item for key, item in model.items())
        for colour in "rgb":
            indexed = sorted(map(repr, store.by("colour", colour)))
            assert indexed == sorted(repr(item) for item in model.values() if colour in item.colours)
        assert set(store.values_of("size")) == {item.size for item in model.values()}


def test_a_relist_without_changes_reports_none() -> None:
    store: Store[Item] = Store()
    store.replace({ObjectKey("x", "a"): Item(size=1)})
    assert store.replace({ObjectKey("x", "a"): Item(size=1)}) == []
