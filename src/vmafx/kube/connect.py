"""Opens connections to the API server: name lookup, TLS, and a proxy on the way."""

import asyncio
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, cast

from aiohappyeyeballs import start_connection

from vmafx.kube.credentials import Anonymous, Credentials

MAX_HEADER_BYTES = 1 << 16  # bytes of what a proxy may say
_LOOKUPS = ThreadPoolExecutor(16, thread_name_prefix="lookup")  # of names; none is begun before it is needed


class ConnectionLost(OSError):
    """The connection ended before the answer did. The request may have been carried out."""


class RequestNotSent(ConnectionLost):
    """It ended before the request was sent."""


class ProxyRefused(OSError):
    """The proxy does not let us through. Nothing was sent to the server."""


class ServerAddress(NamedTuple):
    """An address and how to speak to it; `name` is the one its certificate has to have."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    name: str = ""


class DialTarget(NamedTuple):
    """The server, and the proxy on the way if there is one."""

    server: ServerAddress
    proxy: ServerAddress | None = None
    proxy_credentials: Credentials = Anonymous()

    @property
    def tunnelled(self) -> bool:
        """Through the proxy goes what it cannot read; without TLS it is asked for every URL instead."""
        return self.proxy is not None and self.server.tls is not None


async def dial(route: DialTarget, protocol: asyncio.Protocol) -> None:
    """Connect `protocol` to the server."""
    if route.tunnelled:
        await _tunnel(route, protocol)
    else:
        await _connect(route.proxy or route.server, protocol)


async def _connect(server: ServerAddress, protocol: asyncio.Protocol) -> asyncio.Transport:
    loop = asyncio.get_running_loop()
    sock = await start_connection(await _addresses(server), happy_eyeballs_delay=0.25, socket_factory=_socket)
    name = (server.name or server.host) if server.tls else None
    transport, _ = await loop.create_connection(lambda: protocol, sock=sock, ssl=server.tls, server_hostname=name)
    return transport


async def _addresses(server: ServerAddress) -> list[Any]:
    try:  # a number needs no thread that looks it up
        return socket.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        # In threads of our own: uvloop has two for this, and two names that nobody knows would hold up all others.
        look_up = partial(socket.getaddrinfo, server.host, server.port, type=socket.SOCK_STREAM)
        return await asyncio.get_running_loop().run_in_executor(_LOOKUPS, look_up)


def _socket(address: tuple[int, int, int, str, tuple[Any, ...]]) -> socket.socket:
    """A socket that notices within half a minute when the other end is gone, as client-go's pings do."""
    family, kind, protocol = address[:3]
    sock = socket.socket(family, kind, protocol)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 30_000)):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return sock


async def _tunnel(route: DialTarget, protocol: asyncio.Protocol) -> None:
    server, proxy = route.server, cast("ServerAddress", route.proxy)
    agreement = _Agreement()
    transport = await _connect(proxy, agreement)
    try:
        where = f"[{server.host}]:{server.port}" if ":" in server.host else f"{server.host}:{server.port}"
        password = await route.proxy_credentials.header()
        said = f"Proxy-Authorization: {password}\r\n" if password else ""
        transport.write(f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n{said}\r\n".encode())
        await agreement.reached
        loop = asyncio.get_running_loop()
        inner = await loop.start_tls(
            transport, protocol, cast("ssl.SSLContext", server.tls), server_hostname=server.name or server.host
        )
    except BaseException:
        transport.abort()
        raise
    protocol.connection_made(cast("asyncio.Transport", inner))


class _Agreement(asyncio.Protocol):
    """Waits for a proxy to say that the way is free."""

    def __init__(self) -> None:
        self.reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._head = b""

    def data_received(self, data: bytes) -> None:
        self._head += data
        if b"\r\n\r\n" in self._head or len(self._head) > MAX_HEADER_BYTES:
            version, _, said = self._head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
            if version.startswith("HTTP/1.") and said.startswith("2"):
                self._end(None)
            else:
                self._end(ProxyRefused(f"the proxy says {said[:100]}"))

    def connection_lost(self, error: Exception | None) -> None:
        self._end(ProxyRefused(f"the proxy closed the connection{f': {error}' if error else ''}"))

    def _end(self, error: Exception | None) -> None:
        if self.reached.done():
            return
        if error is None:
            self.reached.set_result(None)
        else:
            self.reached.set_exception(error)
