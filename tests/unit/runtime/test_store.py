"""The store against the plainest model of one."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from vmafx.kube import ObjectKey
from vmafx.runtime.store import Store


class Thing(msgspec.Struct, frozen=True):
    colours: tuple[str, ...] = ()
    size: int = 0


KEYS = st.builds(ObjectKey, st.sampled_from("xy"), st.sampled_from("abc"))
THINGS = st.builds(Thing, st.lists(st.sampled_from("rgb"), max_size=3, unique=True).map(tuple), st.integers(0, 2))
STEPS = st.one_of(
    st.tuples(st.just("put"), KEYS, THINGS),
    st.tuples(st.just("remove"), KEYS),
    st.tuples(st.just("replace"), st.dictionaries(KEYS, THINGS)),
)


@given(st.lists(STEPS, max_size=30))
def test_it_says_what_a_dictionary_would_and_tells_every_change(steps: list[Any]) -> None:
    store = Store({"colour": lambda thing: thing.colours, "size": lambda thing: (thing.size,)})
    model: dict[ObjectKey, Thing] = {}
    told: dict[ObjectKey, Thing] = {}  # what somebody knows who only listens to the changes
    for step in steps:
        match step:
            case "put", key, thing:
                model[key] = thing
                changes = [store.put(key, thing)]
            case "remove", key:
                model.pop(key, None)
                changes = [change for change in [store.remove(key)] if change]
            case "replace", things:
                model = dict(things)
                changes = store.replace(dict(things))
        for change in changes:
            assert told.get(change.key) == change.old
            if change.new is None:
                del told[change.key]
            else:
                told[change.key] = change.new
        assert dict(zip(store, store.values(), strict=True)) == model == told
        assert all(store.get(key) == thing for key, thing in model.items())
        for colour in "rgb":
            filed = sorted(map(repr, store.by("colour", colour)))
            assert filed == sorted(repr(thing) for thing in model.values() if colour in thing.colours)
        assert set(store.values_of("size")) == {thing.size for thing in model.values()}


def test_a_relist_in_which_nothing_changed_tells_nothing() -> None:
    store: Store[Thing] = Store()
    store.replace({ObjectKey("x", "a"): Thing(size=1)})
    assert store.replace({ObjectKey("x", "a"): Thing(size=1)}) == []
