"""Reads the status of each trainer, again and again while this operator leads.

A trainer is another machine: its answer is limited in time and size, and checked before it is used. A slow one delays
no other.
"""

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from vmafx.clock import loop_time
from vmafx.kube import ObjectKey
from vmafx.kube.fetch import fetch
from vmafx.kube.http1 import HttpResponse
from vmafx.kube.tls import trust_context
from vmafx.logs import log
from vmafx.operator.training.decide import MIN_FAILURES, LiveTrainer, TrainerPoll, poll_interval, reported_fields
from vmafx.text import one_line
from vmafx.training.address import trainer_url
from vmafx.training.status import TrainerStatus

TIMEOUT = 5.0  # seconds for a reply
MAX_READS, MAX_POSTS = 64, 8  # concurrent requests to all trainers


class TrainerClient:
    """Sends requests to trainers: a connection for each, a limited number at a time. Reads do not wait for posts."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._slots = {"GET": asyncio.Semaphore(MAX_READS), "POST": asyncio.Semaphore(MAX_POSTS)}
        self._trust: ssl.SSLContext | None = None

    async def get_status(self, key: ObjectKey, uid: str) -> TrainerStatus:
        """The status of the trainer of the training with this uid.

        Raises OSError or ValueError, with a text that says why there is none.
        """
        reply = await self._request(key, "/status", "GET", {}, b"")
        try:
            status = msgspec.json.decode(reply.body, type=TrainerStatus)
            reported_fields(status)
        except (ValueError, OverflowError, RecursionError) as error:
            raise ValueError(f"{self._url(key, '/status')} sent an invalid status: {one_line(str(error))}") from error
        if status.uid not in {"", uid}:
            raise ValueError("the trainer of an earlier training of this name still answers")
        return status

    async def post(self, key: ObjectKey, path: str, token: str, body: bytes) -> None:
        """Raises OSError or ValueError if the trainer did not accept the request."""
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/msgpack"}
        await self._request(key, path, "POST", headers, body)

    async def _request(
        self, key: ObjectKey, path: str, method: Literal["GET", "POST"], headers: dict[str, str], body: bytes
    ) -> HttpResponse:
        url = self._url(key, path)
        if self._trust is None and urlsplit(self._address).scheme == "https":
            self._trust = trust_context(None, "the trainers' address")
        try:
            async with self._slots[method], asyncio.timeout(TIMEOUT):
                reply = await fetch(url, trust=self._trust, method=method, headers=headers, body=body)
        except TimeoutError:
            raise OSError(f"{url} did not answer within {TIMEOUT:.0f} s") from None
        except OSError as error:
            raise OSError(f"{url}: {error}") from error
        if not 200 <= reply.status < 300:
            raise OSError(f"{url} returned {reply.status}")
        return reply

    def _url(self, key: ObjectKey, path: str) -> str:
        return trainer_url(self._address, key.namespace, key.name, path)


class _Followed(msgspec.Struct, eq=False):
    """A trainer whose status is read."""

    uid: str  # of its training
    trainer: LiveTrainer
    changing: bool = True
    poll: TrainerPoll = TrainerPoll()
    quick_since: float = 0.0  # since when a change is expected
    due: float = 0.0
    reading: bool = False


class TrainerPoller:
    """Keeps the latest status of each trainer. Calls `changed` when one differs, `answered` after each reply."""

    def __init__(
        self,
        client: TrainerClient,
        interval: float,
        changed: Callable[[ObjectKey], None],
        answered: Callable[[ObjectKey], None],
    ) -> None:
        self._client, self._interval, self._changed, self._answered = client, interval, changed, answered
        self._followed: dict[ObjectKey, _Followed] = {}
        self._wake = asyncio.Event()

    def latest(self, key: ObjectKey) -> TrainerPoll:
        followed = self._followed.get(key)
        return followed.poll if followed is not None else TrainerPoll()

    def follow(self, key: ObjectKey, uid: str, trainer: LiveTrainer, *, changing: bool) -> None:
        """Read this trainer's status: at once if its Deployment has changed, soon while it is `changing`."""
        followed = self._followed.get(key)
        if followed is not None and followed.uid != uid:
            followed = None
        if followed is None or followed.trainer != trainer:
            poll = followed.poll if followed is not None else TrainerPoll()
            if followed is not None and trainer.rolled_out and not followed.trainer.rolled_out:
                poll = TrainerPoll(poll.status, trainer=poll.trainer)  # what failed until now was due to the start
            self._followed[key] = _Followed(uid, trainer, changing, poll, quick_since=loop_time(), due=loop_time())
            self._wake.set()
        elif followed.changing != changing:
            followed.changing, followed.quick_since = changing, loop_time()
            self._schedule(followed)
            self._wake.set()

    def forget(self, key: ObjectKey) -> None:
        self._followed.pop(key, None)

    async def run(self) -> None:
        """Read what is due, each trainer in a task of its own."""
        async with asyncio.TaskGroup() as reads:
            while True:
                self._wake.clear()
                now, waiting = loop_time(), [one for one in self._followed.items() if not one[1].reading]
                for key, followed in waiting:
                    if followed.due <= now:
                        followed.reading = True
                        reads.create_task(self._read(key, followed))
                next_due = min((followed.due for _, followed in waiting if not followed.reading), default=None)
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(next_due):
                        await self._wake.wait()

    async def _read(self, key: ObjectKey, followed: _Followed) -> None:
        before = followed.poll
        try:
            poll = await self._poll(key, followed)
        finally:
            followed.reading = False
        if self._followed.get(key) is not followed:  # forgotten or replaced meanwhile
            return
        if before.failures == 0 and (poll.failures or before.status is None):
            followed.quick_since = loop_time()
        followed.poll = poll
        self._schedule(followed)
        self._wake.set()
        _log_change(key, before, poll)
        if _differs(before, poll) or poll.failures == MIN_FAILURES:
            self._changed(key)
        if not poll.failures:
            self._answered(key)

    async def _poll(self, key: ObjectKey, followed: _Followed) -> TrainerPoll:
        """Read a status. A read that fails for any reason is counted, and stops no other."""
        try:
            return TrainerPoll(await self._client.get_status(key, followed.uid), trainer=followed.trainer)
        except (OSError, ValueError) as error:
            text = one_line(str(error))
        except Exception as error:  # noqa: BLE001 - a bug that the answer of one trainer reveals must not stop the others
            text = f"its status cannot be read: {type(error).__name__}"
            log.error("reading the status of a trainer failed", training=str(key), trace_of=error)
        before = followed.poll
        return TrainerPoll(before.status, before.failures + 1, text, before.trainer)

    def _schedule(self, followed: _Followed) -> None:
        quick_for = loop_time() - followed.quick_since
        seconds = poll_interval(followed.poll, quick_for, self._interval, changing=followed.changing)
        followed.due = loop_time() + seconds


def _log_change(key: ObjectKey, before: TrainerPoll, after: TrainerPoll) -> None:
    """A trainer that has not answered yet may still start."""
    if after.status is not None and after.failures == MIN_FAILURES:
        log.warn("trainer does not answer", training=str(key), error=after.error)
    elif after.reachable and before.failures >= MIN_FAILURES and before.status is not None:
        log.info("trainer answers again", training=str(key))


def _differs(before: TrainerPoll, after: TrainerPoll) -> bool:
    old, new = ((one.status, one.reachable, one.error, one.trainer) for one in (before, after))
    return old != new
