"""Keys waiting to be worked on: each once, never two workers on one, again after a delay or with growing patience.

There are two lanes. What is added `low` is taken when there is nothing else, and with the others once it is added as
they are, or its delay is over.
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
FIRST_DELAY, MAX_DELAY = 0.005, 300.0


class QueueClosed(Exception):
    """The queue is shut down and empty."""


class WorkQueue(Generic[K]):
    """A key that is added while a worker has it waits until that worker is done, and is then taken once more."""

    def __init__(self, metrics: QueueMetrics, jitter: Callable[[], float] = random.random) -> None:
        self._metrics, self._backoff = metrics, Backoff(FIRST_DELAY, MAX_DELAY, jitter=jitter)
        self._ready: deque[K] = deque()
        self._low: OrderedDict[K, None] = OrderedDict()  # ready too, for when nothing else is
        self._low_when_done: set[K] = set()  # of the waiting: those to be made ready in the lower lane
        self._waiting: dict[K, float] = {}  # ready, or to be made ready when its worker is done; with the time it came
        self._working: dict[K, float] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._failures: dict[K, int] = {}
        self._getters: deque[asyncio.Future[None]] = deque()
        self._closed = False
        metrics.observe(lambda: len(self), lambda: [loop_time() - since for since in self._working.values()])

    def __len__(self) -> int:
        return len(self._ready) + len(self._low)

    def add(self, key: K, *, low: bool = False) -> None:
        """Have the key worked on as soon as a worker is free; a no-op for one that waits already in as good a lane."""
        if self._closed:
            return
        if not low:
            self._forget_timer(key)
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
        """Add the key later. Of several delays for one key the shortest counts; a key that waits already is enough."""
        if seconds <= 0:
            self.add(key)
        elif not self._closed and (key not in self._waiting or self._is_low(key)):
            due = loop_time() + seconds
            timer = self._timers.get(key)
            if timer is None or due < timer.when():
                if timer is not None:
                    timer.cancel()
                self._timers[key] = asyncio.get_running_loop().call_at(due, self._due, key)

    def add_backing_off(self, key: K) -> None:
        """Add the key after a delay that doubles with every failure since the last `forget`."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self._metrics.retried()
        self.add_after(key, self._backoff.delay(failures))

    def forget(self, key: K) -> None:
        """The key did well: its next failure is its first."""
        self._failures.pop(key, None)

    async def get(self) -> K:
        """The next key, which is then the caller's until `done`. Cancelling it takes nothing out of the queue."""
        while not self:
            if self._closed:
                raise QueueClosed
            getter = asyncio.get_running_loop().create_future()
            self._getters.append(getter)
            try:
                await getter
            except BaseException:
                if getter.done() and not getter.cancelled():
                    self._wake()  # we were called and cannot come: call the next
                elif getter in self._getters:
                    self._getters.remove(getter)
                raise
        key = self._ready.popleft() if self._ready else self._low.popitem(last=False)[0]
        self._forget_timer(key)
        now = loop_time()
        self._metrics.taken(now - self._waiting.pop(key))
        self._working[key] = now
        return key

    def done(self, key: K) -> None:
        """The caller is through with the key."""
        self._metrics.worked(loop_time() - self._working.pop(key))
        if key in self._waiting:
            self._make_ready(key)

    def close(self) -> None:
        """Take nothing more in; what is ready is still handed out, then `get` raises Closed."""
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        while self._getters:
            self._wake()

    def _due(self, key: K) -> None:
        self._timers.pop(key, None)
        self.add(key)

    def _forget_timer(self, key: K) -> None:
        if timer := self._timers.pop(key, None):
            timer.cancel()

    def _is_low(self, key: K) -> bool:
        return key in self._low or key in self._low_when_done

    def _promote(self, key: K) -> None:
        """It waits in the lower lane, or is about to: no longer."""
        self._low_when_done.discard(key)
        if key in self._low:
            del self._low[key]
            self._ready.append(key)

    def _make_ready(self, key: K) -> None:
        if key in self._low_when_done:
            self._low_when_done.discard(key)
            self._low[key] = None
        else:
            self._ready.append(key)
        self._wake()

    def _wake(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return
