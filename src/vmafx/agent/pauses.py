"""How long to wait before something is tried again."""

import random


class Pauses:
    """Each twice as long as the one before, up to a limit; never quite the same for two agents."""

    def __init__(self, first: float, most: float) -> None:
        self._first, self._most = first, most
        self._next = first

    def next(self) -> float:
        now, self._next = self._next, min(2 * self._next, self._most)
        return now * random.uniform(0.75, 1.0)  # noqa: S311 - no secret

    def reset(self) -> None:
        self._next = self._first
