"""The event recorder: events.k8s.io/v1 Events about an object, as `kubectl describe` shows them.

Events are best effort. They are written in the background; a repeated event increments the count of its series; rate
limits per object, and for Normal events in total, keep the recorder from flooding the API server; an event that cannot
be written is dropped.
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

SERIES_WINDOW = 360.0  # seconds within which an equal event counts as a repetition
BURST, REFILL_INTERVAL = 25.0, 300.0  # per object, as in client-go: events at once, then seconds for each further one
# For Normal events of all objects: thousands of jobs may succeed in a minute, and the server keeps events for an hour.
NORMAL_BURST, NORMAL_REFILL_INTERVAL = 100.0, 0.1
MAX_QUEUED, MAX_REMEMBERED, MAX_NOTE = 1000, 4096, 1024  # events, series and objects, bytes


class EventSubject(msgspec.Struct, frozen=True):
    """The object that an event is about."""

    apiVersion: str
    kind: str
    namespace: str
    name: str
    uid: str


class _Series(msgspec.Struct):
    """An Event that was created, and how often it was repeated."""

    key: ObjectKey
    last: float
    count: int = 1


class _TokenBucket(msgspec.Struct):
    """Allows `burst` events at once, then one every `refill_interval` seconds."""

    burst: float
    refill_interval: float
    tokens: float
    refilled_at: float = 0.0

    def take(self, now: float) -> bool:
        self.tokens = min(self.burst, self.tokens + (now - self.refilled_at) / self.refill_interval)
        self.refilled_at = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


class EventRecorder:
    """Queues events, which `run` writes: callers never wait for the API server."""

    def __init__(self, client: Client, reporter: str, instance: str) -> None:
        self._client, self._reporter, self._instance = client, reporter, instance
        self._queue: asyncio.Queue[tuple[EventSubject, str, str, str, str, bool]] = asyncio.Queue(MAX_QUEUED)
        self._series: OrderedDict[tuple[str, ...], _Series] = OrderedDict()
        self._buckets: OrderedDict[str, _TokenBucket] = OrderedDict()  # by the uid of the object
        self._normal_bucket = _TokenBucket(NORMAL_BURST, NORMAL_REFILL_INTERVAL, NORMAL_BURST)

    def emit(
        self,
        about: EventSubject,
        kind: Literal["Normal", "Warning"],
        reason: str,
        action: str,
        note: str,
        *,
        by_note: bool = False,
    ) -> None:
        """Queue an event about an object; drop it if a rate limit is exceeded or the queue is full.

        With `by_note`, an event with another note is another event, not a repetition.
        """
        if self._queue.full() or not self._is_allowed(about.uid, kind):
            log.debug("event dropped", about=about.name, reason=reason, error="rate limit exceeded")
        else:
            note = note.encode()[:MAX_NOTE].decode(errors="ignore")  # the API server counts bytes
            self._queue.put_nowait((about, kind, reason, action, note, by_note))

    async def run(self) -> None:
        while True:
            about, kind, reason, action, note, by_note = await self._queue.get()
            try:
                await self._write(about, kind, reason, action, note, by_note=by_note)
            except KubeError as error:
                log.debug("event dropped", about=about.name, reason=reason, error=str(error))

    async def _write(
        self, about: EventSubject, kind: str, reason: str, action: str, note: str, *, by_note: bool = False
    ) -> None:
        now = loop_time()
        identity = (about.uid, kind, reason, action, *([note] if by_note else []))
        series = self._series.get(identity)
        if series is not None and now - series.last < SERIES_WINDOW:
            series.count, series.last = series.count + 1, now
            patch = {"series": {"count": series.count, "lastObservedTime": micro_time()}}
            try:
                await self._client.merge_patch(EVENTS, series.key, patch)  # other fields of an Event are immutable
            except NotFound:
                del self._series[identity]  # the API server deletes events after an hour
            return
        namespace = about.namespace or "default"
        body = self._body(about, kind, reason, action, note)
        await self._client.create(EVENTS, body, namespace)
        _remember(self._series, identity, _Series(ObjectKey(namespace, body["metadata"]["name"]), now))

    def _is_allowed(self, uid: str, kind: str) -> bool:
        """Check the limit of the object first: a noisy object must not use up the limit that all objects share."""
        now = loop_time()
        bucket = self._buckets.get(uid)
        if bucket is None:
            bucket = _TokenBucket(BURST, REFILL_INTERVAL, BURST)
            _remember(self._buckets, uid, bucket)
        return bucket.take(now) and (kind != "Normal" or self._normal_bucket.take(now))

    def _body(self, about: EventSubject, kind: str, reason: str, action: str, note: str) -> dict[str, Any]:
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": f"{about.name[:200]}.{uuid4().hex[:16]}"},
            "eventTime": micro_time(),
            "reportingController": self._reporter,
            "reportingInstance": self._instance[:128],
            "type": kind,
            "reason": reason,
            "action": action,
            "note": note,
            "regarding": about,
        }


def _remember(memory: "OrderedDict[Any, Any]", key: Any, value: Any) -> None:
    memory[key] = value
    memory.move_to_end(key)
    if len(memory) > MAX_REMEMBERED:
        memory.popitem(last=False)
