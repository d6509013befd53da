"""Things that are found by a key that many share."""

from collections.abc import Collection, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Thing = TypeVar("Thing", bound=Hashable)


class Buckets(Generic[Key, Thing]):
    """Sets by key. One that has nothing in it is gone, so that keys of the past cost nothing."""

    def __init__(self) -> None:
        self._sets: dict[Key, set[Thing]] = {}

    def __len__(self) -> int:
        return len(self._sets)

    def __getitem__(self, key: Key) -> Collection[Thing]:
        return self._sets.get(key, ())

    def add(self, key: Key, thing: Thing) -> None:
        self._sets.setdefault(key, set()).add(thing)

    def discard(self, key: Key, thing: Thing) -> None:
        things = self._sets.get(key)
        if things is not None:
            things.discard(thing)
            if not things:
                del self._sets[key]
