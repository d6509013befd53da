"""The whole fleet, read once or kept up to date, and whether the server still answers."""

import asyncio
from typing import Self

from vmafx.fleet.ended import Ended
from vmafx.fleet.frame import Frame, frame
from vmafx.fleet.live import Live, LiveQueue, jobs_in, nodes_in
from vmafx.fleet.queue import line_up, read_runs
from vmafx.fleet.reading import UNFINISHED, Reader
from vmafx.kube import Client
from vmafx.kube.errors import KubeError
from vmafx.times import utc_now

ASK_EVERY, ANSWER_WITHIN = 2.0, 5.0  # seconds


async def read_frame(client: Client, namespace: str) -> Frame:
    """One look, and no more of finished jobs than a page."""
    reader, now = Reader(client, namespace), utc_now()
    jobs, nodes = await reader.jobs(UNFINISHED), await reader.nodes()
    queue = line_up(jobs, nodes, await read_runs(reader, jobs, nodes), now)
    ended = Ended()
    over, whole = await reader.ended()
    ended.read(over, now, whole=whole)
    return frame(client.config.server, namespace, now, nodes, jobs, queue, ended)


class Glance:
    """Keeps all of it up to date. Use as an async context manager, as Live.

    Watches are patient: they cannot tell a quiet server from one that is away. So it is asked for a word now and then,
    and once it answers again, all is read anew. `away` says what is wrong until then.
    """

    def __init__(self, client: Client, namespace: str) -> None:
        self.away: str | None = None
        self._client, self._namespace = client, namespace
        self._jobs, self._nodes = jobs_in(client, namespace, UNFINISHED), nodes_in(client, namespace)
        self._live = Live(client, self._jobs, self._nodes)
        self._ended = Ended()

    async def __aenter__(self) -> Self:
        self._jobs.on_change(self._ended.hear)
        await self._live.__aenter__()
        reader = Reader(self._client, self._namespace)
        self._queue = await LiveQueue.read(reader, self._jobs, self._nodes)
        await self._read_ended()
        self._asking = asyncio.create_task(self._ask())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._asking.cancel()
        await asyncio.gather(self._asking, return_exceptions=True)
        await self._live.__aexit__()

    def frame(self) -> Frame:
        now = utc_now()
        nodes, jobs = self._nodes.store.values(), self._jobs.store.values()
        return frame(self._client.config.server, self._namespace, now, nodes, jobs, self._queue.at(now), self._ended)

    async def changed(self, within: float) -> None:
        """As soon as something did, or after so many seconds."""
        await self._live.changes(within)

    async def _read_ended(self) -> None:
        over, whole = await Reader(self._client, self._namespace).ended()
        self._ended.read(over, utc_now(), whole=whole)

    async def _ask(self) -> None:
        while True:
            try:
                async with asyncio.timeout(ANSWER_WITHIN):
                    await self._client.count(self._nodes.resource, self._namespace)
                if self.away is not None:
                    await asyncio.gather(self._jobs.refresh(), self._nodes.refresh())
                    await self._read_ended()
                self.away = None
            except KubeError as error:
                self.away = str(error)
            except TimeoutError:
                self.away = f"no answer within {ANSWER_WITHIN:.0f} s"
            await asyncio.sleep(ASK_EVERY)
