"""When a failed call is tried again: only where that cannot do a thing twice."""

import asyncio
import random
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from typing import Self

import msgspec
from yarl import URL

from vmafx.backoff import Backoff
from vmafx.kube.config import Config
from vmafx.kube.connect import DialTarget, ProxyRefused, RequestNotSent, ServerAddress
from vmafx.kube.errors import (
    ApiError,
    ConfigError,
    KubeError,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
    Untrusted,
    error_from_answer,
)
from vmafx.kube.http1 import C, CallConnection, ConnectionPool, ResponseStream
from vmafx.kube.metrics import ClientMetrics
from vmafx.kube.tls import trust_context

MAX_TRIES = 6
FIRST_RETRY_WAIT, MAX_RETRY_WAIT = 0.1, 2.0
MAX_RETRY_AFTER = 30.0  # seconds that the server may ask us to wait


def wait_before_retry(
    error: KubeError, tries: int, *, idempotent: bool, jitter: Callable[[], float] = random.random
) -> float | None:
    """Seconds to wait before the next try, or None to give up.

    The server turned the request away (429, or 503 with Retry-After): it did nothing, and says when to come back.
    The connection failed: a request that was never sent may be sent again; one that was, only if it is idempotent.
    """
    if tries >= MAX_TRIES:
        return None
    backoff = Backoff(FIRST_RETRY_WAIT, MAX_RETRY_WAIT, jitter=jitter)
    match error:
        case Untrusted():
            return None
        case TooManyRequests() | ServerError() if error.retry_after is not None and error.status.code in (429, 503):
            return min(error.retry_after, MAX_RETRY_AFTER) + jitter() * 0.1
        case TooManyRequests():
            return backoff.delay(tries)
        case Unreachable() if idempotent or not error.sent:
            return backoff.delay(tries)
    return None


CONNECTIONS = 40
CONNECT_TIMEOUT = 10.0
ANSWER_TIMEOUT = 60.0
MAX_SILENCE = 150.0  # seconds of a stream; the server sends a bookmark every minute or so
_NO_ANSWER = "<error>"
# Without Accept-Encoding the server does not compress, which costs both sides more than it saves.
_ALWAYS = "Accept: application/json\r\nUser-Agent: vmafx\r\n"


class ApiRequest(msgspec.Struct, frozen=True):
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
        self._pool = ConnectionPool(route)
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

    async def call(self, request: ApiRequest) -> bytes:
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
                wait = 0.0 if tries < MAX_TRIES else None
                failed: KubeError = error
            except KubeError as error:
                wait = wait_before_retry(error, tries, idempotent=request.idempotent)
                failed = error
            if wait is None:
                failed.tries = tries
                raise failed
            await asyncio.sleep(wait)

    async def _exchange(self, request: ApiRequest, authorization: str | None) -> bytes:
        content, started, code = await self._bytes(request, authorization), time.perf_counter(), _NO_ANSWER
        try:
            async with asyncio.timeout(request.timeout):
                connection = self._pool.idle() or await self._connect(CallConnection)
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
    async def stream(self, request: ApiRequest) -> AsyncIterator[ResponseStream]:
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
    async def _stream(self, request: ApiRequest, authorization: str | None) -> AsyncIterator[ResponseStream]:
        content, started, code = await self._bytes(request, authorization), time.perf_counter(), _NO_ANSWER
        stream: ResponseStream | None = None
        watchdog: _Watchdog | None = None
        try:
            try:
                stream = await self._connect(ResponseStream)
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

    def _keep(self, connection: CallConnection) -> None:
        if self._open:
            self._pool.keep(connection)
        else:
            connection.abort()

    async def _bytes(self, request: ApiRequest, authorization: str | None) -> bytes:
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

    def _count(self, request: ApiRequest, code: str, started: float) -> None:
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
        sent = not isinstance(error, RequestNotSent)
        return Unreachable(f"the connection to {where} was lost: {_cause(error)}", sent=sent)


class _Watchdog:
    """Ends a stream that is silent for too long, or has had its time; one timer for many reads."""

    def __init__(self, stream: ResponseStream, within: float) -> None:
        self._loop, self._stream = asyncio.get_running_loop(), stream
        self._until = self._loop.time() + within
        self._look()

    def _look(self) -> None:
        now = self._loop.time()
        due = min(self._stream.heard + MAX_SILENCE, self._until)
        if now >= due:
            self._stream.fail(TimeoutError())
        else:
            self._timer = self._loop.call_at(due, self._look)

    def cancel(self) -> None:
        self._timer.cancel()


def _route(url: URL, config: Config) -> DialTarget:
    server = ServerAddress(
        url.host or "", url.port or 443, config.tls if url.scheme == "https" else None, config.server_name or ""
    )
    if not config.proxy:
        return DialTarget(server)
    proxy = URL(config.proxy)
    trust = trust_context(None, config.origin) if proxy.scheme == "https" else None
    return DialTarget(server, ServerAddress(proxy.host or "", proxy.port or 80, trust), config.proxy_credentials)


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
