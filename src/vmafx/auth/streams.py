"""Streams that end when their caller loses its permission."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TypeVar

from vmafx.clock import loop_time
from vmafx.http.errors import StatusError

INTERVAL = 60.0  # seconds between reviews
RETRY_INTERVAL = 5.0  # seconds, after a review without a decision
MAX_AGE = 120.0  # seconds that the last permission stands while reviews yield no decision
UNDECIDED = {"UNAVAILABLE", "RESOURCE_EXHAUSTED"}

T = TypeVar("T")


async def while_authorized(items: AsyncGenerator[T], authorize: Callable[[], Awaitable[object]]) -> AsyncGenerator[T]:
    """Yield the items, and call `authorize` at the start and every minute; its StatusError ends the stream."""
    async with aclosing(items):
        await authorize()
        permission = _Permission(authorize)
        while True:
            item = asyncio.ensure_future(_next(items))
            try:
                while not item.done():
                    await asyncio.wait({item}, timeout=permission.seconds_left())
                    await permission.renew_if_due()
            finally:
                item.cancel()  # a generator cannot be closed while it runs
                await asyncio.wait({item})
            found = item.result()
            if found is None:
                return
            yield found[0]


class _Permission:
    def __init__(self, authorize: Callable[[], Awaitable[object]]) -> None:
        self._authorize = authorize
        self._granted = loop_time()
        self._due = self._granted + INTERVAL

    def seconds_left(self) -> float:
        return max(self._due - loop_time(), 0.0)

    async def renew_if_due(self) -> None:
        now = loop_time()
        if now < self._due:
            return
        try:
            await self._authorize()
        except StatusError as error:
            if error.code not in UNDECIDED or now - self._granted >= MAX_AGE:
                raise
            self._due = now + RETRY_INTERVAL
        else:
            self._granted, self._due = now, now + INTERVAL


async def _next(items: AsyncGenerator[T]) -> tuple[T] | None:
    try:
        return (await anext(items),)
    except StopAsyncIteration:
        return None
