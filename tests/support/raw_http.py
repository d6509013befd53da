"""Raw HTTP over a socket, for requests that no well-behaved client sends."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from tests.support.waiting import PATIENCE


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class RawCaller:
    """A connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, *, body: bool = True) -> Answer:
        """The next response; a chunked body is read completely."""
        async with asyncio.timeout(PATIENCE):
            first, *lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().removesuffix("\r\n\r\n").split("\r\n")
            headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
            length = int(headers.get("content-length", 0)) if body else 0
            return Answer(int(first.split()[1]), headers, await self.reader.readexactly(length))

    async def is_closed(self) -> bool:
        """True once the server has closed or reset the connection."""
        async with asyncio.timeout(PATIENCE):
            try:
                while await self.reader.read(1 << 16):
                    pass
            except ConnectionError:
                pass
        return True

    async def hang_up(self) -> None:
        self.writer.transport.abort()
        await asyncio.sleep(0)


@asynccontextmanager
async def raw_caller(port: int) -> AsyncIterator[RawCaller]:
    caller = RawCaller(*await asyncio.open_connection("127.0.0.1", port))
    try:
        yield caller
    finally:
        caller.writer.transport.abort()
        await asyncio.sleep(0.01)  # the transport closes in the loop's next turns
