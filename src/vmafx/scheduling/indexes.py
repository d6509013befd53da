"""In-memory indexes: sets by key, and sets ordered by rank."""

import heapq
from collections.abc import Callable, Collection, Hashable, KeysView
from itertools import count
from typing import Any, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item", bound=Hashable)
Rank = TypeVar("Rank", bound=tuple[Any, ...])

STALE_ENTRIES = 64  # a heap may have this many stale entries, and three more per item, before it is rebuilt


class SetIndex(Generic[Key, Item]):
    """Sets by key. Empty sets are deleted, so that keys no longer in use cost nothing."""

    def __init__(self) -> None:
        self._sets: dict[Key, set[Item]] = {}

    def __len__(self) -> int:
        return len(self._sets)

    def __getitem__(self, key: Key) -> Collection[Item]:
        return self._sets.get(key, ())

    def add(self, key: Key, item: Item) -> None:
        self._sets.setdefault(key, set()).add(item)

    def discard(self, key: Key, item: Item) -> None:
        items = self._sets.get(key)
        if items is not None:
            items.discard(item)
            if not items:
                del self._sets[key]


class RankedSet(Generic[Item, Rank]):
    """A set ordered by rank, lowest first; the rank of an item can change.

    A heap with lazy deletion: an entry is stale unless it is the one in `_entries`. Stale entries are skipped, and
    removed before there are many.
    """

    def __init__(self) -> None:
        self._entries: dict[Item, tuple[Rank, int, Item]] = {}
        self._heap: list[tuple[Rank, int, Item]] = []
        self._serial = count()  # breaks ties, so that items need no order
        self.items: KeysView[Item] = self._entries.keys()

    def rank(self, item: Item) -> Rank:
        return self._entries[item][0]

    def put(self, item: Item, rank: Rank) -> None:
        """Add the item, or change its rank."""
        known = self._entries.get(item)
        if known is None or known[0] != rank:
            entry = self._entries[item] = (rank, next(self._serial), item)
            heapq.heappush(self._heap, entry)
            if len(self._heap) > 4 * len(self._entries) + STALE_ENTRIES:
                self._rebuild()

    def drop(self, item: Item) -> None:
        if self._entries.pop(item, None) is not None and len(self._heap) > 4 * len(self._entries) + STALE_ENTRIES:
            self._rebuild()

    def first(self) -> Item | None:
        heap, entries = self._heap, self._entries
        while heap:
            entry = heap[0]
            item = entry[2]
            if entries.get(item) is entry:
                return item
            heapq.heappop(heap)
        return None

    def first_that(self, suits: Callable[[Item], bool]) -> Item | None:
        """The first item for which `suits` is true. Cost grows with the number of items before it."""
        skipped = []
        while (item := self.first()) is not None and not suits(item):
            skipped.append(heapq.heappop(self._heap))
        for entry in skipped:
            heapq.heappush(self._heap, entry)
        return item

    def _rebuild(self) -> None:
        self._heap = list(self._entries.values())
        heapq.heapify(self._heap)
