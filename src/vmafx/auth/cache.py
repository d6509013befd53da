"""Bounded, expiring caches, calls shared between concurrent callers, and limits on failures."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Generic, TypeVar

from cachetools import TLRUCache

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Now = Callable[[], float]


class ExpiringCache(Generic[K, V]):
    """A cache whose entries each have their own expiry time. When full, it evicts the least recently used entry."""

    def __init__(self, max_entries: int, now: Now) -> None:
        self._entries: TLRUCache[K, tuple[float, V]] = TLRUCache(max_entries, lambda _key, entry, _now: entry[0], now)

    def get(self, key: K) -> V | None:
        entry = self._entries.get(key)
        return None if entry is None else entry[1]

    def put(self, key: K, value: V, until: float) -> None:
        """Replace the entry of `key`; with `until` in the past, only remove it."""
        self._entries.pop(key, None)
        self._entries[key] = (until, value)


class SingleFlight(Generic[K, V]):
    """Concurrent calls with the same key share one execution and its result, as with Go's singleflight."""

    def __init__(self) -> None:
        self._tasks: dict[K, asyncio.Task[V]] = {}

    async def do(self, key: K, function: Callable[[], Coroutine[Any, Any, V]]) -> V:
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = asyncio.create_task(function())
            task.add_done_callback(lambda done: self._finish(key, done))
        return await asyncio.shield(task)  # a cancelled caller does not cancel the others

    def _finish(self, key: K, task: asyncio.Task[V]) -> None:
        del self._tasks[key]
        if not task.cancelled():
            task.exception()  # mark it as retrieved: every caller may have been cancelled


class FailureLimiter(Generic[K]):
    """Limits each key to `max_failures` recent failures; one of them expires every `decay` seconds."""

    def __init__(self, max_failures: int, decay: float, now: Now, max_keys: int) -> None:
        self._decay, self._now, self._span = decay, now, max_failures * decay
        self._clear_at: ExpiringCache[K, float] = ExpiringCache(max_keys, now)  # when a key's last failure expires

    def record(self, key: K) -> None:
        clear_at = max(self._clear_at.get(key) or 0.0, self._now()) + self._decay
        self._clear_at.put(key, clear_at, clear_at)

    def is_limited(self, key: K) -> bool:
        return self.delay(key) > 0

    def delay(self, key: K) -> float:
        """Seconds until the key is not limited."""
        return max((self._clear_at.get(key) or 0.0) - self._now() - self._span + self._decay, 0.0)


class QueueFull(Exception):
    """Too many wait already, or the wait took too long."""


class FailureQueue(Generic[K]):
    """A queue for each key that has failed too often: whoever waits gets a turn when a failure has expired.

    Turns are taken one after another, so only failures slow a queue down.
    """

    def __init__(self, failures: FailureLimiter[K], max_wait: float, max_per_key: int, max_total: int) -> None:
        self._failures, self._max_wait = failures, max_wait
        self._max_per_key, self._max_total = max_per_key, max_total
        self._turns: dict[K, asyncio.Lock] = {}
        self._waiting: Counter[K] = Counter()

    @asynccontextmanager
    async def turn(self, key: K) -> AsyncIterator[None]:
        """Wait for a turn, and end it with the `with`; QueueFull if there is no room, or no turn in time."""
        if self._waiting[key] >= self._max_per_key or self._waiting.total() >= self._max_total:
            raise QueueFull
        self._waiting[key] += 1
        lock = self._turns.setdefault(key, asyncio.Lock())
        try:
            async with AsyncExitStack() as turn:
                try:
                    async with asyncio.timeout(self._max_wait):
                        await turn.enter_async_context(lock)
                        await asyncio.sleep(self._failures.delay(key))
                except TimeoutError:
                    raise QueueFull from None
                yield
        finally:
            self._waiting[key] -= 1
            if not self._waiting[key]:
                del self._waiting[key], self._turns[key]
