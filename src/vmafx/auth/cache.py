"""Bounded, expiring caches, calls shared between concurrent callers, and a limit on failures."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from cachetools import TLRUCache

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Now = Callable[[], float]


class ExpiringCache(Generic[K, V]):
    """Answers, each for its time. When there are too many, the one goes that nobody wanted for the longest."""

    def __init__(self, most: int, now: Now) -> None:
        self._known: TLRUCache[K, tuple[float, V]] = TLRUCache(most, lambda _key, kept, _now: kept[0], now)

    def get(self, key: K) -> V | None:
        kept = self._known.get(key)
        return None if kept is None else kept[1]

    def put(self, key: K, value: V, until: float) -> None:
        """In place of what was there; a time that is over only takes that away."""
        self._known.pop(key, None)
        self._known[key] = (until, value)


class SingleFlight(Generic[K, V]):
    """Those who ask the same while it is being found out get the same answer."""

    def __init__(self) -> None:
        self._asked: dict[K, asyncio.Task[V]] = {}

    async def ask(self, key: K, answer: Callable[[], Coroutine[Any, Any, V]]) -> V:
        task = self._asked.get(key)
        if task is None:
            task = self._asked[key] = asyncio.create_task(answer())
            task.add_done_callback(lambda done: self._over(key, done))
        return await asyncio.shield(task)  # who goes away does not take the answer from the others

    def _over(self, key: K, task: asyncio.Task[V]) -> None:
        del self._asked[key]
        if not task.cancelled():
            task.exception()  # there may be nobody left to hear of it


class FailureLimiter(Generic[K]):
    """Who was refused too often lately: `most` at a time, and one is forgiven every so many seconds."""

    def __init__(self, most: int, forgiven_every: float, now: Now, keys_most: int) -> None:
        self._every, self._now, self._span = forgiven_every, now, most * forgiven_every
        self._forgiven_at: ExpiringCache[K, float] = ExpiringCache(keys_most, now)  # when all of a key's are

    def strike(self, key: K) -> None:
        forgiven_at = max(self._forgiven_at.get(key) or 0.0, self._now()) + self._every
        self._forgiven_at.put(key, forgiven_at, forgiven_at)

    def out(self, key: K) -> bool:
        return (self._forgiven_at.get(key) or 0.0) - self._now() > self._span - self._every
