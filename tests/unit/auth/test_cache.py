"""Caches with expiry, the limits on failures, and the address that they count by."""

import asyncio

import pytest

from tests.support import virtual
from vmafx.auth.cache import ExpiringCache, FailureLimiter, FailureQueue, QueueFull
from vmafx.auth.credentials import host_of
from vmafx.clock import loop_time


class Clock:
    at = 0.0

    def __call__(self) -> float:
        return self.at


def test_an_entry_expires() -> None:
    clock = Clock()
    cache: ExpiringCache[str, int] = ExpiringCache(10, clock)
    cache.put("a", 1, until=5.0)
    clock.at = 4.9
    assert cache.get("a") == 1
    clock.at = 5.0
    assert cache.get("a") is None


def test_a_full_cache_evicts_the_least_recently_used_entry() -> None:
    cache: ExpiringCache[str, int] = ExpiringCache(2, Clock())
    cache.put("a", 1, until=5.0)
    cache.put("b", 2, until=5.0)
    assert cache.get("a") == 1
    cache.put("c", 3, until=5.0)
    assert [cache.get(key) for key in "abc"] == [1, None, 3]


def test_failures_expire_one_by_one() -> None:
    clock = Clock()
    limiter: FailureLimiter[str] = FailureLimiter(3, 10.0, clock, max_keys=10)
    for _ in range(3):
        assert not limiter.is_limited("a")
        limiter.record("a")
    assert limiter.is_limited("a")
    assert not limiter.is_limited("b")
    clock.at = 10.0
    assert not limiter.is_limited("a")
    limiter.record("a")
    assert limiter.is_limited("a")
    clock.at = 1000.0
    for _ in range(3):
        assert not limiter.is_limited("a")
        limiter.record("a")
    assert limiter.is_limited("a")


class Queued:
    """A queue for keys that fail once per second, and what happened in it: at which second, and which number."""

    def __init__(self, max_wait: float = 10.0, max_per_key: int = 100, max_total: int = 100) -> None:
        self.failures: FailureLimiter[str] = FailureLimiter(2, 1.0, loop_time, max_keys=10)
        self._queue = FailureQueue(self.failures, max_wait, max_per_key, max_total)
        self._started = loop_time()
        self.turns: list[tuple[float, int]] = []
        self.full: list[tuple[float, int]] = []

    async def work(self, key: str, number: int, *, fails: bool) -> None:
        try:
            async with self._queue.turn(key):
                self.turns.append((round(loop_time() - self._started, 3), number))
                if fails:
                    self.failures.record(key)
        except QueueFull:
            self.full.append((round(loop_time() - self._started, 3), number))

    async def work_together(self, key: str, count: int, *, fails: bool) -> None:
        for _ in range(2):
            self.failures.record(key)
        await asyncio.gather(*(self.work(key, number, fails=fails) for number in range(count)))


def test_work_that_fails_gets_a_turn_as_often_as_failures_expire() -> None:
    async def scenario() -> Queued:
        queued = Queued(max_wait=3.5)
        await queued.work_together("a", 5, fails=True)
        return queued

    queued = virtual.run(scenario())
    assert queued.turns == [(1, 0), (2, 1), (3, 2)]
    assert queued.full == [(3.5, 3), (3.5, 4)]


def test_work_that_does_not_fail_waits_only_for_the_first_turn() -> None:
    async def scenario() -> Queued:
        queued = Queued()
        await queued.work_together("a", 5, fails=False)
        return queued

    assert virtual.run(scenario()).turns == [(1, number) for number in range(5)]


def test_a_full_queue_takes_no_more() -> None:
    async def scenario() -> tuple[Queued, Queued]:
        per_key = Queued(max_per_key=3)
        await per_key.work_together("a", 5, fails=False)
        total = Queued(max_total=3)
        await asyncio.gather(total.work_together("a", 2, fails=False), total.work_together("b", 2, fails=False))
        return per_key, total

    per_key, total = virtual.run(scenario())
    assert (per_key.turns, per_key.full) == ([(1, 0), (1, 1), (1, 2)], [(0, 3), (0, 4)])
    assert (len(total.turns), total.full) == (3, [(0, 1)])


def test_a_queue_forgets_keys_that_nobody_waits_for() -> None:
    async def scenario() -> Queued:
        queued = Queued(max_wait=1.5)
        waiting = asyncio.create_task(queued.work_together("a", 3, fails=True))
        await asyncio.sleep(0.5)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await queued.work_together("b", 3, fails=True)
        return queued

    queued = virtual.run(scenario())
    assert not queued._queue._turns
    assert not queued._queue._waiting


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("192.0.2.1:1234", "192.0.2.1"),
        ("ipv4:192.0.2.1:1234", "192.0.2.1"),
        ("ipv6:[2001:db8::1]:1234", "2001:db8::/64"),
        ("ipv6:%5B2001:db8::1%5D:1234", "2001:db8::/64"),
        ("2001:db8::2", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("[2001:db8::3]", "2001:db8::/64"),
        ("unix:/run/x", "unix:/run/x"),
        ("", ""),
    ],
)
def test_the_host_of_a_peer_is_its_address_without_port(peer: str, host: str) -> None:
    assert host_of(peer) == host
