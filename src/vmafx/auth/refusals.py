"""Callers that are turned away, told to the log: they may not know whom to ask, and whoever runs this can look here."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from vmafx.auth.credentials import Presented, host_of
from vmafx.auth.recent import Recent
from vmafx.http.errors import Code, Refused
from vmafx.logs import log
from vmafx.plain import plain
from vmafx.times import loop_time

TURNED_AWAY: frozenset[Code] = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED"})
TOLD_EVERY = 60.0  # seconds, of one caller at one address, for one reason
REMEMBERED_MOST = 4096


class Refusals:
    """A line a minute for each caller, address and reason, however often they come. Never their tokens."""

    def __init__(self, now: Callable[[], float] = loop_time) -> None:
        self._now = now
        self._told: Recent[tuple[str, str, Code], bool] = Recent(REMEMBERED_MOST, now)

    @contextmanager
    def told(self, call: str, shown: Presented) -> Iterator[None]:
        try:
            yield
        except Refused as refused:
            if refused.code in TURNED_AWAY:
                self._tell(call, shown, refused)
            raise

    def _tell(self, call: str, shown: Presented, refused: Refused) -> None:
        caller, peer = refused.caller or shown.user or "unknown", host_of(shown.peer)
        if self._told.get((caller, peer, refused.code)):
            return
        self._told.put((caller, peer, refused.code), True, self._now() + TOLD_EVERY)
        log.warn(
            "a caller is refused", caller=plain(caller), peer=plain(peer), call=call,
            why=f"{refused.code}: {plain(refused.message)}",
        )  # fmt: skip
