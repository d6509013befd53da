"""Requests to one API server over a connection pool.

A failed call is retried only where that cannot carry it out twice.
"""

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
    error_from_response,
)
from vmafx.kube.http1 import C, CallConnection, ConnectionPool, ResponseStream
from vmafx.kube.metrics import ClientMetrics
from vmafx.kube.tls import trust_context

JSON = "application/json"
MAX_CONNECTIONS = 40  # for calls; each stream has its own
CONNECT_TIMEOUT = 10.0  # seconds
RESPONSE_TIMEOUT = 60.0
MAX_SILENCE = 150.0  # seconds without data on a stream; the server sends a bookmark about every minute
MAX_TRIES = 6
FIRST_RETRY_DELAY, MAX_RETRY_DELAY = 0.1, 2.0
MAX_RETRY_AFTER = 30.0  # seconds; a longer Retry-After is shortened to this
_NO_RESPONSE = "<error>"  # client-go's label
# No Accept-Encoding: compression costs both sides more CPU than it saves.
_COMMON_HEADERS = "User-Agent: vmafx\r\n"


def retry_delay(
    error: KubeError, tries: int, *, idempotent: bool, jitter: Callable[[], float] = random.random
) -> float | None:
    """Seconds to wait before the request is sent again, or None if it must not be.

    After 429, or 503 with Retry-After, the server has done nothing, and any request is retried. After a connection
    failure, a request that was not sent is retried; one that may have been received, only if it is idempotent.
    """
    if tries >= MAX_TRIES:
        return None
    backoff = Backoff(FIRST_RETRY_DELAY, MAX_RETRY_DELAY, jitter=jitter)
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


class ApiRequest(msgspec.Struct, frozen=True):
    """A request; `query` is URL-encoded. `idempotent`: sending it twice has the same effect as sending it once."""

    method: str
    path: str
    query: str = ""
    body: bytes | None = None
    content_type: str = JSON
    idempotent: bool = False
    timeout: float = RESPONSE_TIMEOUT
    accept: str = JSON


class Transport:
    """Sends requests to one API server. Use as an async context manager."""

    def __init__(self, config: Config, metrics: ClientMetrics | None = None) -> None:
        self._config = config
        self._metrics = metrics
        url = URL(config.server)
        target = _dial_target(url, config)
        self._pool = ConnectionPool(target)
        self._call_limit = asyncio.Semaphore(MAX_CONNECTIONS)
        self._open = False
        self._host = url.host_port_subcomponent or ""
        self._base_path = url.raw_path.rstrip("/")
        self._forwarded = target.proxy is not None and not target.tunnelled
        if self._forwarded:  # the proxy needs the absolute URL
            self._base_path = f"http://{self._host}{self._base_path}"
        self._header_start = f" HTTP/1.1\r\nHost: {self._host}\r\n{_COMMON_HEADERS}"

    async def __aenter__(self) -> Self:
        self._open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._open = False
        self._pool.close()

    async def call(self, request: ApiRequest) -> bytes:
        """Send a request and return the body of the response; retry where that is safe."""
        header = await self._config.credentials.header()
        tries = 0
        while True:
            tries += 1
            try:
                async with self._call_limit:
                    return await self._exchange(request, header)
            except Unauthorized as error:
                # The credentials may have been rotated: retry if they are different now.
                rejected, header = header, await self._config.credentials.header(header)
                if header == rejected:
                    raise
                delay = 0.0 if tries < MAX_TRIES else None
                failure: KubeError = error
            except KubeError as error:
                delay = retry_delay(error, tries, idempotent=request.idempotent)
                failure = error
            if delay is None:
                failure.tries = tries
                raise failure
            await asyncio.sleep(delay)

    async def _exchange(self, request: ApiRequest, authorization: str | None) -> bytes:
        content, started, code = await self._encode(request, authorization), time.perf_counter(), _NO_RESPONSE
        try:
            async with asyncio.timeout(request.timeout):
                connection = self._pool.take_idle() or await self._connect(CallConnection)
                response = await connection.exchange(content)
            code = str(response.status)
        except (TimeoutError, OSError) as error:
            raise self._unreachable(error) from error
        finally:
            self._observe(request, code, started)
        if self._open:
            self._pool.put_idle(connection)
        else:
            connection.abort()
        if response.status >= HTTPStatus.MULTIPLE_CHOICES:
            raise self._api_error(response.status, response.retry_after, response.body)
        return response.body

    @asynccontextmanager
    async def stream(self, request: ApiRequest) -> AsyncIterator[ResponseStream]:
        """Send a request and read the body of the response as it arrives; for watches, which retry themselves.

        The request's timeout limits the whole stream. A stream without data for MAX_SILENCE ends too: behind a load
        balancer, a dead server looks like an idle one.
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
        content, started, code = await self._encode(request, authorization), time.perf_counter(), _NO_RESPONSE
        stream: ResponseStream | None = None
        watchdog: _Watchdog | None = None
        try:
            try:
                stream = await self._connect(ResponseStream)
                async with asyncio.timeout(RESPONSE_TIMEOUT):
                    await stream.start(content)
                code = str(stream.status)
            finally:
                self._observe(request, code, started)
            if stream.status >= HTTPStatus.MULTIPLE_CHOICES:
                async with asyncio.timeout(RESPONSE_TIMEOUT):
                    body = await stream.read_all()
                raise self._api_error(stream.status, stream.retry_after, body)
            watchdog = _Watchdog(stream, request.timeout)
            yield stream
        except (TimeoutError, OSError) as error:
            raise self._unreachable(error) from error
        finally:
            if watchdog is not None:
                watchdog.cancel()
            if stream is not None:
                stream.abort()  # a TLS shutdown would take a round trip

    async def _connect(self, connection_type: type[C]) -> C:
        server = self._config.server
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                return await self._pool.open(connection_type)
        except ssl.SSLCertVerificationError as error:
            raise Untrusted(f"the certificate of {server} is not trusted: {_cause(error)}") from error
        except TimeoutError as error:
            raise Unreachable(
                f"{server} did not accept a connection within {CONNECT_TIMEOUT:.0f} s", sent=False
            ) from error
        except ProxyRefused as error:
            raise Unreachable(f"cannot connect to {server} through the proxy: {error}", sent=False) from error
        except OSError as error:
            raise Unreachable(f"cannot connect to {server}: {_cause(error)}", sent=False) from error

    async def _encode(self, request: ApiRequest, authorization: str | None) -> bytes:
        if not self._open:
            raise RuntimeError("the client is not open: use `async with`")
        query = f"?{request.query}" if request.query else ""
        head = f"{request.method} {self._base_path}{request.path}{query}{self._header_start}"
        head += f"Accept: {request.accept}\r\n"
        if authorization:
            head += _header("Authorization", authorization)
        if self._forwarded and (proxy_authorization := await self._config.proxy_credentials.header()):
            head += _header("Proxy-Authorization", proxy_authorization)
        if request.body is None:
            return f"{head}\r\n".encode()
        head += f"Content-Type: {request.content_type}\r\nContent-Length: {len(request.body)}\r\n\r\n"
        return head.encode() + request.body

    def _observe(self, request: ApiRequest, code: str, started: float) -> None:
        if self._metrics is not None:
            self._metrics.observe(request.method, self._host, code, time.perf_counter() - started)

    def _api_error(self, status: int, retry_after: str, body: bytes) -> ApiError:
        error = error_from_response(status, body, float(retry_after) if retry_after.isdecimal() else None)
        if isinstance(error, Unauthorized):
            config = self._config
            source = f" from {config.origin}" if config.origin else ""
            message = f"{config.server} rejected the credentials{source}: {config.credentials.rejection_reason()}"
            error = Unauthorized(msgspec.structs.replace(error.status, message=message))
        return error

    def _unreachable(self, error: OSError | TimeoutError) -> Unreachable:
        server = self._config.server
        if isinstance(error, TimeoutError):
            return Unreachable(f"{server} did not respond in time", sent=True)
        sent = not isinstance(error, RequestNotSent)
        return Unreachable(f"the connection to {server} was lost: {_cause(error)}", sent=sent)


class _Watchdog:
    """Fails a stream that is silent for MAX_SILENCE or exceeds its timeout; cheaper than a timer per read."""

    def __init__(self, stream: ResponseStream, timeout: float) -> None:
        self._loop, self._stream = asyncio.get_running_loop(), stream
        self._deadline = self._loop.time() + timeout
        self._check()

    def _check(self) -> None:
        due = min(self._stream.last_data_at + MAX_SILENCE, self._deadline)
        if self._loop.time() >= due:
            self._stream.fail(TimeoutError())
        else:
            self._timer = self._loop.call_at(due, self._check)

    def cancel(self) -> None:
        self._timer.cancel()


def _dial_target(url: URL, config: Config) -> DialTarget:
    server = ServerAddress(
        url.host or "", url.port or 443, config.tls if url.scheme == "https" else None, config.server_name or ""
    )
    if not config.proxy:
        return DialTarget(server)
    proxy = URL(config.proxy)
    trust = trust_context(None, config.origin) if proxy.scheme == "https" else None
    return DialTarget(server, ServerAddress(proxy.host or "", proxy.port or 80, trust), config.proxy_credentials)


def _header(name: str, value: str) -> str:
    if "\n" in value or "\r" in value:
        raise ConfigError(f"the {name} header would contain a line break; check the credentials in the kubeconfig")
    return f"{name}: {value}\r\n"


def _cause(error: BaseException) -> str:
    """The error without its errno or OpenSSL details."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
