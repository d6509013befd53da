"""A TCP server, usually on the loopback, that leaves no connection and no task behind, whatever their state is."""

import asyncio
import ssl
from contextlib import suppress
from typing import Self

from tests.support.waiting import turns

LOCAL = "127.0.0.1"


class TcpServer:
    """A subclass serves one connection in `converse`. Use as an async context manager."""

    def __init__(self, tls: ssl.SSLContext | None = None, address: str = LOCAL) -> None:
        self.connections = 0  # accepted so far
        self._tls, self._address = tls, address
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._closed = False

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, self._address, 0, ssl=self._tls)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closed = True
        for listening in self._server.sockets:
            asyncio.get_running_loop().remove_reader(listening.fileno())
        await turns()  # asyncio would leave a connection open that it accepted just before close()
        self._server.close()
        self.cut()
        await asyncio.gather(*self._open, return_exceptions=True)
        await turns()  # both ends close aborted connections

    @property
    def open(self) -> int:
        """The number of connections."""
        return len(self._open)

    def cut(self) -> None:
        """Close all connections."""
        for task in self._open:
            task.cancel()

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise NotImplementedError

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._closed:
            writer.transport.abort()
            return
        self.connections += 1
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._open[task] = writer
        task.add_done_callback(self._ended)  # also of a task that is cancelled before it starts

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await self.converse(reader, writer)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._open.pop(task).transport.abort()
