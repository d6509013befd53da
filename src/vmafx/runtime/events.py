"""What happened to an object, for people: events.k8s.io, as `kubectl describe` shows them.

Events are a courtesy. They are written in the background, the same one again is counted and not repeated, neither one
object nor good news of many can flood the cluster, and when the server does not answer they are dropped.
"""

import asyncio
from collections import OrderedDict
from typing import Any, Literal
from uuid import uuid4

import msgspec

from vmafx.clock import loop_time, micro_time
from vmafx.kube import Client, ObjectKey
from vmafx.kube.core import EVENTS
from vmafx.kube.errors import KubeError, NotFound
from vmafx.logs import log

SERIES_WINDOW = 360.0  # seconds in which the same event counts as a repetition
BURST, REFILL_INTERVAL = 25.0, 300.0  # as client-go: so many at once for one object, then one every five minutes
# Of type Normal, for all objects: thousands of jobs may succeed in a minute, and the server keeps events for an hour.
NORMAL_BURST, NORMAL_REFILL_EVERY = 100.0, 0.1
MAX_QUEUED, MAX_REMEMBERED, MAX_NOTE = 1000, 4096, 1024


class EventSubject(msgspec.Struct, frozen=True):
    """The object that an event is about."""

    apiVersion: str
    kind: str
    namespace: str
    name: str
    uid: str


class _Told(msgspec.Struct):
    """An event that was written, and how often it happened."""

    key: ObjectKey
    last: float
    count: int = 1


class _Bucket(msgspec.Struct):
    """So many events at once, then one every `refill_every` seconds."""

    burst: float
    refill_every: float
    left: float
    at: float = 0.0

    def take(self, now: float) -> bool:
        self.left = min(self.burst, self.left + (now - self.at) / self.refill_every)
        self.at = now
        if self.left < 1:
            return False
        self.left -= 1
        return True


class EventRecorder:
    """Takes events from controllers, who never wait for it."""

    def __init__(self, client: Client, controller: str, instance: str) -> None:
        self._client, self._controller, self._instance = client, controller, instance
        self._waiting: asyncio.Queue[tuple[EventSubject, str, str, str, str]] = asyncio.Queue(MAX_QUEUED)
        self._told: OrderedDict[tuple[str, str, str, str], _Told] = OrderedDict()
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        self._normal = _Bucket(NORMAL_BURST, NORMAL_REFILL_EVERY, NORMAL_BURST)

    def emit(
        self, about: EventSubject, kind: Literal["Normal", "Warning"], reason: str, action: str, note: str
    ) -> None:
        """Tell that `reason` befell `about` while doing `action`; dropped where there are too many."""
        if self._waiting.full() or not self._may(about.uid, kind):
            log.debug("event dropped", about=about.name, reason=reason, error="too many")
        else:
            self._waiting.put_nowait((about, kind, reason, action, _cut(note)))

    async def run(self) -> None:
        while True:
            about, kind, reason, action, note = await self._waiting.get()
            try:
                await self._write(about, kind, reason, action, note)
            except KubeError as error:
                log.debug("event dropped", about=about.name, reason=reason, error=str(error))

    async def _write(self, about: EventSubject, kind: str, reason: str, action: str, note: str) -> None:
        now = loop_time()
        same = (about.uid, kind, reason, action)
        told = self._told.get(same)
        if told is not None and now - told.last < SERIES_WINDOW:
            told.count, told.last = told.count + 1, now
            series = {"count": told.count, "lastObservedTime": micro_time()}
            try:
                await self._client.merge_patch(EVENTS, told.key, {"series": series})  # all else is for ever
            except NotFound:
                del self._told[same]  # the server forgets events after an hour
            return
        namespace = about.namespace or "default"
        body = self._body(about, kind, reason, action, note)
        await self._client.create(EVENTS, body, namespace)
        _remember(self._told, same, _Told(ObjectKey(namespace, body["metadata"]["name"]), now))

    def _may(self, uid: str, kind: str) -> bool:
        """One object that is told of too often must not use up what others may tell."""
        now = loop_time()
        bucket = self._buckets.get(uid)
        if bucket is None:
            bucket = _Bucket(BURST, REFILL_INTERVAL, BURST)
            _remember(self._buckets, uid, bucket)
        return bucket.take(now) and (kind != "Normal" or self._normal.take(now))

    def _body(self, about: EventSubject, kind: str, reason: str, action: str, note: str) -> dict[str, Any]:
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": f"{about.name[:200]}.{uuid4().hex[:16]}"},
            "eventTime": micro_time(),
            "reportingController": self._controller,
            "reportingInstance": self._instance[:128],
            "type": kind,
            "reason": reason,
            "action": action,
            "note": note,
            "regarding": about,
        }


def _cut(note: str) -> str:
    """The server counts bytes."""
    return note.encode()[:MAX_NOTE].decode(errors="ignore")


def _remember(memory: "OrderedDict[Any, Any]", key: Any, value: Any) -> None:
    memory[key] = value
    memory.move_to_end(key)
    if len(memory) > MAX_REMEMBERED:
        memory.popitem(last=False)
