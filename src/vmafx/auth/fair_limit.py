"""A limit on what is held at the same time, shared fairly between addresses or callers."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from vmafx.auth.credentials import host_of
from vmafx.http.errors import Overload, StatusError


def sharing_key(user: str, peer: str) -> str:
    """Who holds what is limited: the user if it is known, the address otherwise."""
    return f"user {user}" if user else f"address {host_of(peer)}"


class FairLimit:
    """At most `total` are held at once, and no key holds more than are free, nor more than `most`.

    One key alone holds at most half, two hold at most a third each, and so on: what they leave free is for others.
    """

    def __init__(self, total: int, what: str, most: int | None = None) -> None:
        self._total, self._what = total, what  # `what` is a plural noun, for the error
        self._most = total if most is None else most
        self._held: Counter[str] = Counter()
        self._count = 0

    @contextmanager
    def hold(self, key: str, caller: str = "") -> Iterator[None]:
        """Hold one during the `with`; StatusError if the key has its share already, Overload if others have all.

        `caller` is for the log.
        """
        if self._held[key] >= min(self._total - self._count, self._most):
            message = f"too many {self._what} at the same time; end some of yours, or try again later"
            if not self._held[key]:
                raise Overload(message, caller=caller)
            raise StatusError("RESOURCE_EXHAUSTED", message, caller=caller)
        self._held[key] += 1
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1
            self._held[key] -= 1
            if not self._held[key]:
                del self._held[key]
