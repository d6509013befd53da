"""Serves one client over standard input and output. Nothing else is written to standard output."""

import asyncio
import os
import sys
from collections.abc import Callable
from typing import Any, cast

import anyio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from vmafx.logs import log

MAX_LINE = 4 << 20  # bytes of a message


async def serve_stdio(server: Server[Any], stop: asyncio.Event, on_end: Callable[[], None]) -> None:
    """Serve until standard input ends or `stop` is set. `on_end` is called before requests are cancelled for that."""
    lines = _Lines(await _open_stdin(), on_end)
    # The SDK reads standard input in a thread, which would keep the process from ending.
    stdin = cast("anyio.AsyncFile[str]", lines)

    async def serve() -> None:
        async with stdio_server(stdin=stdin) as (read, write):
            await server.run(read, write, server.create_initialization_options())

    serving, stopping = asyncio.create_task(serve()), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        on_end()
        if serving.done():
            serving.result()
    finally:
        for task in (serving, stopping):
            task.cancel()
        await asyncio.wait({serving, stopping})


async def _open_stdin() -> asyncio.StreamReader:
    """Standard input on a descriptor of its own; child processes and libraries get an empty one."""
    fd = os.dup(sys.stdin.fileno())
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, sys.stdin.fileno())
    os.close(empty)
    reader = asyncio.StreamReader(limit=MAX_LINE)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb", buffering=0)
    )
    return reader


class _Lines:
    """The lines of standard input, until its end or one that is too long."""

    def __init__(self, reader: asyncio.StreamReader, on_end: Callable[[], None]) -> None:
        self._reader, self._on_end = reader, on_end

    def __aiter__(self) -> "_Lines":
        return self

    async def __anext__(self) -> str:
        try:
            line = await self._reader.readline()
        except ValueError:
            log.error("a message is too long; ending", limit=MAX_LINE)
            line = b""
        if not line:
            self._on_end()
            raise StopAsyncIteration
        return line.decode(errors="replace")
