"""The messages of a session that can be sent again."""

from mcp.server.streamable_http import EventMessage
from mcp_types import JSONRPCNotification

from vmafx.mcp.sessions import SessionEvents


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
