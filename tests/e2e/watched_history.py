"""The history of the jobs, worker Pods and nodes of a namespace, recorded by watches; invariants.py checks it.

A watch returns every version of every object in order, and continues where a connection has ended.
"""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, NamedTuple, Self

from tests.support.job_history import Change, Kind, Object
from tests.support.waiting import eventually
from vmafx.kube import JOBS, NODES, Client, Resource
from vmafx.kube.core import PODS
from vmafx.kube.watch import Added, Deleted, Modified
from vmafx.operator.job.pod_cache import JOB_LABEL


class Watched(NamedTuple):
    resource: Resource[dict[str, Any]]
    labels: str = ""


WATCHED: Mapping[Kind, Watched] = {
    "job": Watched(JOBS.decoded_as(dict)),
    "pod": Watched(PODS.decoded_as(dict), JOB_LABEL),
    "node": Watched(NODES.decoded_as(dict)),
}


class WatchedHistory:
    """Use as an async context manager: objects that exist on entry count as created then."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace = client, namespace
        self._changes: list[Change] = []
        self._last: dict[Kind, dict[str, Object]] = {kind: {} for kind in WATCHED}
        self._tasks: list[asyncio.Task[None]] = []
        self.jobs: dict[str, str] = {}  # the names of all jobs by uid, also of those that were deleted

    async def __aenter__(self) -> Self:
        for kind, (resource, labels) in WATCHED.items():
            page = await self._client.list(resource, self._namespace, labels=labels)
            for item in page.items:
                self._record(kind, item, deleted=False)
            self._tasks.append(asyncio.create_task(self._watch(kind, page.metadata.resourceVersion)))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def complete(self) -> list[Change]:
        """All changes until now, in their order. Raises the error of a watch that has ended."""
        for kind in WATCHED:
            await eventually(lambda: self._is_current(kind), f"the watch of each {kind} has all changes")  # noqa: B023
        return sorted(self._changes, key=lambda change: change.revision)

    async def _is_current(self, kind: Kind) -> bool:
        for task in self._tasks:
            if task.done():
                task.result()
        resource, labels = WATCHED[kind]
        page = await self._client.list(resource, self._namespace, labels=labels)
        listed = {item["metadata"]["name"]: _revision(item) for item in page.items}
        known = {name: _revision(item) for name, item in self._last[kind].items()}
        return listed.keys() == known.keys() and all(known[name] >= revision for name, revision in listed.items())

    async def _watch(self, kind: Kind, version: str) -> None:
        resource, labels = WATCHED[kind]
        watch = self._client.watch(resource, self._namespace, version=version, labels=labels)
        async with aclosing(aiter(watch)) as batches:
            async for batch in batches:
                for event in batch:
                    match event:
                        case Added(item) | Modified(item):
                            self._record(kind, item, deleted=False)
                        case Deleted(item):
                            self._record(kind, item, deleted=True)

    def _record(self, kind: Kind, item: Object, *, deleted: bool) -> None:
        name = item["metadata"]["name"]
        old = self._last[kind].pop(name, None)
        if not deleted:
            self._last[kind][name] = item
        if kind == "job":
            self.jobs[item["metadata"]["uid"]] = name
        self._changes.append(Change(_revision(item), kind, name, old, None if deleted else item))


def _revision(item: Object) -> int:
    return int(item["metadata"]["resourceVersion"])
