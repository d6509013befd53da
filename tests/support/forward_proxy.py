"""An HTTP forward proxy: CONNECT for https, absolute URLs for http; optionally with a password or TLS."""

import asyncio
import ssl
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit


class Tunnel:
    """`password` is the expected Proxy-Authorization; `seen` are the request lines of all requests."""

    def __init__(self, password: str = "", tls: ssl.SSLContext | None = None) -> None:
        self._password, self._tls = password, tls
        self._tasks: set[asyncio.Task[None]] = set()
        self.seen: list[str] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.ensure_future(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            try:
                await self._answer(reader, writer)
            finally:
                writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.split("\r\n")
        self.seen.append(first)
        if self._password and f"Proxy-Authorization: {self._password}" not in lines:
            writer.write(b"HTTP/1.1 407 Who Are You\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            return
        method, target, _ = first.split(" ")
        where = urlsplit(f"//{target}" if method == "CONNECT" else target)
        inner_reader, inner_writer = await asyncio.open_connection(where.hostname, where.port)
        try:
            if method == "CONNECT":
                writer.write(b"HTTP/1.1 200 Go On\r\n\r\n")
            else:
                inner_writer.write(head.replace(f"{where.scheme}://{where.netloc}", "", 1).encode())
            await asyncio.gather(_pump(reader, inner_writer), _pump(inner_reader, writer))
        finally:
            inner_writer.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.write_eof() if writer.can_write_eof() else writer.close()
