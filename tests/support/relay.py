"""A TCP relay to a local port whose connections can be cut."""

import asyncio
from contextlib import suppress

from tests.support.tcp_server import LOCAL, TcpServer


class Relay(TcpServer):
    """Use as an async context manager; `cut` aborts all open connections."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._target = port

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(LOCAL, self._target)
        try:
            tasks = [asyncio.create_task(_copy(reader, back)), asyncio.create_task(_copy(there, writer))]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            back.transport.abort()
            writer.transport.abort()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while block := await source.read(1 << 16):
            target.write(block)
            await target.drain()
