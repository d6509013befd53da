"""FairQueue: callers take turns, so that one with many jobs does not delay the others."""

import asyncio
from collections import OrderedDict, deque
from typing import Generic, TypeVar

from vmafx.http.errors import StatusError

T = TypeVar("T")


class FairQueue(Generic[T]):
    """At most `limit` items wait, and no caller has more waiting than there is room left.

    So one caller alone has at most half of the queue, two at most a third each: what they leave is for others. Items
    are compared by identity.
    """

    def __init__(self, limit: int) -> None:
        self._limit, self._count = limit, 0
        self._waiting: OrderedDict[str, deque[T]] = OrderedDict()  # by caller; the first has the next turn
        self._getters: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        return self._count

    def check_room(self, caller: str, seconds: float) -> None:
        """Raise StatusError if the caller cannot add an item now; `seconds` is when to try again."""
        own = len(self._waiting.get(caller, ()))
        if own < self._limit - self._count:
            return
        if own:
            message = f"{own} of your jobs are waiting, which is your share of the queue; wait for some of them"
            raise StatusError("RESOURCE_EXHAUSTED", message, caller=caller, retry_after=seconds)
        raise StatusError(
            "RESOURCE_EXHAUSTED", "the queue is full; try again later", caller=caller, retry_after=seconds
        )

    def put(self, caller: str, item: T) -> None:
        """Add an item; whoever adds has checked for room, or must not be refused."""
        self._waiting.setdefault(caller, deque()).append(item)
        self._count += 1
        self._wake()

    async def get(self) -> T:
        """The next item: the oldest of the caller whose turn it is."""
        while not self._waiting:
            getter = asyncio.get_running_loop().create_future()
            self._getters.append(getter)
            try:
                await getter
            except BaseException:
                if getter.done() and not getter.cancelled():
                    self._wake()  # it was woken and cannot take the item
                elif getter in self._getters:
                    self._getters.remove(getter)
                raise
        caller, items = self._waiting.popitem(last=False)
        item = items.popleft()
        self._count -= 1
        if items:
            self._waiting[caller] = items  # at the end: the others come first
        return item

    def remove(self, caller: str, item: T) -> bool:
        """Take an item out of the queue; False if it does not wait."""
        items = self._waiting.get(caller)
        if items is None or item not in items:
            return False
        items.remove(item)
        self._count -= 1
        if not items:
            del self._waiting[caller]
        return True

    def position(self, caller: str, item: T) -> int | None:
        """How many items come before this one; None if it does not wait."""
        items = self._waiting.get(caller)
        if items is None or item not in items:
            return None
        own, turn_is_later = items.index(item), False
        before = own
        for other, theirs in self._waiting.items():
            if other == caller:
                turn_is_later = True
            else:
                before += min(len(theirs), own if turn_is_later else own + 1)
        return before

    def _wake(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return
