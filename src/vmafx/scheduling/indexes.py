"""In-memory indexes: sets by key, and items ordered by rank."""

import heapq
from collections.abc import Callable, Collection, Hashable, KeysView
from itertools import count
from typing import Any, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Thing = TypeVar("Thing", bound=Hashable)


class SetIndex(Generic[Key, Thing]):
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


SPARE = 64  # entries that do not count are let be up to here, and three for each that does

Rank = TypeVar("Rank", bound=tuple[Any, ...])


class RankedSet(Generic[Thing, Rank]):
    """A lazy heap: an entry counts only while it is the thing's own. The others go before they are many."""

    def __init__(self) -> None:
        self._entries: dict[Thing, tuple[Rank, int, Thing]] = {}
        self._heap: list[tuple[Rank, int, Thing]] = []
        self._serial = count()  # settles ties: things themselves need no order
        self.things: KeysView[Thing] = self._entries.keys()

    def rank(self, thing: Thing) -> Rank:
        return self._entries[thing][0]

    def put(self, thing: Thing, rank: Rank) -> None:
        known = self._entries.get(thing)
        if known is None or known[0] != rank:
            entry = self._entries[thing] = (rank, next(self._serial), thing)
            heapq.heappush(self._heap, entry)
            if len(self._heap) > 4 * len(self._entries) + SPARE:
                self._clear_out()

    def drop(self, thing: Thing) -> None:
        if self._entries.pop(thing, None) is not None and len(self._heap) > 4 * len(self._entries) + SPARE:
            self._clear_out()

    def first(self) -> Thing | None:
        heap, entries = self._heap, self._entries
        while heap:
            entry = heap[0]
            thing = entry[2]
            if entries.get(thing) is entry:
                return thing
            heapq.heappop(heap)
        return None

    def first_that(self, suits: Callable[[Thing], bool]) -> Thing | None:
        """Takes the longer, the more do not."""
        passed_over = []
        while (thing := self.first()) is not None and not suits(thing):
            passed_over.append(heapq.heappop(self._heap))
        for entry in passed_over:
            heapq.heappush(self._heap, entry)
        return thing

    def _clear_out(self) -> None:
        self._heap = list(self._entries.values())
        heapq.heapify(self._heap)
