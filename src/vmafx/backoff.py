"""Exponential backoff: the delays between retries, by one rule for all of them."""

import random
from collections.abc import Callable

import msgspec

MAX_DOUBLINGS = 60  # keeps the delay within the range of a float


class Backoff(msgspec.Struct, frozen=True):
    """`first` seconds after the first failure, doubled after each further one, up to `longest`.

    `spread` is the random part of a delay, which keeps clients that failed together from retrying together: with 1.0,
    a delay of 10 s becomes 5 to 15 s; with 0, it stays 10 s.
    """

    first: float
    longest: float
    spread: float = 1.0
    jitter: Callable[[], float] = random.random

    def delay(self, failures: int, at_least: float = 0.0) -> float:
        """Seconds to wait after the given number of consecutive failures; `at_least` is what a server asked for."""
        delay = self.first * 2.0 ** (min(failures - 1, MAX_DOUBLINGS) if failures > 1 else 0)
        if at_least:
            delay = max(delay, at_least)
        delay = min(delay, self.longest)
        return delay * (1 + self.spread * (self.jitter() - 0.5)) if self.spread else delay


class Retries:
    """Counts the consecutive failures of one operation."""

    def __init__(self, backoff: Backoff) -> None:
        self._backoff, self._failures = backoff, 0

    def next(self) -> float:
        """Record a failure, and return the seconds until the next retry."""
        self._failures += 1
        return self._backoff.delay(self._failures)

    def reset(self) -> None:
        """Record a success."""
        self._failures = 0
