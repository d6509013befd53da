"""Server-sent events as bytes, with comments while there are none."""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing

from vmafx.http.responses import ServerEvent

COMMENT = b":\n\n"  # clients ignore it, but proxies keep the connection open, and a client that is gone is noticed
_LINE_END = re.compile(rb"\r\n|\n|\r")


def encode_event(event: ServerEvent) -> bytes:
    """Each line of the data becomes a line of its own, so that data cannot start another field or event."""
    fields = [(b"event", event.event), (b"id", event.id)]
    lines = []
    for name, value in fields:
        if not value.isprintable():
            raise ValueError(f"the {name.decode()} of an event must be printable, on one line: {value!r}")
        if value:
            lines.append(b"%s: %s\n" % (name, value.encode()))
    lines += [b"data: %s\n" % line for line in _LINE_END.split(event.data)]
    return b"".join([*lines, b"\n"])


async def encoded_events(events: AsyncGenerator[ServerEvent], idle_seconds: float) -> AsyncGenerator[bytes]:
    """The events, and a comment after every `idle_seconds` without one."""
    async with aclosing(events):
        while True:
            upcoming = asyncio.ensure_future(_next(events))
            try:
                while not upcoming.done():
                    await asyncio.wait({upcoming}, timeout=idle_seconds)
                    if not upcoming.done():
                        yield COMMENT
            finally:
                upcoming.cancel()  # a generator cannot be closed while it runs
                await asyncio.wait({upcoming})
            event = upcoming.result()
            if event is None:
                return
            yield encode_event(event)


async def _next(events: AsyncGenerator[ServerEvent]) -> ServerEvent | None:
    return await anext(events, None)
