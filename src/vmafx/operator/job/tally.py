"""How many jobs have ended, by phase: nothing else is known of them.

The server is asked how many jobs there are and how many failed; after that the watch is counted along, from the very
version of the answer. What a broken watch did not tell is put right when the server is asked again: after the cache
had to list anew. Those that succeeded are what is left.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from vmafx.api.job import FINISHED, JobView
from vmafx.api.meta import MetaView, Model
from vmafx.kube import JOBS, Client
from vmafx.kube.errors import KubeError
from vmafx.logs import log
from vmafx.runtime.informer import Informer
from vmafx.runtime.store import Change

EVERY = 60.0  # seconds


class _Named(Model):
    metadata: MetaView


class FinishedTally:
    def __init__(self, client: Client, jobs: Informer[JobView]) -> None:
        self._client, self._jobs = client, jobs
        self._there, self._failed = _Number(), _Number()

    def counts(self) -> dict[str, int]:
        succeeded = self._there.value - self._failed.value - len(self._jobs.store)
        return {"Succeeded": max(0, succeeded), "Failed": max(0, self._failed.value)}

    def job_changed(self, change: Change[JobView]) -> None:
        old, new = change.old, change.new
        if new is None:
            if old is not None:
                self._there.changed(old, -1)
                if old.status.phase == "Failed":
                    self._failed.changed(old, -1)
        elif old is None and new.status.phase not in FINISHED:  # one that is over is told as new each time it changes
            self._there.changed(new, 1)
        elif old is not None and new.status.phase == "Failed":
            self._failed.changed(new, 1)

    async def run(self) -> None:
        lists = -1
        while True:
            if (now := self._jobs.lists) != lists:  # else the watch has told everything since
                try:
                    await self._ask()
                    lists = now
                except KubeError as error:
                    log.warn("jobs that are over cannot be counted; trying again", error=str(error))
            await asyncio.sleep(EVERY)

    async def _ask(self) -> None:
        with self._there.asking(), self._failed.asking():
            there = await self._client.count(JOBS, self._jobs.namespace)
            failed, version, named = 0, "", JOBS.seen_as(_Named)
            async for page in self._client.pages(named, self._jobs.namespace, fields="status.phase=Failed"):
                failed, version = failed + len(page.items), page.metadata.resourceVersion
            self._there.said(there.number, there.version)
            self._failed.said(failed, version)


class _Number:
    """So many, by the server's word at one version and by what the watch told of later ones."""

    def __init__(self) -> None:
        self.value, self._version = 0, 0
        self._meanwhile: list[tuple[int, int]] | None = None  # versions and changes, while the server is asked

    def changed(self, job: JobView, by: int) -> None:
        version = int(job.metadata.resourceVersion)
        if version > self._version:
            self.value += by
        if self._meanwhile is not None:
            self._meanwhile.append((version, by))

    @contextmanager
    def asking(self) -> Iterator[None]:
        self._meanwhile = []
        try:
            yield
        finally:
            self._meanwhile = None

    def said(self, value: int, version: str) -> None:
        self._version = int(version)
        self.value = value + sum(by for at, by in self._meanwhile or () if at > self._version)
