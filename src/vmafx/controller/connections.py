"""Probes whether the controller's gRPC port serves a new connection.

gRPC cannot share its connections fairly between addresses. Agents have to reconnect now and then, and whoever holds all
connections keeps them out. The operator must not take that for the silence of the agents.
"""

import asyncio
import ssl

from vmafx.http.address import ListenAddress
from vmafx.logs import log

PROBE_INTERVAL = 10.0  # seconds
RETRY_INTERVAL = 2.0  # seconds, after a probe that failed
TIMEOUT = 5.0  # seconds for an answer
LOOPBACK = "127.0.0.1"
WILDCARDS = (None, "::", "0.0.0.0")  # noqa: S104 - compared only


class ConnectionProbe:
    """Opens a connection to this process's own port every PROBE_INTERVAL. `problem` is the result of the latest."""

    def __init__(self, *, tls: bool) -> None:
        self._tls = tls
        self.problem: str | None = None

    async def run(self, address: ListenAddress) -> None:
        """Probe until cancelled."""
        host = LOOPBACK if address.host in WILDCARDS else address.host
        while True:
            before, self.problem = self.problem, await self._connect(host, address.port)
            if self.problem is not None and before is None:
                log.error("new gRPC connections are not served", error=self.problem)
            elif before is not None and self.problem is None:
                log.info("new gRPC connections are served again")
            await asyncio.sleep(PROBE_INTERVAL if self.problem is None else RETRY_INTERVAL)

    async def _connect(self, host: str | None, port: int) -> str | None:
        """Connect and wait for the first byte: HTTP/2 settings, or the answer to a TLS handshake. Return what is wrong.

        The handshake is not completed: with --client-ca that would need a client certificate.
        """
        try:
            async with asyncio.timeout(TIMEOUT):
                reader, writer = await asyncio.open_connection(host, port)
                try:
                    if self._tls:
                        writer.write(_client_hello())
                    answer = await reader.read(1)
                finally:
                    writer.transport.abort()
        except ConnectionResetError:
            answer = b""
        except TimeoutError:
            return f"the gRPC port does not answer a new connection within {TIMEOUT:.0f} s"
        except OSError as error:
            return f"the gRPC port refuses new connections: {error.strerror or error}"
        return None if answer else "the gRPC port closes new connections: there are too many"


def _client_hello() -> bytes:
    """The first message of a TLS handshake with gRPC."""
    context, received, to_send = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.MemoryBIO(), ssl.MemoryBIO()
    context.check_hostname = False  # nothing is sent, and nothing that is received is trusted
    context.set_alpn_protocols(["h2"])
    try:
        context.wrap_bio(received, to_send).do_handshake()
    except ssl.SSLWantReadError:
        return to_send.read()
    raise AssertionError("a handshake needs an answer")
