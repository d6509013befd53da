"""Calls to a controller: one channel, answers decoded here, every failure a CallError.

CallError      a call came to nothing; `code` is its gRPC status, None where there is none
    NotTls     the other side does not speak TLS
    NoToken    the token file is not there, or holds none; nobody was asked
"""

import asyncio
import ssl
from pathlib import Path
from typing import TypeVar

import grpc
import msgspec
from google.protobuf.message import DecodeError, Message

from vmafx.logs import log
from vmafx.text import one_line
from vmafx.wire import controller_pb2 as wire

SERVICE = wire.DESCRIPTOR.services_by_name["VmafxController"].full_name
MAX_TEXT = 500  # characters of what the other side says
NOT_TLS = "WRONG_VERSION_NUMBER"  # OpenSSL's name for it; gRPC has no code of its own
CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", 4 << 20),
    ("grpc.use_local_subchannel_pool", 1),  # or a new channel would wait as long as the old one was going to
    ("grpc.service_config_disable_resolution", 1),
)
UNREACHABLE_CODES = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})
M = TypeVar("M", bound=Message)
Files = tuple[bytes | None, bytes | None, bytes | None]


class CallError(Exception):
    """A call came to nothing."""

    def __init__(self, text: str, code: grpc.StatusCode | None = None) -> None:
        super().__init__(text)
        self.code = code

    @property
    def silent(self) -> bool:
        """Whether nobody answered."""
        return self.code in UNREACHABLE_CODES


class NotTls(CallError):
    """The other side does not speak TLS."""


class TokenFileError(CallError):
    """The token file is not there, or holds none; nobody was asked."""


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where a controller is, and how we show who we are."""

    address: str
    insecure: bool = False
    ca: Path | None = None  # if not said, the system's
    cert: Path | None = None
    key: Path | None = None
    token: Path | None = None  # read anew for every call: it is replaced while we run


class ControllerClient:
    """A channel to one controller. OSError on making one whose files cannot be used."""

    def __init__(self, endpoint: Endpoint, options: tuple[tuple[str, int], ...] = ()) -> None:
        self._endpoint, self._options = endpoint, (*CHANNEL_OPTIONS, *options)
        self._files = _contents(endpoint)
        self._channel = self._open()

    async def close(self) -> None:
        await self._channel.close()

    async def reopen(self) -> None:
        """Look up its name and connect anew; not while something is being asked."""
        await self.close()
        self._channel = self._open()

    async def call(self, name: str, request: Message, answer: type[M], within: float) -> M:
        """`name` of the service, answered within so many seconds."""
        # Answers are decoded here, not by the library: it would log one that cannot be, and hand out None.
        method: grpc.aio.UnaryUnaryMultiCallable[Message, bytes] = self._channel.unary_unary(
            f"/{SERVICE}/{name}", type(request).SerializeToString
        )
        try:
            return answer.FromString(await method(request, timeout=within, metadata=self._identity()))
        except grpc.aio.AioRpcError as error:
            raise await self._failed(error) from error
        except DecodeError as error:
            raise CallError(f"its answer to {name} cannot be read") from error
        except (asyncio.CancelledError, grpc.aio.UsageError) as error:
            ours = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and ours is not None and ours.cancelling():
                raise
            raise CallError("the connection was renewed meanwhile", grpc.StatusCode.UNAVAILABLE) from error

    async def _failed(self, error: grpc.aio.AioRpcError) -> CallError:
        code, details = error.code(), error.details() or ""
        text = f"{code.name}: {one_line(details or 'no more is said', MAX_TEXT)}"
        if code is grpc.StatusCode.UNAVAILABLE:
            await self._renew()
            if NOT_TLS in details:
                return NotTls(text, code)
        return CallError(text, code)

    def _identity(self) -> tuple[tuple[str, str], ...]:
        if self._endpoint.token is None:
            return ()
        try:
            return (("authorization", f"Bearer {read_token(self._endpoint.token)}"),)
        except ValueError as error:
            raise TokenFileError(f"the token file {error}") from error

    async def _renew(self) -> None:
        """Certificates are replaced while we run, too: a connection that failed is made with those of now."""
        try:
            files = _contents(self._endpoint)
        except OSError as error:
            log.warn("a certificate cannot be used", error=str(error))
            return
        if files != self._files:
            old, self._files = self._channel, files
            self._channel = self._open()
            await old.close()

    def _open(self) -> grpc.aio.Channel:
        if self._endpoint.insecure:
            return grpc.aio.insecure_channel(self._endpoint.address, self._options)
        credentials = grpc.ssl_channel_credentials(*self._files)
        return grpc.aio.secure_channel(self._endpoint.address, credentials, self._options)


def read_token(file: Path) -> str:
    """The token in a file; ValueError with what is wrong."""
    try:
        token = file.read_text().strip()
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} holds no token") from error
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError(f"{file} holds no token")
    return token


def _contents(endpoint: Endpoint) -> Files:
    """CA, key and certificate; OSError if they are no such things, as half of a new pair is none."""
    if endpoint.insecure:
        return None, None, None
    tried = ssl.create_default_context()
    if endpoint.ca:
        tried.load_verify_locations(endpoint.ca)
    if endpoint.cert:
        tried.load_cert_chain(endpoint.cert, endpoint.key)
    system = ssl.get_default_verify_paths().cafile
    ca = endpoint.ca or (Path(system) if system else None)
    first, second, third = (path.read_bytes() if path else None for path in (ca, endpoint.key, endpoint.cert))
    return first, second, third
