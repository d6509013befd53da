"""Serves one client over standard input and output. Nothing else is written to standard output."""

import asyncio
import os
import queue
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO, Literal, TextIO, cast

import anyio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from vmafx.logs import log
from vmafx.scoring.errors import NodeFault

MAX_LINE = 4 << 20  # bytes of a message
MAX_READ_AHEAD = 4  # messages


async def serve_stdio(server: Server[Any], stop: asyncio.Event, on_end: Callable[[], None]) -> None:
    """Serve until standard input ends or `stop` is set. `on_end` is called before requests are cancelled for that.

    Raises NodeFault if there is no standard input or output.
    """
    lines, output = _Lines(_claim(sys.stdin, "rb"), on_end), _Output(_claim(sys.stdout, "wb"))
    # The SDK reads and writes in threads that keep the process from ending while the client does neither.
    stdin, stdout = cast("anyio.AsyncFile[str]", lines), cast("anyio.AsyncFile[str]", output)

    async def serve() -> None:
        async with stdio_server(stdin=stdin, stdout=stdout) as (read, write):
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


def _claim(stream: TextIO | None, mode: Literal["rb", "wb"]) -> BinaryIO:
    """Standard input or output on a descriptor of its own.

    Child processes and libraries get an empty input, and standard error as their output.
    """
    if stream is None:
        raise NodeFault("standard input or output is closed; let a client start this server, or use --http-address")
    fd = os.dup(stream.fileno())
    os.set_blocking(fd, True)
    other = os.open(os.devnull, os.O_RDWR) if mode == "rb" or sys.stderr is None else os.dup(sys.stderr.fileno())
    os.dup2(other, stream.fileno())
    os.close(other)
    return os.fdopen(fd, mode)


class _Lines:
    """The lines of standard input, until its end or one that is too long.

    A thread reads them, which takes files, too. asyncio would make the descriptor non-blocking, and with it standard
    output where both are the same socket or terminal.
    """

    def __init__(self, file: BinaryIO, on_end: Callable[[], None]) -> None:
        self._on_end, self._loop = on_end, asyncio.get_running_loop()
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()
        self._room = threading.Semaphore(MAX_READ_AHEAD)
        threading.Thread(target=self._read, args=(file,), daemon=True).start()

    def __aiter__(self) -> "_Lines":
        return self

    async def __anext__(self) -> str:
        line = await self._lines.get()
        self._room.release()
        if len(line) > MAX_LINE:
            log.error("a message is too long; ending", limit=MAX_LINE)
            line = b""
        if not line:
            self._on_end()
            raise StopAsyncIteration
        return line.decode(errors="replace")

    def _read(self, file: BinaryIO) -> None:
        line = b"\n"
        while line and len(line) <= MAX_LINE:
            try:
                line = file.readline(MAX_LINE + 1)
            except OSError as error:  # such as of a terminal that is gone
                log.error("cannot read standard input; ending", error=error.strerror)
                line = b""
            self._room.acquire()
            with suppress(RuntimeError):  # the loop has ended, and the process will
                self._loop.call_soon_threadsafe(self._lines.put_nowait, line)


class _Output:
    """Standard output, written by a thread that does not keep the process from ending if the client does not read."""

    def __init__(self, file: BinaryIO) -> None:
        self._loop = asyncio.get_running_loop()
        self._texts: queue.SimpleQueue[tuple[str, asyncio.Future[None]]] = queue.SimpleQueue()
        threading.Thread(target=self._write, args=(file,), daemon=True).start()

    async def write(self, text: str) -> None:
        written = self._loop.create_future()
        self._texts.put((text, written))
        await written

    async def flush(self) -> None:
        """What was written is flushed."""

    def _write(self, file: BinaryIO) -> None:
        while True:
            text, written = self._texts.get()
            failure: OSError | None = None
            try:
                file.write(text.encode())
                file.flush()
            except OSError as error:  # the client has closed its end
                failure = error
            with suppress(RuntimeError):  # the loop has ended, and the process will
                self._loop.call_soon_threadsafe(_settle, written, failure)


def _settle(written: asyncio.Future[None], failure: OSError | None) -> None:
    if written.done():  # the write was cancelled
        return
    if failure is None:
        written.set_result(None)
    else:
        written.set_exception(failure)
