"""Samples for trainings: on disk until the controller has delivered them, and the loop that pushes them.

They are optional: what cannot be stored or delivered is lost, and neither results nor heartbeats wait for it. A token
that names the source is stored with each batch, so that one is never sent as the samples of another attempt.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from vmafx.agent.controller_link import (
    BACKOFF,
    ControllerError,
    ControllerLink,
    InvalidRequest,
    NotSupported,
    OutageLog,
    SessionRejected,
)
from vmafx.agent.registration import Registration
from vmafx.backoff import Retries
from vmafx.clock import loop_time
from vmafx.logs import log
from vmafx.segments import LogInUse, SegmentLog
from vmafx.tasks import in_thread
from vmafx.text import one_line
from vmafx.wire.controller_pb2 import PushSamplesResponse

SEGMENT_BYTES = 256 << 10  # batches of a segment with undelivered ones may be sent again after a restart
MAX_RETRIED = 64  # batches that are sent again before the next delay


class SpooledSamples(msgspec.Struct, frozen=True):
    """The samples of an attempt, and the token to push them with."""

    attempt: str
    token: str
    batch: bytes


class SpoolEntry(NamedTuple):
    position: int
    samples: SpooledSamples


class SampleSpool:
    """Batches in one folder, which is created with the first one; beyond `max_bytes`, the oldest are deleted.

    Only `put` and `release` write to the disk; `release` may be called in a thread. `fresh`, `oldest` and `next_retry`
    raise OSError if the disk cannot be read.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder, self.max_bytes = folder, max_bytes
        self._log: SegmentLog | None = None
        self._done = 0  # batches up to this position are done with
        self._done_later: set[int] = set()  # and these
        self._tried = 0  # batches up to this position were sent once, or were there at the start
        self._retried = 0  # the last one that was sent again
        self._dropped = self._damaged = 0  # as logged
        if folder.exists():
            self._open()

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    def put(self, samples: SpooledSamples) -> None:
        """Store a batch. A failure is logged: the batch is lost."""
        try:
            if (stored := self._log or self._open()) is None:
                return
            stored.append(msgspec.msgpack.encode(samples))
        except (OSError, ValueError) as error:
            log.warn("samples are lost: they cannot be stored", attempt=samples.attempt, error=str(error))
            return
        if (lost := stored.dropped - self._dropped) > 0:
            self._dropped += lost
            log.warn("undelivered samples deleted: the limit is reached", batches=lost, in_total=self._dropped)

    def fresh(self) -> SpoolEntry | None:
        """The oldest batch that has not been sent yet."""
        return self._next(self._tried)

    def oldest(self) -> SpoolEntry | None:
        """The oldest batch that is not done with."""
        while (entry := self._next(self._done)) is not None and entry.position in self._done_later:
            self._done = entry.position
            self._done_later.discard(entry.position)
        if entry is None:
            self._done = max(self._done, self._log.end if self._log is not None else 0)
            self._done_later.clear()
        return entry

    def next_retry(self) -> SpoolEntry | None:
        """The next batch that was sent before and is not done with; None after the last one, then from the start."""
        entry = self._next(max(self._retried, self._done))
        while entry is not None and entry.position in self._done_later:
            entry = self._next(entry.position)
        if entry is None or entry.position > self._tried:
            self._retried = 0
            return None
        self._retried = entry.position
        return entry

    def mark_tried(self, position: int) -> None:
        self._tried = max(self._tried, position)

    def mark_done(self, position: int) -> None:
        self._done_later.add(position)
        self.mark_tried(position)
        with suppress(OSError):  # the next call finds the oldest again
            self.oldest()

    def mark_all_done(self) -> None:
        if self._log is not None:
            self._done = self._tried = self._log.end
            self._done_later.clear()

    def release(self) -> None:
        """Delete batches that are done with from the disk."""
        if self._log is not None:
            try:
                self._log.drop_before(self._done + 1)
            except OSError as error:
                log.warn("cannot delete delivered samples; they may be sent again", error=error.strerror)

    def _open(self) -> SegmentLog | None:
        try:
            self._log = SegmentLog(self._folder, max_bytes=self.max_bytes, segment_bytes=SEGMENT_BYTES)
        except (OSError, LogInUse) as error:
            log.warn("cannot use the folder of samples; they are lost", folder=str(self._folder), error=str(error))
            return None
        self._tried = self._log.end
        return self._log

    def _next(self, after: int) -> SpoolEntry | None:
        entry = self._read(after)
        if self._log is not None and (damaged := self._log.damaged) > self._damaged:
            log.warn("stored samples are damaged; they are skipped", batches=damaged - self._damaged)
            self._damaged = damaged
        return entry

    def _read(self, after: int) -> SpoolEntry | None:
        for position, content in self._log.read(after) if self._log is not None else ():
            try:
                return SpoolEntry(position, msgspec.msgpack.decode(content, type=SpooledSamples))
            except (
                msgspec.DecodeError,
                UnicodeDecodeError,
                RecursionError,
            ) as error:  # of another version
                log.warn("stored samples cannot be read; they are skipped", error=str(error))
        return None


class SampleSender:
    """Pushes stored batches, each new one at once; those that the controller could not deliver are tried again."""

    def __init__(
        self, link: ControllerLink, registration: Registration, spool: SampleSpool, session_rejected: Callable[[], None]
    ) -> None:
        self._link, self._registration, self._spool = link, registration, spool
        self._session_rejected = session_rejected
        self._stored = asyncio.Event()
        self._retries, self._retry_at = Retries(BACKOFF), 0.0  # of batches that were not delivered
        self._errors = Retries(BACKOFF)  # of calls without a reply
        self._outage = OutageLog("cannot push samples; they are kept and retried", "samples are pushed again")
        self._unsupported = False

    @property
    def enabled(self) -> bool:
        return self._spool.max_bytes > 0

    def store(self, samples: SpooledSamples) -> None:
        self._spool.put(samples)
        self._stored.set()

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            try:
                await self._push_fresh()
                wait_until = self._retry_at if self._spool.oldest() is not None else None
                if wait_until is not None and loop_time() >= wait_until:
                    await self._retry()
                else:
                    await self._wait(wait_until)
            except OSError as error:
                log.warn("cannot read stored samples, will retry", error=error.strerror)
                await asyncio.sleep(self._errors.next())

    async def _push_fresh(self) -> None:
        self._stored.clear()
        while (entry := self._spool.fresh()) is not None:
            if not await self._push(entry) and loop_time() >= self._retry_at:
                self._retry_at = loop_time() + self._retries.next()

    async def _retry(self) -> None:
        """Push the next batches of the backlog again, and new ones first: their trainers may be others."""
        delivered = False
        for number in range(MAX_RETRIED):
            entry = self._spool.next_retry()
            if entry is None and number == 0:  # the last retries ended with the last batch
                entry = self._spool.next_retry()
            if entry is None:
                break
            delivered |= await self._push(entry)
            await self._push_fresh()
        if delivered:
            self._retries.reset()
        self._retry_at = loop_time() if delivered else loop_time() + self._retries.next()

    async def _wait(self, until: float | None) -> None:
        """Wait for a new batch."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self._stored.wait()

    async def _push(self, entry: SpoolEntry) -> bool:
        """Whether the batch is done with. If not, later ones go on: it may be the only one that fails."""
        session = await self._registration.session()
        attempt = entry.samples.attempt
        try:
            reply = await self._link.push_samples(session, entry.samples.token, entry.samples.batch)
        except SessionRejected:
            self._session_rejected()
            await asyncio.sleep(self._errors.next())
            return False
        except NotSupported as error:
            if not self._unsupported:
                log.warn("the controller takes no samples; they are deleted", error=str(error))
            self._unsupported = True
            self._spool.mark_all_done()
            await in_thread(self._spool.release)
            return True
        except InvalidRequest as error:
            log.error("the controller cannot read samples; they are deleted", attempt=attempt, error=str(error))
            return await self._finish(entry)
        except ControllerError as error:
            self._outage.failed(error, attempt=attempt)
            self._spool.mark_tried(entry.position)
            await self._wait(loop_time() + self._errors.next())
            return False
        self._outage.recovered()
        self._errors.reset()
        return await self._on_reply(entry, reply)

    async def _on_reply(self, entry: SpoolEntry, reply: PushSamplesResponse) -> bool:
        attempt = entry.samples.attempt
        match reply.result:
            case PushSamplesResponse.STORED | PushSamplesResponse.DUPLICATE:
                log.debug("samples delivered", attempt=attempt)
            case PushSamplesResponse.REFUSED:
                log.warn("samples refused; they are deleted", attempt=attempt, error=one_line(reply.message))
            case PushSamplesResponse.UNWANTED:
                log.info("no training uses samples of this node; they are deleted", attempt=attempt)
            case _:
                log.debug("samples not delivered yet", attempt=attempt, error=one_line(reply.message))
                self._spool.mark_tried(entry.position)
                return False
        return await self._finish(entry)

    async def _finish(self, entry: SpoolEntry) -> bool:
        self._spool.mark_done(entry.position)
        await in_thread(self._spool.release)
        return True
