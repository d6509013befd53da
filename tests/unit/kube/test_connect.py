"""Connections that end while they are being set up, on asyncio's event loop and on uvloop."""

import asyncio
import os
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import uvloop

from vmafx.kube.connect import DialTarget, ServerAddress, dial

ATTEMPTS = 300
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close() resets the connection


@contextmanager
def resetting_server() -> Iterator[int]:
    """A server that resets every connection as soon as it has accepted it; yields its port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    accepted, _ = listening.accept()
                    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                    accepted.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


class Dialled(asyncio.Protocol):
    transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("cancelled", [False, True])
def test_a_connection_that_ends_early_closes_no_descriptor_of_others(
    loop: Callable[[], asyncio.AbstractEventLoop], *, tls: bool, cancelled: bool
) -> None:
    async def attempt(target: DialTarget, turns: int) -> None:
        protocol = Dialled()
        dialling = asyncio.create_task(dial(target, protocol))
        for _ in range(turns):
            await asyncio.sleep(0)
        if cancelled:
            dialling.cancel()
        with suppress(OSError, asyncio.CancelledError):
            await dialling
        if isinstance(protocol.transport, asyncio.WriteTransport):
            protocol.transport.abort()
        for _ in range(3):
            await asyncio.sleep(0)

    async def scenario(port: int) -> None:
        target = DialTarget(ServerAddress("127.0.0.1", port, ssl.create_default_context() if tls else None))
        before, others = open_descriptors(), list[int]()
        try:
            for number in range(ATTEMPTS):
                await attempt(target, number % 10)
                others.append(os.open("/dev/null", os.O_RDONLY))  # gets the descriptor that was closed last
            for descriptor in others:
                os.fstat(descriptor)  # raises if somebody else closed it
            await asyncio.sleep(0.1)  # uvloop closes what is left of the last ones
            assert open_descriptors() < before + ATTEMPTS + 20  # an event loop has some of its own
        finally:
            for descriptor in others:
                with suppress(OSError):
                    os.close(descriptor)

    with resetting_server() as port, asyncio.Runner(loop_factory=loop) as runner:
        runner.run(scenario(port))
