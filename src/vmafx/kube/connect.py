"""Dials the API server, or another HTTP server: name lookup, TCP, TLS, and an HTTP proxy."""

import asyncio
import socket
import ssl
from typing import Any, NamedTuple, cast

from aiohappyeyeballs import start_connection

from vmafx.kube.credentials import Anonymous, Credentials
from vmafx.kube.lookup import NameLookups

MAX_HEADER_BYTES = 1 << 16  # of a response
# Own threads: uvloop has two for lookups, so two that time out would delay all others.
API_SERVER_LOOKUPS = NameLookups(16)


class ConnectionLost(OSError):
    """The connection closed before the response was complete. The server may have carried out the request."""


class RequestNotSent(ConnectionLost):
    """The connection was closed before the request was sent."""


class ProxyRefused(OSError):
    """The proxy refused to open a tunnel. The server received nothing."""


class ServerAddress(NamedTuple):
    """Host and port; with `tls`, `name` is the expected name in the certificate (default: the host)."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    name: str = ""


class DialTarget(NamedTuple):
    """The server to reach, and the proxy to reach it through, if any."""

    server: ServerAddress
    proxy: ServerAddress | None = None
    proxy_credentials: Credentials = Anonymous()
    lookups: NameLookups = API_SERVER_LOOKUPS

    @property
    def tunnelled(self) -> bool:
        """Whether the proxy opens a tunnel (CONNECT). Plain HTTP is forwarded request by request instead."""
        return self.proxy is not None and self.server.tls is not None


async def dial(target: DialTarget, protocol: asyncio.Protocol) -> None:
    """Connect `protocol` to the server."""
    if target.tunnelled:
        await _dial_through_tunnel(target, protocol)
    else:
        await _connect(target.proxy or target.server, protocol, target.lookups)


async def _connect(server: ServerAddress, protocol: asyncio.Protocol, lookups: NameLookups) -> asyncio.Transport:
    loop, addresses = asyncio.get_running_loop(), await lookups.look_up(server.host, server.port)
    sock = await start_connection(addresses, happy_eyeballs_delay=0.25, socket_factory=_open_socket)
    name = (server.name or server.host) if server.tls else None
    try:
        transport, _ = await loop.create_connection(lambda: protocol, sock=sock, ssl=server.tls, server_hostname=name)
    except BaseException:
        _disown(sock, loop)
        raise
    if transport.is_closing():
        _disown(sock, loop)
    return transport


def _disown(sock: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
    """Leave the descriptor to uvloop, which closes it.

    If a connection ends while it is being set up, uvloop does not tell the socket. That would close the descriptor a
    second time when it is collected, and by then it may be another connection's.
    """
    if type(loop).__module__.startswith("uvloop"):
        sock.detach()


def _open_socket(address: tuple[int, int, int, str, tuple[Any, ...]]) -> socket.socket:
    """A socket that detects a dead peer within 30 seconds, as client-go does with HTTP/2 pings."""
    family, kind, protocol = address[:3]
    sock = socket.socket(family, kind, protocol)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 30_000)):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return sock


async def _dial_through_tunnel(target: DialTarget, protocol: asyncio.Protocol) -> None:
    server, proxy = target.server, cast("ServerAddress", target.proxy)
    response = _ConnectResponse()
    transport = await _connect(proxy, response, target.lookups)
    try:
        host_port = f"[{server.host}]:{server.port}" if ":" in server.host else f"{server.host}:{server.port}"
        credentials = await target.proxy_credentials.header()
        authorization = f"Proxy-Authorization: {credentials}\r\n" if credentials else ""
        transport.write(f"CONNECT {host_port} HTTP/1.1\r\nHost: {host_port}\r\n{authorization}\r\n".encode())
        await response.accepted
        loop = asyncio.get_running_loop()
        inner = await loop.start_tls(
            transport, protocol, cast("ssl.SSLContext", server.tls), server_hostname=server.name or server.host
        )
    except BaseException:
        transport.abort()
        raise
    protocol.connection_made(cast("asyncio.Transport", inner))


class _ConnectResponse(asyncio.Protocol):
    """Waits for the proxy's response to CONNECT; `accepted` raises ProxyRefused unless it is a 2xx."""

    def __init__(self) -> None:
        self.accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._received = b""

    def data_received(self, data: bytes) -> None:
        self._received += data
        if b"\r\n\r\n" in self._received or len(self._received) > MAX_HEADER_BYTES:
            version, _, status = self._received.partition(b"\r\n")[0].decode("latin-1").partition(" ")
            if version.startswith("HTTP/1.") and status.startswith("2"):
                if not self.accepted.done():
                    self.accepted.set_result(None)
            else:
                self._fail(f"the proxy responded {status[:100]}")

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(f"the proxy closed the connection{f': {error}' if error else ''}")

    def _fail(self, reason: str) -> None:
        if not self.accepted.done():
            self.accepted.set_exception(ProxyRefused(reason))
