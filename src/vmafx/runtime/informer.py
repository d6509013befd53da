"""Keeps a store equal to what the server has, for as long as it runs.

    LISTING ──all read, store swapped──> WATCHING ──410, the version is too old──> LISTING
       └──no answer, or a no: wait, and once more

The watch itself resumes by itself after every lesser trouble (kube/watch.py).
"""

import asyncio
import enum
import random
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any, Generic, TypeVar

from vmafx.kube import Client, Key, Resource
from vmafx.kube.decoding import Unreadable
from vmafx.kube.errors import Expired, KubeError
from vmafx.kube.watch import Added, Bookmark, Deleted, Event, Modified
from vmafx.runtime.logs import log
from vmafx.runtime.store import Change, Indexer, Store

T = TypeVar("T")
Handler = Callable[[Change[T]], None]
SHORTEST_PAUSE, LONGEST_PAUSE = 0.2, 30.0


class State(enum.Enum):
    LISTING = "listing"
    WATCHING = "watching"


class Informer(Generic[T]):
    """A store of one resource, kept up to date; handlers are told of every change, in order."""

    def __init__(
        self,
        client: Client,
        resource: Resource[T],
        *,
        namespace: str = "",
        labels: str = "",
        indexes: Mapping[str, Indexer[T]] | None = None,
        keep: Callable[[T], bool] = lambda _: True,
    ) -> None:
        self.resource = resource
        self.store: Store[T] = Store(indexes)
        self.state = State.LISTING
        self.synced = asyncio.Event()
        self.version = ""
        self._client, self._namespace, self._labels = client, namespace, labels
        self._keep = keep
        self._handlers: list[Handler[T]] = []
        self._streaming = True
        self._log = log.bind(resource=resource.plural)

    def on_change(self, handler: Handler[T]) -> None:
        """Tell `handler` of every change: also of objects that are not kept, which it sees as new each time."""
        self._handlers.append(handler)

    async def run(self) -> None:
        failures = 0
        while True:
            try:
                if self.state is State.LISTING:
                    await self._list()
                    self.state, failures = State.WATCHING, 0
                    self.synced.set()
                await self._watch()
            except Expired:
                self._log.info("the watch fell too far behind; listing again", version=self.version)
                self.state = State.LISTING
            except KubeError as error:
                failures += 1
                pause = min(SHORTEST_PAUSE * 2 ** min(failures - 1, 10), LONGEST_PAUSE) * (0.5 + random.random())  # noqa: S311
                self._log.warn("cannot follow the server; trying again", error=str(error), seconds=round(pause, 1))
                self.state = State.LISTING
                await asyncio.sleep(pause)

    async def _list(self) -> None:
        """Read everything, then swap it in at once: readers see the old state or the new, never half of each."""
        objects: dict[Key, T] = {}
        passing: list[Change[T]] = []
        async for batch in self._pages():
            for thing in batch:
                key = _key(thing)
                if self._keep(thing):
                    objects[key] = thing
                else:
                    passing.append(Change(key, None, thing))
            for change in passing:  # not kept, so not compared: told as they come, and forgotten
                self._tell(change)
            passing.clear()
        for change in self.store.replace(objects):
            self._tell(change)

    async def _pages(self) -> Any:
        async for page in self._client.pages(self.resource, self._namespace, labels=self._labels):
            self.version = page.metadata.resourceVersion
            for one in page.unreadable:
                self._set_aside(one)
            yield page.items

    async def _watch(self) -> None:
        watch = self._client.watch(self.resource, self._namespace, version=self.version, labels=self._labels)
        async with aclosing(aiter(watch)) as batches:
            async for batch in batches:
                for event in batch:
                    self._apply(event)
                self.version = watch.version

    def _apply(self, event: Event[T]) -> None:
        match event:
            case Added() | Modified():
                thing = event.object
                key = _key(thing)
                if self._keep(thing):
                    self._tell(self.store.put(key, thing))
                else:
                    gone = self.store.remove(key)
                    self._tell(Change(key, gone.old if gone else None, thing))
            case Deleted():
                key = _key(event.object)
                self.store.remove(key)
                self._tell(Change(key, event.object, None))
            case Unreadable():
                self._set_aside(event)
            case Bookmark():
                pass

    def _set_aside(self, event: Unreadable) -> None:
        """An object that we cannot read is as good as gone for us; whoever wrote it is told by the log."""
        key = Key(event.metadata.namespace, event.metadata.name)
        if not event.deleted:
            self._log.error("an object cannot be read and is left alone", key=str(key), error=event.error)
        if gone := self.store.remove(key):
            self._tell(gone)

    def _tell(self, change: Change[T]) -> None:
        for handler in self._handlers:
            handler(change)


def _key(thing: Any) -> Key:
    return Key(thing.metadata.namespace, thing.metadata.name)
