"""Requests through the gateway over keep-alive connections, counted by the track that responded."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import aiohttp
import msgspec

CONNECTIONS = 32
TIMEOUT = aiohttp.ClientTimeout(total=10)


class Counts(msgspec.Struct):
    """Responses by track, and failed requests by reason."""

    tracks: dict[str, int] = {}
    failed: dict[str, int] = {}

    @property
    def total(self) -> int:
        return sum(self.tracks.values()) + sum(self.failed.values())

    def percent(self, track: str) -> float:
        return 100 * self.tracks.get(track, 0) / max(1, sum(self.tracks.values()))


class Load:
    """Requests to a host at the gateway on a local port."""

    def __init__(self, host: str, port: int) -> None:
        self._url, self._headers = f"http://127.0.0.1:{port}/", {"Host": host}

    async def send(self, number: int) -> Counts:
        """Send this many requests."""
        counts = Counts()
        numbers = iter(range(number))
        await self._workers(counts, lambda: next(numbers, None) is not None)
        return counts

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Counts]:
        """Send requests until the block ends; what it yields counts them."""
        counts, stopped = Counts(), asyncio.Event()
        workers = asyncio.create_task(self._workers(counts, lambda: not stopped.is_set()))
        try:
            yield counts
        finally:
            stopped.set()
            await workers

    async def _workers(self, counts: Counts, wanted: Callable[[], bool]) -> None:
        connector = aiohttp.TCPConnector(limit=CONNECTIONS)
        async with aiohttp.ClientSession(connector=connector, timeout=TIMEOUT, headers=self._headers) as session:

            async def worker() -> None:
                while wanted():
                    await self._request(session, counts)

            await asyncio.gather(*(worker() for _ in range(CONNECTIONS)))

    async def _request(self, session: aiohttp.ClientSession, counts: Counts) -> None:
        try:
            async with session.get(self._url) as response:
                body = await response.text()
                if response.status == 200:
                    counts.tracks[body] = counts.tracks.get(body, 0) + 1
                    return
                reason = f"{response.status}: {body[:200]}"
        except (aiohttp.ClientError, TimeoutError) as error:
            reason = repr(error)
        counts.failed[reason] = counts.failed.get(reason, 0) + 1
