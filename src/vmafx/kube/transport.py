"""One HTTP request to the API server and its answer: connections, credentials, time limits, retries, metrics.

The only place that knows aiohttp, which streams and goes through proxies, and exchange.py, which does the calls; their
errors leave here as ours.
"""

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from typing import Any, Self
from urllib.parse import urlencode

import aiohttp
import msgspec
from yarl import URL

from vmafx.kube.config import Config
from vmafx.kube.errors import ApiError, ConfigError, KubeError, Unauthorized, Unreachable, Untrusted, error_from_answer
from vmafx.kube.exchange import Connection, Pool
from vmafx.kube.metrics import ClientMetrics
from vmafx.kube.retry import TRIES, wait_before_retry

CONNECTIONS = 40
CONNECT_TIMEOUT = 10.0
ANSWER_TIMEOUT = 60.0
READ_BUFFER = 1 << 20
_NO_ANSWER = "<error>"
_HEADERS = {"Accept": "application/json", "User-Agent": "vmafx"}
_HEADER_LINES = tuple(f"{name}: {value}" for name, value in _HEADERS.items())
_LOST = (aiohttp.ClientError, TimeoutError, OSError)


class Request(msgspec.Struct, frozen=True):
    """What to send. `idempotent` says whether sending it twice comes to the same as once."""

    method: str
    path: str
    query: dict[str, str] = {}
    body: bytes | None = None
    content_type: str = "application/json"
    idempotent: bool = False
    timeout: float = ANSWER_TIMEOUT


class Transport:
    """A pool of connections to one server. Use as an async context manager."""

    def __init__(self, config: Config, metrics: ClientMetrics | None = None) -> None:
        self._config = config
        self._metrics = metrics
        url = URL(config.server)
        self._host, self._base = url.authority, url.raw_path.rstrip("/")
        self._slots = asyncio.Semaphore(CONNECTIONS)
        self._session: aiohttp.ClientSession | None = None
        tls = config.tls if url.scheme == "https" else None
        self._pool = Pool(url.host or "", url.port or 443, tls, config.server_name, _socket)

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0,  # watches hold theirs for minutes; calls are limited below
                ssl=self._config.tls or False,
                socket_factory=_socket,
                enable_cleanup_closed=False,
            ),
            headers=_HEADERS,
            # Without Accept-Encoding the server does not compress, which costs both sides more than it saves.
            skip_auto_headers=("Accept-Encoding",),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=READ_BUFFER,
        )
        # aiohttp would repeat a DELETE by itself; what is repeated, and when, is for retry.py to say.
        self._session._retry_connection = False  # noqa: SLF001
        return self

    async def __aexit__(self, *_: object) -> None:
        self._pool.close()
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def call(self, request: Request) -> bytes:
        """Send, wait for the whole answer, try again where that is safe."""
        header = await self._config.credentials.header()
        tries = 0
        while True:
            tries += 1
            try:
                async with self._slots:
                    through = self._by_proxy if self._config.proxy else self._exchange
                    return await through(request, header)
            except Unauthorized as error:
                # The credentials may have been renewed since: once more with others, if there are any.
                refused, header = header, await self._config.credentials.header(header)
                if header == refused:
                    raise
                wait = 0.0 if tries < TRIES else None
                failed: KubeError = error
            except KubeError as error:
                wait = wait_before_retry(error, tries, idempotent=request.idempotent)
                failed = error
            if wait is None:
                failed.tries = tries
                raise failed
            await asyncio.sleep(wait)

    async def _by_proxy(self, request: Request, authorization: str | None) -> bytes:
        limits = aiohttp.ClientTimeout(total=request.timeout, sock_connect=CONNECT_TIMEOUT)
        async with self._answer(request, limits, authorization) as answer:
            return await answer.read()

    async def _exchange(self, request: Request, authorization: str | None) -> bytes:
        """A call, without a proxy."""
        if self._session is None:
            raise RuntimeError("the client is not open: use `async with`")
        content, started, code = self._bytes(request, authorization), time.perf_counter(), _NO_ANSWER
        try:
            async with asyncio.timeout(request.timeout):
                connection = await self._connection()
                answer = await connection.exchange(content)
            code = str(answer.status)
        except (TimeoutError, OSError) as error:
            raise self._unreachable(error) from error
        finally:
            self._count(request, code, started)
        self._pool.keep(connection)
        if answer.status >= HTTPStatus.MULTIPLE_CHOICES:
            raise self._refusal(answer.status, answer.retry_after, answer.body)
        return answer.body

    async def _connection(self) -> Connection:
        where = self._config.server
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                return await self._pool.connection()
        except ssl.SSLCertVerificationError as error:
            raise Untrusted(f"the certificate of {where} is not trusted: {_cause(error)}") from error
        except TimeoutError as error:
            raise Unreachable(f"{where} did not answer in time", sent=False) from error
        except OSError as error:
            raise Unreachable(f"cannot connect to {where}: {_cause(error)}", sent=False) from error

    def _bytes(self, request: Request, authorization: str | None) -> bytes:
        query = f"?{urlencode(request.query)}" if request.query else ""
        head = [f"{request.method} {self._base}{request.path}{query} HTTP/1.1", f"Host: {self._host}", *_HEADER_LINES]
        if authorization:
            head.append(f"Authorization: {authorization}")
        if request.body is not None:
            head += [f"Content-Type: {request.content_type}", f"Content-Length: {len(request.body)}"]
        if any("\n" in line or "\r" in line for line in head):
            raise ConfigError("the credentials or the server's address have a line break in them")
        return "\r\n".join([*head, "", ""]).encode() + (request.body or b"")

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[aiohttp.StreamReader]:
        """Send, and hand out the body as it comes; for watches. Not tried again here: the watch knows from where."""
        limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT, sock_read=request.timeout)
        async with AsyncExitStack() as stack:
            header = await self._config.credentials.header()
            try:
                answer = await stack.enter_async_context(self._answer(request, limits, header))
            except Unauthorized:
                header = await self._config.credentials.header(header)
                answer = await stack.enter_async_context(self._answer(request, limits, header))
            try:
                yield answer.content
            finally:
                # A watch is left in the middle. To say goodbye takes a while that nobody waits for: the socket would
                # outlive the client.
                if not answer.content.is_eof() and answer.connection and answer.connection.transport:
                    answer.connection.transport.abort()

    @asynccontextmanager
    async def _answer(
        self, request: Request, limits: aiohttp.ClientTimeout, authorization: str | None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        if self._session is None:
            raise RuntimeError("the client is not open: use `async with`")
        headers = {"Content-Type": request.content_type} if request.body is not None else {}
        if authorization:
            headers["Authorization"] = authorization
        query = f"?{urlencode(request.query)}" if request.query else ""
        url = URL(f"{self._config.server}{request.path}{query}", encoded=True)
        started, code = time.perf_counter(), _NO_ANSWER
        try:
            async with self._session.request(
                request.method,
                url,
                data=request.body,
                headers=headers,
                timeout=limits,
                allow_redirects=False,
                proxy=self._config.proxy,
                proxy_headers=await self._proxy_headers(),
                server_hostname=self._config.server_name,
            ) as answer:
                code = str(answer.status)
                self._count(request, code, started)
                if answer.status >= HTTPStatus.MULTIPLE_CHOICES:
                    after = answer.headers.get("Retry-After", "")
                    raise self._refusal(answer.status, after, await answer.read())
                yield answer
        except _LOST as error:
            if code == _NO_ANSWER:
                self._count(request, code, started)
            raise self._unreachable(error) from error

    async def _proxy_headers(self) -> dict[str, str] | None:
        header = await self._config.proxy_credentials.header() if self._config.proxy else None
        return {"Proxy-Authorization": header} if header else None

    def _count(self, request: Request, code: str, started: float) -> None:
        if self._metrics is not None:
            self._metrics.answered(request.method, self._host, code, time.perf_counter() - started)

    def _refusal(self, status: int, after: str, body: bytes) -> ApiError:
        error = error_from_answer(status, body, float(after) if after.isdecimal() else None)
        if isinstance(error, Unauthorized):
            said = f"{self._config.server} does not accept our credentials: {self._config.credentials.why_refused()}"
            message = f"{said}; they come from {self._config.origin}" if self._config.origin else said
            error = Unauthorized(msgspec.structs.replace(error.status, message=message))
        return error

    def _unreachable(self, error: Exception) -> Unreachable:
        where = self._config.server
        match error:
            case aiohttp.ClientConnectorCertificateError():
                return Untrusted(f"the certificate of {where} is not trusted: {_cause(error.certificate_error)}")
            case aiohttp.ClientConnectorError():
                text = f"cannot connect to {where}: {_cause(error.os_error)}"
            case aiohttp.ClientResponseError():  # a proxy's; its own text shows the address with the password
                text = f"the proxy on the way to {where} says {error.status} {error.message}"
            case TimeoutError():
                text = f"{where} did not answer in time"
            case _:
                text = f"the connection to {where} was lost: {_cause(error)}"
        sent = not isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
        return Unreachable(text, sent=sent)


def _cause(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


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
