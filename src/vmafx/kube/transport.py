"""One HTTP request to the API server and its answer: connections, credentials, time limits, retries, metrics.

The only place that knows exchange.py, which does what is on the wire; its errors leave here as ours.
"""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from typing import Self

import msgspec
from yarl import URL

from vmafx.kube.config import Config
from vmafx.kube.dialing import NotSent, ProxyRefused, Route, Server
from vmafx.kube.errors import ApiError, ConfigError, KubeError, Unauthorized, Unreachable, Untrusted, error_from_answer
from vmafx.kube.exchange import C, Connection, Pool, Stream
from vmafx.kube.metrics import ClientMetrics
from vmafx.kube.retry import TRIES, wait_before_retry
from vmafx.kube.tls import trusting

CONNECTIONS = 40
CONNECT_TIMEOUT = 10.0
ANSWER_TIMEOUT = 60.0
SILENT_MOST = 150.0  # seconds of a stream; the server sends a bookmark every minute or so
_NO_ANSWER = "<error>"
# Without Accept-Encoding the server does not compress, which costs both sides more than it saves.
_ALWAYS = "Accept: application/json\r\nUser-Agent: vmafx\r\n"


class Request(msgspec.Struct, frozen=True):
    """What to send; `query` is encoded already. `idempotent` says whether twice comes to the same as once."""

    method: str
    path: str
    query: str = ""
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
        route = _route(url, config)
        self._pool = Pool(route)
        self._slots = asyncio.Semaphore(CONNECTIONS)
        self._open = False
        self._host = url.host_port_subcomponent or ""
        self._base = url.raw_path.rstrip("/")
        self._asked_by_url = route.proxy is not None and not route.tunnelled
        if self._asked_by_url:
            self._base = f"http://{self._host}{self._base}"
        self._head = f" HTTP/1.1\r\nHost: {self._host}\r\n{_ALWAYS}"

    async def __aenter__(self) -> Self:
        self._open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._open = False
        self._pool.close()

    async def call(self, request: Request) -> bytes:
        """Send, wait for the whole answer, try again where that is safe."""
        header = await self._config.credentials.header()
        tries = 0
        while True:
            tries += 1
            try:
                async with self._slots:
                    return await self._exchange(request, header)
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

    async def _exchange(self, request: Request, authorization: str | None) -> bytes:
        content, started, code = await self._bytes(request, authorization), time.perf_counter(), _NO_ANSWER
        try:
            async with asyncio.timeout(request.timeout):
                connection = self._pool.idle() or await self._connect(Connection)
                answer = await connection.exchange(content)
            code = str(answer.status)
        except (TimeoutError, OSError) as error:
            raise self._unreachable(error) from error
        finally:
            self._count(request, code, started)
        self._keep(connection)
        if answer.status >= HTTPStatus.MULTIPLE_CHOICES:
            raise self._refusal(answer.status, answer.retry_after, answer.body)
        return answer.body

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        """Send, and hand out the body as it comes; for watches. Not tried again here: the watch knows from where.

        The request's timeout is the whole stream's. One that says nothing for SILENT_MOST is given up: behind a load
        balancer, a server that is gone looks like one that has nothing to say.
        """
        async with AsyncExitStack() as stack:
            header = await self._config.credentials.header()
            try:
                stream = await stack.enter_async_context(self._stream(request, header))
            except Unauthorized:
                header = await self._config.credentials.header(header)
                stream = await stack.enter_async_context(self._stream(request, header))
            yield stream

    @asynccontextmanager
    async def _stream(self, request: Request, authorization: str | None) -> AsyncIterator[Stream]:
        content, started, code = await self._bytes(request, authorization), time.perf_counter(), _NO_ANSWER
        stream: Stream | None = None
        watchdog: _Watchdog | None = None
        try:
            try:
                stream = await self._connect(Stream)
                async with asyncio.timeout(ANSWER_TIMEOUT):
                    await stream.begin(content)
                code = str(stream.status)
            finally:
                self._count(request, code, started)
            if stream.status >= HTTPStatus.MULTIPLE_CHOICES:
                async with asyncio.timeout(ANSWER_TIMEOUT):
                    body = await stream.read_all()
                raise self._refusal(stream.status, stream.retry_after, body)
            watchdog = _Watchdog(stream, request.timeout)
            yield stream
        except (TimeoutError, OSError) as error:
            raise self._unreachable(error) from error
        finally:
            if watchdog is not None:
                watchdog.cancel()
            if stream is not None:
                stream.abort()  # to say goodbye takes a while that nobody waits for

    async def _connect(self, kind: type[C]) -> C:
        where = self._config.server
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                return await self._pool.new(kind)
        except ssl.SSLCertVerificationError as error:
            raise Untrusted(f"the certificate of {where} is not trusted: {_cause(error)}") from error
        except TimeoutError as error:
            raise Unreachable(f"{where} did not answer in time", sent=False) from error
        except ProxyRefused as error:
            raise Unreachable(f"no way to {where}: {error}", sent=False) from error
        except OSError as error:
            raise Unreachable(f"cannot connect to {where}: {_cause(error)}", sent=False) from error

    def _keep(self, connection: Connection) -> None:
        if self._open:
            self._pool.keep(connection)
        else:
            connection.abort()

    async def _bytes(self, request: Request, authorization: str | None) -> bytes:
        if not self._open:
            raise RuntimeError("the client is not open: use `async with`")
        query = f"?{request.query}" if request.query else ""
        head = f"{request.method} {self._base}{request.path}{query}{self._head}"
        if authorization:
            head += _line("Authorization", authorization)
        if self._asked_by_url and (password := await self._config.proxy_credentials.header()):
            head += _line("Proxy-Authorization", password)
        if request.body is None:
            return f"{head}\r\n".encode()
        said = f"{head}Content-Type: {request.content_type}\r\nContent-Length: {len(request.body)}\r\n\r\n"
        return said.encode() + request.body

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

    def _unreachable(self, error: OSError | TimeoutError) -> Unreachable:
        where = self._config.server
        if isinstance(error, TimeoutError):
            return Unreachable(f"{where} did not answer in time", sent=True)
        sent = not isinstance(error, NotSent)
        return Unreachable(f"the connection to {where} was lost: {_cause(error)}", sent=sent)


class _Watchdog:
    """Ends a stream that is silent for too long, or has had its time; one timer for many reads."""

    def __init__(self, stream: Stream, within: float) -> None:
        self._loop, self._stream = asyncio.get_running_loop(), stream
        self._until = self._loop.time() + within
        self._look()

    def _look(self) -> None:
        now = self._loop.time()
        due = min(self._stream.heard + SILENT_MOST, self._until)
        if now >= due:
            self._stream.fail(TimeoutError())
        else:
            self._timer = self._loop.call_at(due, self._look)

    def cancel(self) -> None:
        self._timer.cancel()


def _route(url: URL, config: Config) -> Route:
    server = Server(
        url.host or "", url.port or 443, config.tls if url.scheme == "https" else None, config.server_name or ""
    )
    if not config.proxy:
        return Route(server)
    proxy = URL(config.proxy)
    trust = trusting(None, config.origin) if proxy.scheme == "https" else None
    return Route(server, Server(proxy.host or "", proxy.port or 80, trust), config.proxy_credentials)


def _line(name: str, value: str) -> str:
    if "\n" in value or "\r" in value:
        raise ConfigError(f"the {name} that our credentials make has a line break in it")
    return f"{name}: {value}\r\n"


def _cause(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
