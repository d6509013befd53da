"""An HTTP forward proxy: CONNECT for https, absolute URLs for http; optionally with a password or TLS."""

import asyncio
import ssl
from urllib.parse import urlsplit

from tests.support.tcp_server import TcpServer


class Tunnel(TcpServer):
    """`password` is the expected Proxy-Authorization; `seen` are the request lines of all requests."""

    def __init__(self, password: str = "", tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls)
        self._password = password
        self.seen: list[str] = []

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
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
