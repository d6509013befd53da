"""What is kept of answers, for how long, and of how many."""

import pytest

from vmafx.auth.cache import ExpiringCache, FailureLimiter
from vmafx.auth.credentials import host_of


class Clock:
    at = 0.0

    def __call__(self) -> float:
        return self.at


def test_an_answer_is_forgotten_when_its_time_is_over() -> None:
    clock = Clock()
    recent: ExpiringCache[str, int] = ExpiringCache(10, clock)
    recent.put("a", 1, until=5.0)
    clock.at = 4.9
    assert recent.get("a") == 1
    clock.at = 5.0
    assert recent.get("a") is None


def test_the_one_that_nobody_wants_makes_room() -> None:
    recent: ExpiringCache[str, int] = ExpiringCache(2, Clock())
    recent.put("a", 1, until=5.0)
    recent.put("b", 2, until=5.0)
    assert recent.get("a") == 1
    recent.put("c", 3, until=5.0)
    assert [recent.get(key) for key in "abc"] == [1, None, 3]


def test_strikes_are_forgiven_one_by_one() -> None:
    clock = Clock()
    strikes: FailureLimiter[str] = FailureLimiter(3, 10.0, clock, keys_most=10)
    for _ in range(3):
        assert not strikes.out("a")
        strikes.strike("a")
    assert strikes.out("a")
    assert not strikes.out("b")
    clock.at = 10.0
    assert not strikes.out("a")
    strikes.strike("a")
    assert strikes.out("a")
    clock.at = 1000.0
    for _ in range(3):
        assert not strikes.out("a")
        strikes.strike("a")
    assert strikes.out("a")


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
def test_limits_count_by_address(peer: str, host: str) -> None:
    assert host_of(peer) == host
