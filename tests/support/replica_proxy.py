"""A TCP proxy with one address for several replicas, like a Kubernetes ReplicaProxy: round robin per connection."""

import asyncio
from contextlib import suppress

from tests.support.tcp_server import LOCAL, TcpServer


class ReplicaProxy(TcpServer):
    """While `passing` is cleared, it accepts data and forwards nothing, like a broken network.

    `source` is the local address of the connections to replicas.
    """

    def __init__(self, *ports: int, source: str = LOCAL) -> None:
        super().__init__()
        self._ports, self._source = ports, source
        self._next = 0
        self.passing = asyncio.Event()
        self.passing.set()
        self.went: list[int] = []  # the replica port of each connection

    @property
    def address(self) -> str:
        return f"{LOCAL}:{self.port}"

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = await self._connect()
        if connection is None:
            return
        inner_reader, inner_writer = connection
        try:
            both = [
                asyncio.ensure_future(self._pump(reader, inner_writer)),
                asyncio.ensure_future(self._pump(inner_reader, writer)),
            ]
            try:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for one in both:
                    one.cancel()
                await asyncio.gather(*both, return_exceptions=True)
        finally:
            inner_writer.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for _ in self._ports:
            port = self._ports[self._next % len(self._ports)]
            self._next += 1
            with suppress(OSError):
                connection = await asyncio.open_connection(LOCAL, port, local_addr=(self._source, 0))
                self.went.append(port)
                return connection
        return None

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            await self.passing.wait()
            writer.write(data)
            await writer.drain()
