"""Samples of an agent: kept on disk until they are delivered, and sent without holding each other up."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import Logged
from tests.support.waiting import eventually
from vmafx.agent import samples
from vmafx.agent.controller_link import (
    AgentSession,
    ControllerError,
    ControllerLink,
    ControllerRefused,
    ControllerUnreachable,
    InvalidRequest,
    NotSupported,
    SessionRejected,
)
from vmafx.agent.registration import Registration
from vmafx.agent.samples import SampleSender, SampleSpool, SpooledSamples
from vmafx.backoff import Backoff
from vmafx.segments import SegmentLog
from vmafx.wire import controller_pb2 as wire

STORED, RETRY = wire.PushSamplesResponse.STORED, wire.PushSamplesResponse.RETRY
MIB = 1 << 20


def batch(attempt: str, size: int = 10) -> SpooledSamples:
    return SpooledSamples(attempt, f"token-{attempt}", attempt.encode() * size)


def stored(spool: SampleSpool) -> list[str]:
    """The attempts that a new agent finds."""
    found = []
    while (entry := spool.oldest()) is not None:
        found.append(entry.samples.attempt)
        spool.mark_done(entry.position)
    return found


def test_nothing_is_on_disk_without_samples(tmp_path: Path) -> None:
    spool = SampleSpool(tmp_path / "samples", MIB)
    assert (spool.fresh(), spool.oldest()) == (None, None)
    spool.release()
    spool.mark_all_done()
    spool.close()
    assert list(tmp_path.iterdir()) == []


@given(st.data())
def test_a_batch_stays_until_it_is_done_with(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Whatever the order, and whenever the agent is killed."""
    folder = tmp_path_factory.mktemp("spool") / "samples"
    spool, kept, number = SampleSpool(folder, MIB), list[str](), 0
    for step in data.draw(st.lists(st.sampled_from(["put", "fresh", "done", "later", "restart"]), max_size=30)):
        if step == "put":
            number += 1
            spool.put(batch(str(number)))
            kept.append(str(number))
        elif step == "restart":
            spool.close()
            found = on_disk(folder)
            assert set(kept) <= set(found)
            spool, kept = SampleSpool(folder, MIB), found
            assert spool.fresh() is None  # those of an earlier start are tried again one after the other
        else:
            entry = spool.fresh() if step == "fresh" else spool.oldest()
            assert step == "fresh" or (entry.samples.attempt if entry else None) == (kept[0] if kept else None)
            if entry is not None and step == "later":
                spool.mark_tried(entry.position)
            elif entry is not None:
                assert entry.samples == batch(entry.samples.attempt)
                spool.mark_done(entry.position)
                spool.release()
                kept.remove(entry.samples.attempt)
    assert stored(spool) == kept
    spool.release()
    spool.close()
    assert stored(SampleSpool(folder, MIB)) == []


def on_disk(folder: Path) -> list[str]:
    """The undelivered batches, and delivered ones of the same segments."""
    with closing(SegmentLog(folder)) as log:
        return [msgspec.msgpack.decode(content, type=SpooledSamples).attempt for _, content in log.read()]


def test_the_oldest_batches_are_deleted_beyond_the_limit(tmp_path: Path, logged: Logged) -> None:
    spool = SampleSpool(tmp_path, MIB)
    for number in range(300):
        spool.put(batch(f"{number:04}", 2500))
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert MIB // 2 < size <= MIB
    left = stored(spool)
    assert left == [f"{number:04}" for number in range(300 - len(left), 300)]
    assert sum(fields["batches"] for _, fields in logged("level", "warn")) == 300 - len(left)  # type: ignore[misc]


def test_damaged_batches_are_skipped_with_a_warning(tmp_path: Path, logged: Logged) -> None:
    spool = SampleSpool(tmp_path, MIB)
    for attempt in "abc":
        spool.put(batch(attempt))
    spool.close()
    (segment,) = tmp_path.glob("*.segment")
    content = bytearray(segment.read_bytes())
    content[content.index(b"bbbb")] ^= 1
    segment.write_bytes(content)
    assert stored(SampleSpool(tmp_path, MIB)) == ["a", "c"]
    assert [fields["batches"] for _, fields in logged("level", "warn")] == [1]


@pytest.mark.parametrize("content", [b"", b"\xc1", b"\x81\xa1x" + b"\x91" * 5000], ids=["empty", "invalid", "nested"])
def test_batches_of_another_version_are_skipped_with_a_warning(tmp_path: Path, logged: Logged, content: bytes) -> None:
    with closing(SegmentLog(tmp_path)) as log:
        log.append(content)
        log.append(msgspec.msgpack.encode(batch("a")))
    assert stored(SampleSpool(tmp_path, MIB)) == ["a"]
    assert logged("level", "warn")


def test_a_full_disk_only_loses_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: Logged) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    spool = SampleSpool(tmp_path / "samples", MIB)
    spool.put(batch("before"))
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        spool.put(batch("lost"))
    spool.put(batch("after"))
    assert [fields["attempt"] for _, fields in logged("level", "warn")] == ["lost"]
    assert stored(spool) == ["before", "after"]


def test_a_folder_that_cannot_be_used_only_loses_samples(tmp_path: Path, logged: Logged) -> None:
    (tmp_path / "samples").write_text("not a folder")
    spool = SampleSpool(tmp_path / "samples", MIB)
    spool.put(batch("lost"))
    assert (spool.oldest(), len(logged("level", "warn"))) == (None, 2)


class Link(ControllerLink):
    """Answers pushes with a result or an error, chosen by the attempt."""

    def __init__(self) -> None:
        self.answer: Callable[[str], int | ControllerError] = lambda _: STORED
        self.pushed: list[str] = []

    async def push_samples(self, session: AgentSession, token: str, samples: bytes) -> wire.PushSamplesResponse:
        attempt = token.removeprefix("token-")
        assert samples == attempt.encode() * 10
        self.pushed.append(attempt)
        await asyncio.sleep(0)
        answer = self.answer(attempt)
        if isinstance(answer, ControllerError):
            raise answer
        return wire.PushSamplesResponse(result=answer)  # type: ignore[arg-type]


class Registered(Registration):
    async def session(self) -> AgentSession:
        return AgentSession("ns/machine", "session")


@asynccontextmanager
async def sending(
    folder: Path, link: Link, rejected: Callable[[], None] = lambda: None
) -> AsyncIterator[tuple[SampleSender, SampleSpool]]:
    spool = SampleSpool(folder, MIB)
    sender = SampleSender(link, Registered(link, wire.RegisterNodeRequest()), spool, rejected)
    running = asyncio.create_task(sender.run())
    try:
        yield sender, spool
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        spool.close()


async def test_a_batch_is_sent_once_and_deleted_when_it_is_stored(tmp_path: Path) -> None:
    link = Link()
    async with sending(tmp_path, link) as (sender, spool):
        for attempt in "abc":
            sender.store(batch(attempt))
        await eventually(lambda: link.pushed == ["a", "b", "c"] and spool._done == 3, "all are delivered")
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == 0
    assert link.pushed == ["a", "b", "c"]


async def test_a_trainer_that_is_down_does_not_hold_up_new_batches(tmp_path: Path) -> None:
    link, down = Link(), True
    link.answer = lambda _: RETRY if down else STORED
    async with sending(tmp_path, link) as (sender, spool):
        for attempt in "abc":
            sender.store(batch(attempt))
        await eventually(lambda: {"b", "c"} <= set(link.pushed), "each is sent at once")
        await eventually(lambda: link.pushed.count("c") > 1, "all are tried again")
        down = False
        await eventually(lambda: spool.oldest() is None, "all are delivered")
        assert sorted(link.pushed[-3:]) == ["a", "b", "c"]


@pytest.mark.parametrize("answer", [RETRY, ControllerUnreachable("INTERNAL"), ControllerRefused("no")], ids=str)
async def test_a_batch_that_always_fails_holds_up_no_other(tmp_path: Path, answer: Any) -> None:
    """Neither new ones, nor those that failed once."""
    link, failed = Link(), set[str]()

    def fail_once(attempt: str) -> int | ControllerError:
        if attempt == "a" or attempt not in failed:
            failed.add(attempt)
            return answer  # type: ignore[no-any-return]
        return STORED

    link.answer = fail_once
    async with sending(tmp_path, link) as (sender, spool):
        for attempt in "abc":
            sender.store(batch(attempt))
        await eventually(lambda: spool._done_later == {2, 3}, "the others are delivered")
        assert (link.pushed.count("b"), link.pushed.count("c")) == (2, 2)
        failed.add("d")
        sender.store(batch("d"))
        await eventually(lambda: "d" in link.pushed, "a new one is sent although the first one waits")
    assert on_disk(tmp_path)[0] == "a"


async def test_retries_go_through_a_long_backlog_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "MAX_RETRIED", 2)
    monkeypatch.setattr(samples, "BACKOFF", Backoff(0.01, 0.01))
    link = Link()
    link.answer = lambda _: RETRY
    async with sending(tmp_path, link) as (sender, _):
        for attempt in "abcde":
            sender.store(batch(attempt))
        await eventually(lambda: len(link.pushed) >= 5 + 15, "all are tried again")
    assert link.pushed[:20] == list("abcde" * 4)


async def test_a_disk_that_cannot_be_read_loses_no_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: Logged
) -> None:
    def fail(*_: object) -> Any:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    link = Link()
    async with sending(tmp_path, link) as (sender, spool):
        with monkeypatch.context() as patched:
            patched.setattr(SegmentLog, "read", fail)
            sender.store(batch("a"))
            await eventually(lambda: logged("level", "warn"), "the error is logged")
        await eventually(lambda: spool._done == 1, "it is delivered")
    assert link.pushed == ["a"]


async def test_undelivered_batches_survive_a_restart(tmp_path: Path) -> None:
    link = Link()
    link.answer = lambda attempt: STORED if attempt == "b" else RETRY
    async with sending(tmp_path, link) as (sender, _):
        for attempt in "abc":
            sender.store(batch(attempt))
        await eventually(lambda: {"a", "b", "c"} <= set(link.pushed), "all are sent")
    later = Link()
    async with sending(tmp_path, later) as (_, spool):
        await eventually(lambda: spool.oldest() is None, "all are delivered")
    assert {"a", "c"} <= set(later.pushed)


ERRORS: list[Any] = [ControllerUnreachable("down"), SessionRejected("who?"), ControllerRefused("no"), 99]


@pytest.mark.parametrize("answer", ERRORS, ids=str)
async def test_a_batch_is_kept_while_the_controller_cannot_take_it(tmp_path: Path, answer: Any) -> None:
    link, rejections = Link(), list[bool]()
    link.answer = lambda _: answer
    async with sending(tmp_path, link, lambda: rejections.append(True)) as (sender, spool):
        sender.store(batch("a"))
        await eventually(lambda: len(link.pushed) >= 2, "it is tried again")
        assert spool.oldest() is not None
        link.answer = lambda _: STORED
        await eventually(lambda: spool.oldest() is None, "it is delivered")
    assert bool(rejections) == isinstance(answer, SessionRejected)  # a heartbeat then finds out what is the matter


FINAL: list[Any] = [
    wire.PushSamplesResponse.DUPLICATE,
    wire.PushSamplesResponse.REFUSED,
    wire.PushSamplesResponse.UNWANTED,
    InvalidRequest("nonsense"),
]


@pytest.mark.parametrize("answer", FINAL, ids=str)
async def test_a_batch_that_needs_no_delivery_is_deleted(tmp_path: Path, answer: Any) -> None:
    link = Link()
    link.answer = lambda attempt: answer if attempt == "a" else STORED
    async with sending(tmp_path, link) as (sender, spool):
        sender.store(batch("a"))
        sender.store(batch("b"))
        await eventually(lambda: spool._done == 2, "both are done with")
    assert link.pushed == ["a", "b"]


async def test_an_old_controller_takes_no_samples_which_is_said_once(tmp_path: Path, logged: Logged) -> None:
    link = Link()
    link.answer = lambda _: NotSupported("UNIMPLEMENTED")
    async with sending(tmp_path, link) as (sender, spool):
        for attempt in "abc":
            sender.store(batch(attempt))
            await eventually(lambda: spool.oldest() is None, "it is deleted")
    assert [message for message, _ in logged("level", "warn")] == ["the controller takes no samples; they are deleted"]
    assert stored(SampleSpool(tmp_path, MIB)) == []
