"""Objects by key, with indexes. One writer, the informer; readers get the objects themselves, which are immutable."""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

from vmafx.kube import Key

T = TypeVar("T")
Indexer = Callable[[T], Iterable[Hashable]]


class Change(NamedTuple, Generic[T]):
    """What became of an object: `old` is None for a new one, `new` for one that is gone."""

    key: Key
    old: T | None
    new: T | None


class Store(Generic[T]):
    """A cache of one resource."""

    def __init__(self, indexes: Mapping[str, Indexer[T]] | None = None) -> None:
        self._indexers = dict(indexes or {})
        self._objects: dict[Key, T] = {}
        self._indexes: dict[str, dict[Hashable, dict[Key, T]]] = {name: {} for name in self._indexers}

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, key: Key) -> T | None:
        return self._objects.get(key)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._objects)

    def values(self) -> Collection[T]:
        return self._objects.values()

    def by(self, index: str, value: Hashable) -> Collection[T]:
        """The objects that the index files under `value`."""
        return self._indexes[index].get(value, {}).values()

    def values_of(self, index: str) -> Collection[Hashable]:
        """The values that the index files anything under."""
        return self._indexes[index].keys()

    def put(self, key: Key, new: T) -> Change[T]:
        old = self._objects.get(key)
        self._objects[key] = new
        for name, indexer in self._indexers.items():
            if old is not None:
                self._unfile(name, key, indexer(old))
            for value in indexer(new):
                self._indexes[name].setdefault(value, {})[key] = new
        return Change(key, old, new)

    def remove(self, key: Key) -> Change[T] | None:
        old = self._objects.pop(key, None)
        if old is None:
            return None
        for name, indexer in self._indexers.items():
            self._unfile(name, key, indexer(old))
        return Change(key, old, None)

    def replace(self, objects: dict[Key, T]) -> list[Change[T]]:
        """Become exactly `objects`, at once, and tell what that changed: also what is gone, which no event tells."""
        before, self._objects = self._objects, objects
        self._indexes = {name: {} for name in self._indexers}
        for name, indexer in self._indexers.items():
            for key, new in objects.items():
                for value in indexer(new):
                    self._indexes[name].setdefault(value, {})[key] = new
        changes = [Change(key, before.get(key), new) for key, new in objects.items() if before.get(key) != new]
        return changes + [Change(key, old, None) for key, old in before.items() if key not in objects]

    def _unfile(self, name: str, key: Key, values: Iterable[Hashable]) -> None:
        index = self._indexes[name]
        for value in values:
            filed = index.get(value)
            if filed is not None:
                filed.pop(key, None)
                if not filed:
                    del index[value]
