"""How many jobs have ended, by phase: nothing else is known of them.

The server is asked how many there are; after that the watch is counted along. What a broken watch did not tell is put
right when the server is asked again: after the cache had to list anew.
"""

import asyncio
from collections import Counter

from vmafx.api.job import FINISHED, JobView
from vmafx.api.meta import MetaView, Model
from vmafx.kube import JOBS, Client
from vmafx.kube.errors import KubeError
from vmafx.runtime.informer import Informer
from vmafx.runtime.logs import log
from vmafx.runtime.store import Change

EVERY = 60.0  # seconds


class _Named(Model):
    metadata: MetaView


class FinishedTally:
    def __init__(self, client: Client, jobs: Informer[JobView]) -> None:
        self._client, self._jobs = client, jobs
        self._ended: Counter[str] = Counter()

    def counts(self) -> dict[str, int]:
        return {phase: max(0, self._ended[phase]) for phase in FINISHED}

    def job_changed(self, change: Change[JobView]) -> None:
        before = change.old.status.phase if change.old is not None else None
        after = change.new.status.phase if change.new is not None else None
        if after is None and before in FINISHED:
            self._ended[before] -= 1
        elif after in FINISHED and before is not None and before not in FINISHED:
            self._ended[after] += 1

    async def run(self) -> None:
        lists = -1
        while True:
            if self._jobs.lists != lists:  # else the watch has told everything since
                try:
                    await self._ask()
                    lists = self._jobs.lists
                except KubeError as error:
                    log.warn("jobs that are over cannot be counted; trying again", error=str(error))
            await asyncio.sleep(EVERY)

    async def _ask(self) -> None:
        failed = 0
        pages = self._client.pages(JOBS.seen_as(_Named), self._jobs.namespace, fields="status.phase=Failed")
        async for page in pages:
            failed += len(page.items)
        there = await self._client.count(JOBS, self._jobs.namespace)
        self._ended = Counter(Failed=failed, Succeeded=there - failed - len(self._jobs.store))
