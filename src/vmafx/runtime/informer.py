"""Keeps a store equal to the API server for as long as it runs.

    LISTING ──all objects read, store replaced──> WATCHING ──410 Gone, or `refresh`──> LISTING
       └──error: back off, list again

Objects are listed in pages, or streamed as initial events of the watch. After any other interruption the watch resumes
by itself (kube/watch.py).
"""

import asyncio
import enum
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from typing import Any, Generic, NamedTuple, TypeVar

from vmafx.backoff import Backoff
from vmafx.clock import loop_time
from vmafx.kube import Client, ObjectKey, Resource
from vmafx.kube.decoding import UnreadableObject
from vmafx.kube.errors import Expired, Forbidden, Invalid, KubeError, NotFound, UnreadableResponse
from vmafx.kube.watch import Added, Bookmark, Deleted, Event, Modified
from vmafx.logs import log
from vmafx.runtime.store import Indexer, ObjectChange, Store

T = TypeVar("T")
ChangeHandler = Callable[[ObjectChange[T]], None]
BACKOFF = Backoff(0.2, 30.0)
VANISHED_AFTER = 60.0  # seconds
AVAILABILITY_CHECK_INTERVAL = 30.0  # seconds between attempts to list an unavailable optional resource


class InformerState(enum.Enum):
    LISTING = "listing"
    WATCHING = "watching"


class StoreFilter(NamedTuple, Generic[T]):
    """Which objects the store keeps: those for which `keeps` is true.

    `fields` is a field selector that excludes objects which `keeps` rejects, so that lists in pages need not read them.
    After a relist, objects that are in the store but not in the list are read one by one. The watch has no field
    selector: handlers get the changes of all objects.
    """

    keeps: Callable[[T], bool]
    fields: str = ""


class Informer(Generic[T]):
    """A store of one resource, kept up to date; handlers get every change, in order."""

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
        self._filter: StoreFilter[T] = keep or StoreFilter(lambda _: True)
        self._streaming = streaming
        self._handlers: list[ChangeHandler[T]] = []
        self._events = 0
        self.lists = self._lists_started = self._lists_requested = 0  # `lists`: number of the last complete list
        self._list_done = asyncio.Event()  # replaced after each list
        self._watch_timeout: asyncio.Timeout | None = None
        # While LISTING: objects read so far that will be kept, and objects of the store that will no longer be kept.
        self._listed: dict[ObjectKey, T] = {}
        self._rejected: dict[ObjectKey, T] = {}
        self._log = log.bind(resource=resource.plural)

    def on_change(self, handler: ChangeHandler[T]) -> None:
        """Call `handler` for every change. An object that the store does not keep appears as added each time."""
        self._handlers.append(handler)

    async def run(self) -> None:
        failures = 0
        while True:
            events_before, self._listed, self._rejected = self._events, {}, {}
            self._lists_started += 1
            try:
                if not self._streaming:
                    await self._list_pages()
                if self._lists_requested <= self._lists_started:
                    try:
                        async with asyncio.timeout(None) as self._watch_timeout:
                            await self._watch()
                    finally:
                        self._watch_timeout = None
            except TimeoutError:
                self._log.debug("relisting for a refresh")
            except KubeError as error:
                # A watch that delivered events was healthy: relist at once. Otherwise back off.
                failures = 0 if self._events > events_before else failures + 1
                await self._recover(error, failures)
            self.state, self._watch_timeout = InformerState.LISTING, None

    def drop(self, key: ObjectKey) -> None:
        """Remove an object that is no longer needed from the store. Its next change appears as an addition."""
        self.store.remove(key)

    async def refresh(self) -> None:
        """Relist; return when the store is at least as new as the API server was at the call.

        A watch does not suffice: it may lag without a sign of it.
        """
        requested = self._lists_requested = self._lists_started + 1
        if self._watch_timeout is not None:
            self._watch_timeout.reschedule(0)
            self._watch_timeout = None
        await self.wait_for_list(requested)

    async def wait_for_list(self, number: int) -> None:
        """Return once the list of this number, or a later one, is complete: see `lists`."""
        while self.lists < number:
            await self._list_done.wait()

    async def _recover(self, error: KubeError, failures: int) -> None:
        if isinstance(error, Invalid) and self._streaming:
            self._log.info("server does not support streaming lists, using pages")
            self._streaming = False
            return
        if isinstance(error, Expired) and failures < 2:
            self._log.info("watch expired, relisting", version=self.version)
            return
        pause = BACKOFF.delay(failures + 1)
        self._log.warn("list or watch failed, will retry", error=str(error), seconds=round(pause, 1))
        await asyncio.sleep(pause)

    async def _list_pages(self) -> None:
        async for page in self._client.pages(
            self.resource, self.namespace, labels=self._labels, fields=self._filter.fields
        ):
            for unreadable in page.unreadable:
                self._skip_unreadable(unreadable)
            for item in page.items:
                self._add_listed(item)
            self.version = page.metadata.resourceVersion
        if self._filter.fields:
            await self._read_unlisted()
        self._finish_list()

    async def _read_unlisted(self) -> None:
        """Find out which objects of the store were deleted, and which the field selector excludes from the list."""
        for key in [key for key in self.store if key not in self._listed]:
            with suppress(NotFound, UnreadableResponse):  # an unreadable object was logged when the list was read
                item = await self._client.get(self.resource, key)
                (self._listed if self._filter.keeps(item) else self._rejected)[key] = item

    async def _watch(self) -> None:
        """Watch from the version of the list; while LISTING, from the start, which begins with all objects."""
        version = "" if self.state is InformerState.LISTING else self.version
        watch = self._client.watch(self.resource, self.namespace, version=version, labels=self._labels)
        async with aclosing(aiter(watch)) as batches:
            async for batch in batches:
                for event in batch:
                    self._apply(event)
                self.version = watch.version

    def _add_listed(self, item: T) -> None:
        """Collect an object of the list. One that is neither kept nor in the store goes to the handlers at once."""
        key = _key(item)
        if self._filter.keeps(item):
            self._listed[key] = item
            return
        self._listed.pop(key, None)
        if self.store.get(key) is None:
            self._notify(ObjectChange(key, None, item))
        else:
            self._rejected[key] = item

    def _finish_list(self) -> None:
        """Replace the store in one step: readers never see half of a list."""
        changes, rejected = self.store.replace(self._listed), self._rejected
        self._listed, self._rejected, self.state = {}, {}, InformerState.WATCHING
        for change in changes:
            self._notify(
                change if change.new is not None else ObjectChange(change.key, change.old, rejected.get(change.key))
            )
        self.lists = self._lists_started
        self._list_done.set()
        self._list_done = asyncio.Event()
        self.synced.set()

    def _apply(self, event: Event[T]) -> None:
        self._events += 1
        match event:
            case Bookmark():
                if self.state is InformerState.LISTING and event.initial_end:
                    self._finish_list()
            case UnreadableObject():
                self._skip_unreadable(event)
            case Added() | Modified():
                (self._add_listed if self.state is InformerState.LISTING else self._put)(event.object)
            case Deleted() if self.state is InformerState.LISTING:
                self._listed.pop(_key(event.object), None)
                self._rejected.pop(_key(event.object), None)
            case Deleted():
                key = _key(event.object)
                self.store.remove(key)
                self._notify(ObjectChange(key, event.object, None))

    def _put(self, item: T) -> None:
        key = _key(item)
        if self._filter.keeps(item):
            self._notify(self.store.put(key, item))
        else:
            removed = self.store.remove(key)
            self._notify(ObjectChange(key, removed.old if removed else None, item))

    def _skip_unreadable(self, event: UnreadableObject) -> None:
        """Treat an object that cannot be decoded as deleted, and log it."""
        key = ObjectKey(event.metadata.namespace, event.metadata.name)
        if not event.deleted:
            self._log.error("could not decode object, ignoring it", key=str(key), error=event.error)
        if self.state is InformerState.LISTING:
            self._listed.pop(key, None)
        elif removed := self.store.remove(key):
            self._notify(removed)

    def _notify(self, change: ObjectChange[T]) -> None:
        for handler in self._handlers:
            handler(change)


class OptionalInformer(Informer[T]):
    """An informer of a resource that the server may not have, or that this process may not read.

    It is synced with an empty store until the resource can be listed; `unavailable` has the error. A resource that was
    available keeps its objects: an error may pass, and deleting what depends on them would do more harm than keeping
    it. They are dropped if the server does not have the resource for VANISHED_AFTER.
    """

    unavailable: KubeError | None = None
    _unavailable_since = 0.0
    _on_available: Callable[[], None] | None = None

    def on_available(self, handler: Callable[[], None]) -> None:
        """Call `handler` when a resource that was not available has been listed."""
        self._on_available = handler

    async def _list_pages(self) -> None:
        await super()._list_pages()
        was_available, self.unavailable = self.unavailable is None, None
        if not was_available and self._on_available is not None:
            self._on_available()

    async def _recover(self, error: KubeError, failures: int) -> None:
        if not isinstance(error, Forbidden | NotFound):
            await super()._recover(error, failures)
            return
        if self.unavailable is None:
            write = self._log.warn if self.synced.is_set() else self._log.debug
            write("optional resource is not available", error=str(error))
            self._unavailable_since = loop_time()
        self.unavailable = error
        gone = isinstance(error, NotFound) and loop_time() - self._unavailable_since > VANISHED_AFTER
        if gone or not self.synced.is_set():
            self._finish_list()
        known = len(self.store) > 0
        await asyncio.sleep(BACKOFF.delay(failures) if known else AVAILABILITY_CHECK_INTERVAL)


def _key(item: Any) -> ObjectKey:
    return ObjectKey(item.metadata.namespace, item.metadata.name)
