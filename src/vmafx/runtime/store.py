"""Objects by key, with indexes. Only the informer writes; readers get the objects themselves, which are immutable."""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

from vmafx.kube import ObjectKey

T = TypeVar("T")
Indexer = Callable[[T], Iterable[Hashable]]


class ObjectChange(NamedTuple, Generic[T]):
    """A change of an object: `old` is None if it was added, `new` is None if it was deleted."""

    key: ObjectKey
    old: T | None
    new: T | None


class Store(Generic[T]):
    """The cached objects of one resource."""

    def __init__(self, indexes: Mapping[str, Indexer[T]] | None = None) -> None:
        self._indexers = dict(indexes or {})
        self._objects: dict[ObjectKey, T] = {}
        self._indexes: dict[str, dict[Hashable, dict[ObjectKey, T]]] = {name: {} for name in self._indexers}

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, key: ObjectKey) -> T | None:
        return self._objects.get(key)

    def __iter__(self) -> Iterator[ObjectKey]:
        return iter(self._objects)

    def values(self) -> Collection[T]:
        return self._objects.values()

    def by(self, index: str, value: Hashable) -> Collection[T]:
        """The objects that have `value` in the index."""
        return self._indexes[index].get(value, {}).values()

    def values_of(self, index: str) -> Collection[Hashable]:
        """The values that at least one object has in the index."""
        return self._indexes[index].keys()

    def put(self, key: ObjectKey, new: T) -> ObjectChange[T]:
        old = self._objects.get(key)
        self._objects[key] = new
        for name, indexer in self._indexers.items():
            if old is not None:
                self._remove_from_index(name, key, indexer(old))
            for value in indexer(new):
                self._indexes[name].setdefault(value, {})[key] = new
        return ObjectChange(key, old, new)

    def remove(self, key: ObjectKey) -> ObjectChange[T] | None:
        old = self._objects.pop(key, None)
        if old is None:
            return None
        for name, indexer in self._indexers.items():
            self._remove_from_index(name, key, indexer(old))
        return ObjectChange(key, old, None)

    def replace(self, objects: dict[ObjectKey, T]) -> list[ObjectChange[T]]:
        """Replace all objects after a relist; the changes include deletions, for which there was no watch event."""
        before, self._objects = self._objects, objects
        self._indexes = {name: {} for name in self._indexers}
        for name, indexer in self._indexers.items():
            for key, new in objects.items():
                for value in indexer(new):
                    self._indexes[name].setdefault(value, {})[key] = new
        changes = [ObjectChange(key, before.get(key), new) for key, new in objects.items() if before.get(key) != new]
        return changes + [ObjectChange(key, old, None) for key, old in before.items() if key not in objects]

    def _remove_from_index(self, name: str, key: ObjectKey, values: Iterable[Hashable]) -> None:
        index = self._indexes[name]
        for value in values:
            objects = index.get(value)
            if objects is not None:
                objects.pop(key, None)
                if not objects:
                    del index[value]
