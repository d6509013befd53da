"""Caches with expiry, the limit on failures, and the address that it counts by."""

import pytest

from vmafx.auth.cache import ExpiringCache, FailureLimiter
from vmafx.auth.credentials import host_of


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
