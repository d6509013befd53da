"""How long to wait before something is tried again: one rule for every retry."""

import random
from collections.abc import Callable

import msgspec

MAX_DOUBLINGS = 60  # beyond it, a float is long at any maximum


class Backoff(msgspec.Struct, frozen=True):
    """`first` seconds after the first failure, twice as long after each further one, `longest` at most.

    `spread` is the part of it that is random, so that many who failed together do not come back together: with 1.0 a
    delay of 10 s becomes 5 to 15 s, with 0 it stays 10 s.
    """

    first: float
    longest: float
    spread: float = 1.0
    jitter: Callable[[], float] = random.random

    def delay(self, failures: int, at_least: float = 0.0) -> float:
        """Seconds to wait after so many failures in a row, counted from 1; `at_least` so many, as a server may ask."""
        delay = self.first * 2.0 ** (min(failures - 1, MAX_DOUBLINGS) if failures > 1 else 0)
        if at_least:
            delay = max(delay, at_least)
        delay = min(delay, self.longest)
        return delay * (1 + self.spread * (self.jitter() - 0.5)) if self.spread else delay


class Retries:
    """The failures in a row of one thing that is tried again and again."""

    def __init__(self, backoff: Backoff) -> None:
        self._backoff, self._failures = backoff, 0

    def next(self) -> float:
        """It failed once more: seconds until the next try."""
        self._failures += 1
        return self._backoff.delay(self._failures)

    def reset(self) -> None:
        """It went well."""
        self._failures = 0
