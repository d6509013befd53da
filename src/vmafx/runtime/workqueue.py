"""A work queue of keys: each key waits at most once and has at most one worker; delays and rate limits as in client-go.

There are two lanes, each with workers of its own, so that keys of low priority never keep others waiting. A key moves
to the normal lane when it is added there or when its delay ends.
"""

import asyncio
import random
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from vmafx.backoff import Backoff
from vmafx.clock import loop_time
from vmafx.runtime.metrics import QueueMetrics

K = TypeVar("K", bound=Hashable)
FIRST_DELAY, MAX_DELAY = 0.005, 300.0  # seconds, of a rate-limited key


class QueueClosed(Exception):
    """The queue is closed and empty."""


class WorkQueue(Generic[K]):
    """Keys to reconcile. A key that is added while a worker has it becomes ready when that worker is done."""

    def __init__(self, metrics: QueueMetrics, jitter: Callable[[], float] = random.random) -> None:
        self._metrics, self._backoff = metrics, Backoff(FIRST_DELAY, MAX_DELAY, jitter=jitter)
        self._ready: deque[K] = deque()
        self._ready_low: OrderedDict[K, None] = OrderedDict()
        self._low_when_done: set[K] = set()  # waiting keys that become ready in the low-priority lane
        self._waiting: dict[K, float] = {}  # ready, or ready when their worker is done; since when
        self._working: dict[K, float] = {}  # keys that a worker has; since when
        self._working_low: set[K] = set()  # those of them that were taken from the low-priority lane
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._failures: dict[K, int] = {}
        self._getters: deque[asyncio.Future[None]] = deque()
        self._low_getters: deque[asyncio.Future[None]] = deque()
        self._closed = False
        metrics.observe(lambda: len(self), lambda: [loop_time() - since for since in self._working.values()])

    def __len__(self) -> int:
        return len(self._ready) + len(self._ready_low)

    def is_busy(self) -> bool:
        """Whether keys of the normal lane are ready, or a worker has one."""
        return bool(self._ready) or len(self._working) > len(self._working_low)

    def add(self, key: K, *, low: bool = False) -> None:
        """Make the key ready; a no-op if it already waits in this lane or a better one."""
        if self._closed:
            return
        if not low:
            self._cancel_timer(key)
        if key in self._waiting:
            if not low:
                self._promote(key)
            return
        self._waiting[key] = loop_time()
        self._metrics.added()
        if low:
            self._low_when_done.add(key)
        if key not in self._working:
            self._make_ready(key)

    def add_after(self, key: K, seconds: float) -> None:
        """Add the key after a delay. The shortest delay of a key counts; a no-op if it waits in the normal lane."""
        if seconds <= 0:
            self.add(key)
        elif not self._closed and (key not in self._waiting or self._is_low(key)):
            due = loop_time() + seconds
            timer = self._timers.get(key)
            if timer is None or due < timer.when():
                self._cancel_timer(key)
                self._timers[key] = asyncio.get_running_loop().call_at(due, self._delay_ended, key)

    def add_rate_limited(self, key: K) -> None:
        """Add the key after a delay that doubles with every call since the last `forget`."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self._metrics.retried()
        self.add_after(key, self._backoff.delay(failures))

    def forget(self, key: K) -> None:
        """Reset the rate limit of the key, after a success."""
        self._failures.pop(key, None)

    async def get(self, *, low: bool = False) -> K:
        """Take the next key of a lane; the caller must call `done` for it. Cancelling `get` loses no key."""
        ready, getters = (self._ready_low, self._low_getters) if low else (self._ready, self._getters)
        while not ready:
            if self._closed:
                raise QueueClosed
            getter = asyncio.get_running_loop().create_future()
            getters.append(getter)
            try:
                await getter
            except BaseException:
                if getter.done() and not getter.cancelled():
                    _wake(getters)  # this getter was woken and cannot take the key
                elif getter in getters:
                    getters.remove(getter)
                raise
        if low:
            key = self._ready_low.popitem(last=False)[0]
            self._working_low.add(key)
        else:
            key = self._ready.popleft()
        self._cancel_timer(key)
        now = loop_time()
        self._metrics.taken(now - self._waiting.pop(key))
        self._working[key] = now
        return key

    def done(self, key: K) -> None:
        """Mark the key as processed."""
        self._metrics.worked(loop_time() - self._working.pop(key))
        self._working_low.discard(key)
        if key in self._waiting:
            self._make_ready(key)

    def close(self) -> None:
        """Accept no more keys. `get` returns the keys that are ready, then raises QueueClosed."""
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for getters in (self._getters, self._low_getters):
            while getters:
                _wake(getters)

    def _delay_ended(self, key: K) -> None:
        self._timers.pop(key, None)
        self.add(key)

    def _cancel_timer(self, key: K) -> None:
        if timer := self._timers.pop(key, None):
            timer.cancel()

    def _is_low(self, key: K) -> bool:
        return key in self._ready_low or key in self._low_when_done

    def _promote(self, key: K) -> None:
        """Move a waiting key to the normal lane."""
        self._low_when_done.discard(key)
        if key in self._ready_low:
            del self._ready_low[key]
            self._make_ready(key)

    def _make_ready(self, key: K) -> None:
        if key in self._low_when_done:
            self._low_when_done.discard(key)
            self._ready_low[key] = None
            _wake(self._low_getters)
        else:
            self._ready.append(key)
            _wake(self._getters)


def _wake(getters: deque[asyncio.Future[None]]) -> None:
    while getters:
        getter = getters.popleft()
        if not getter.done():
            getter.set_result(None)
            return
