"""Keeps a store equal to what the server has, for as long as it runs.

    LISTING ──all read, store swapped──> WATCHING ──410, the version is too old, or `refresh`──> LISTING
       └──no answer, or a no: wait, and once more

All that is there is read in pages, or as the first part of the watch itself (streaming); the watch then resumes by
itself after every lesser trouble (kube/watch.py).
"""

import asyncio
import enum
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from typing import Any, Generic, NamedTuple, TypeVar

from vmafx.backoff import Backoff
from vmafx.kube import Client, ObjectKey, Resource
from vmafx.kube.decoding import UnreadableObject
from vmafx.kube.errors import Expired, Invalid, KubeError, NotFound, UnreadableAnswer
from vmafx.kube.watch import Added, Bookmark, Deleted, Event, Modified
from vmafx.logs import log
from vmafx.runtime.store import Indexer, ObjectChange, Store

T = TypeVar("T")
ChangeHandler = Callable[[ObjectChange[T]], None]
BACKOFF = Backoff(0.2, 30.0)


class InformerState(enum.Enum):
    LISTING = "listing"
    WATCHING = "watching"


class StoreFilter(NamedTuple, Generic[T]):
    """Which objects stay in the store. `fields` tells the server, for lists that come in pages, which never need to be
    read: of those that it leaves out, only what is in the store already is kept, if it is still wanted. The watch tells
    of everything that happens from there on.
    """

    wanted: Callable[[T], bool]
    fields: str = ""


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
        keep: "StoreFilter[T] | None" = None,
        streaming: bool = False,
    ) -> None:
        self.resource = resource
        self.store: Store[T] = Store(indexes)
        self.state = InformerState.LISTING
        self.synced = asyncio.Event()
        self.version = ""
        self._client, self.namespace, self._labels = client, namespace, labels
        self._keep: StoreFilter[T] = keep or StoreFilter(lambda _: True)
        self._streaming = streaming
        self._handlers: list[ChangeHandler[T]] = []
        self._events = 0
        self.lists = self._lists_begun = self._lists_wanted = 0  # `lists`: the last one that was read whole
        self._list_done = asyncio.Event()  # a new one for each list
        self._following: asyncio.Timeout | None = None
        # While LISTING: what has been read so far to be kept, and what was in the store and is no longer wanted.
        self._listed: dict[ObjectKey, T] = {}
        self._ended: dict[ObjectKey, T] = {}
        self._log = log.bind(resource=resource.plural)

    def on_change(self, handler: ChangeHandler[T]) -> None:
        """Tell `handler` of every change: also of objects that are not kept, which it sees as new each time."""
        self._handlers.append(handler)

    async def run(self) -> None:
        failures = 0
        while True:
            before, self._listed, self._ended = self._events, {}, {}
            self._lists_begun += 1
            try:
                if not self._streaming:
                    await self._read_pages()
                if self._lists_wanted <= self._lists_begun:
                    try:
                        async with asyncio.timeout(None) as self._following:
                            await self._follow()
                    finally:
                        self._following = None
            except TimeoutError:
                self._log.debug("listing again, as asked")
            except KubeError as error:
                # A watch that told something was good: list again at once. If not, with growing patience.
                failures = 0 if self._events > before else failures + 1
                await self._recover(error, failures)
            self.state, self._following = InformerState.LISTING, None

    def drop(self, key: ObjectKey) -> None:
        """Keep it no longer, though the server may: nobody asks for it any more. If it changes, it is told as new."""
        self.store.remove(key)

    async def refresh(self) -> None:
        """List again, and come back when the store is at least as new as the server was when this was called.

        A watch alone cannot tell: it may be behind without knowing.
        """
        wanted = self._lists_wanted = self._lists_begun + 1
        if self._following is not None:
            self._following.reschedule(0)
            self._following = None
        while self.lists < wanted:
            await self._list_done.wait()

    async def _recover(self, error: KubeError, failures: int) -> None:
        if isinstance(error, Invalid) and self._streaming:
            self._log.info("the server does not stream lists; reading pages")
            self._streaming = False
            return
        if isinstance(error, Expired) and failures < 2:
            self._log.info("the watch fell too far behind; listing again", version=self.version)
            return
        pause = BACKOFF.delay(failures + 1)
        self._log.warn("cannot follow the server; trying again", error=str(error), seconds=round(pause, 1))
        await asyncio.sleep(pause)

    async def _read_pages(self) -> None:
        async for page in self._client.pages(
            self.resource, self.namespace, labels=self._labels, fields=self._keep.fields
        ):
            for one in page.unreadable:
                self._set_aside(one)
            for thing in page.items:
                self._read(thing)
            self.version = page.metadata.resourceVersion
        if self._keep.fields:
            await self._ask_after_the_missing()
        self._all_read()

    async def _ask_after_the_missing(self) -> None:
        """What was in the store and not in the list is gone, or left out by `fields`: of these few, ask which."""
        for key in [key for key in self.store if key not in self._listed]:
            with suppress(NotFound, UnreadableAnswer):  # one that cannot be read was told of when the list was
                thing = await self._client.get(self.resource, key)
                (self._listed if self._keep.wanted(thing) else self._ended)[key] = thing

    async def _follow(self) -> None:
        """Watch from where we stand; while LISTING, from nowhere, which begins with all that is there."""
        version = "" if self.state is InformerState.LISTING else self.version
        watch = self._client.watch(self.resource, self.namespace, version=version, labels=self._labels)
        async with aclosing(aiter(watch)) as batches:
            async for batch in batches:
                for event in batch:
                    self._apply(event)
                self.version = watch.version

    def _read(self, thing: T) -> None:
        """One of all that is there. What we never had and do not want is told and forgotten; the rest waits."""
        key = _key(thing)
        if self._keep.wanted(thing):
            self._listed[key] = thing
            return
        self._listed.pop(key, None)
        if self.store.get(key) is None:
            self._tell(ObjectChange(key, None, thing))
        else:
            self._ended[key] = thing

    def _all_read(self) -> None:
        """Swap it in at once: readers see the old state or the new, never half of each."""
        changes, ended = self.store.replace(self._listed), self._ended
        self._listed, self._ended, self.state = {}, {}, InformerState.WATCHING
        for change in changes:
            self._tell(
                change if change.new is not None else ObjectChange(change.key, change.old, ended.get(change.key))
            )
        self.lists = self._lists_begun
        self._list_done.set()
        self._list_done = asyncio.Event()
        self.synced.set()

    def _apply(self, event: Event[T]) -> None:
        self._events += 1
        match event:
            case Bookmark():
                if self.state is InformerState.LISTING and event.initial_end:
                    self._all_read()
            case UnreadableObject():
                self._set_aside(event)
            case Added() | Modified():
                (self._read if self.state is InformerState.LISTING else self._put)(event.object)
            case Deleted() if self.state is InformerState.LISTING:
                self._listed.pop(_key(event.object), None)
                self._ended.pop(_key(event.object), None)
            case Deleted():
                key = _key(event.object)
                self.store.remove(key)
                self._tell(ObjectChange(key, event.object, None))

    def _put(self, thing: T) -> None:
        key = _key(thing)
        if self._keep.wanted(thing):
            self._tell(self.store.put(key, thing))
        else:
            gone = self.store.remove(key)
            self._tell(ObjectChange(key, gone.old if gone else None, thing))

    def _set_aside(self, event: UnreadableObject) -> None:
        """An object that we cannot read is as good as gone for us; whoever wrote it is told by the log."""
        key = ObjectKey(event.metadata.namespace, event.metadata.name)
        if not event.deleted:
            self._log.error("an object cannot be read and is left alone", key=str(key), error=event.error)
        if self.state is InformerState.LISTING:
            self._listed.pop(key, None)
        elif gone := self.store.remove(key):
            self._tell(gone)

    def _tell(self, change: ObjectChange[T]) -> None:
        for handler in self._handlers:
            handler(change)


def _key(thing: Any) -> ObjectKey:
    return ObjectKey(thing.metadata.namespace, thing.metadata.name)
