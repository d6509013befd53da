"""Sessions: their messages that can be sent again, and how many there are."""

import asyncio

import pytest
from mcp.server.lowlevel import Server
from mcp.server.streamable_http import EventMessage
from mcp_types import JSONRPCNotification

from vmafx.auth.callers import ServedCaller
from vmafx.http.errors import StatusError
from vmafx.mcp import sessions as module
from vmafx.mcp.sessions import McpSessions, SessionEvents


def message(text: str) -> JSONRPCNotification:
    return JSONRPCNotification(jsonrpc="2.0", method=text)


async def replayed(events: SessionEvents, last: str) -> tuple[str | None, list[str]]:
    sent = list[EventMessage]()

    async def send(event: EventMessage) -> None:
        sent.append(event)

    stream = await events.replay_events_after(last, send)
    return stream, [one.message.method for one in sent if isinstance(one.message, JSONRPCNotification)]


async def test_only_later_messages_of_the_same_stream_are_sent_again() -> None:
    events = SessionEvents()
    first = await events.store_event("1", None)
    await events.store_event("2", message("other"))
    second = await events.store_event("1", message("a"))
    last = await events.store_event("1", message("b"))
    assert await replayed(events, first) == ("1", ["a", "b"])
    assert await replayed(events, second) == ("1", ["b"])
    assert await replayed(events, last) == ("1", [])
    for unknown in ("0", "99", "", "x"):
        assert await replayed(events, unknown) == (None, [])


async def test_the_oldest_messages_are_forgotten_above_a_number_and_a_size() -> None:
    by_count, by_size = SessionEvents(count=3), SessionEvents(size=200)
    for events in (by_count, by_size):
        ids = [await events.store_event("1", message(f"{number}" * 20)) for number in range(6)]
        assert await replayed(events, ids[0]) == (None, [])
        stream, kept = await replayed(events, ids[-2])
        assert (stream, kept) == ("1", ["5" * 20])


async def test_when_all_sessions_are_open_the_caller_who_has_most_gives_one_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SESSIONS", 3)
    sessions = McpSessions(Server("test"))
    ann, bob = ServedCaller("ann", "user ann"), ServedCaller("bob", "user bob")
    first, second, third = [await sessions.open(ann) for _ in range(3)]
    async with sessions.using(first.id, ann):
        own = await sessions.open(bob)
    assert len(sessions) == 3
    for session, caller in ((first, ann), (third, ann), (own, bob)):
        async with sessions.using(session.id, caller):
            pass
    with pytest.raises(StatusError, match="no such session"):
        async with sessions.using(second.id, ann):
            pass
    await sessions.close()
    assert len(sessions) == 0


async def test_sessions_that_are_opened_at_the_same_time_stay_within_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_OF_CALLER", 2)
    sessions, ann = McpSessions(Server("test")), ServedCaller("ann", "user ann")
    for _ in range(3):
        opened = await asyncio.gather(*(sessions.open(ann) for _ in range(4)), return_exceptions=True)
        assert [type(one) for one in opened[2:]] == [StatusError, StatusError], "the others are in use"
        assert len(sessions) == 2
    await sessions.close()
