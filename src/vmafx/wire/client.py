"""A client for the controller's gRPC service: one channel; every failure is a CallError.

CallError           a call failed; `code` is the gRPC status code, None without one
├── NotTls          the server does not use TLS
└── TokenFileError  the token file is missing or holds no token; the call was not sent
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
MAX_DETAILS = 500  # characters of a status message
NOT_TLS = "WRONG_VERSION_NUMBER"  # OpenSSL's name of the error; gRPC has no status code for it
CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", 4 << 20),
    ("grpc.use_local_subchannel_pool", 1),  # so that a new channel does not inherit the backoff of the old one
    ("grpc.service_config_disable_resolution", 1),
)
UNREACHABLE_CODES = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})
M = TypeVar("M", bound=Message)
TlsFiles = tuple[bytes | None, bytes | None, bytes | None]  # CA, key, certificate


class CallError(Exception):
    """A call failed."""

    def __init__(self, text: str, code: grpc.StatusCode | None = None) -> None:
        super().__init__(text)
        self.code = code

    @property
    def unreachable(self) -> bool:
        """Whether the server did not reply."""
        return self.code in UNREACHABLE_CODES


class NotTls(CallError):
    """The server does not use TLS."""


class TokenFileError(CallError):
    """The token file is missing or holds no token; the call was not sent."""


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The address of a controller, and the credentials to use."""

    address: str
    insecure: bool = False
    ca: Path | None = None  # default: the system's CAs
    cert: Path | None = None
    key: Path | None = None
    token: Path | None = None  # read for every call, since it is rotated


class ControllerClient:
    """A channel to one controller; OSError if the files of the endpoint cannot be used."""

    def __init__(self, endpoint: Endpoint, options: tuple[tuple[str, int], ...] = ()) -> None:
        self._endpoint, self._options = endpoint, (*CHANNEL_OPTIONS, *options)
        self._files = _read_tls_files(endpoint)
        self._channel = self._open()

    async def close(self) -> None:
        await self._channel.close()

    async def reopen(self) -> None:
        """Resolve the address and connect again; calls in progress fail as UNAVAILABLE."""
        old, self._channel = self._channel, self._open()
        await old.close()

    async def call(self, name: str, request: Message, reply_type: type[M], timeout: float) -> M:  # noqa: ASYNC109 - as in grpc
        """Call the method `name` of the service; raise CallError without a reply within `timeout` seconds."""
        # Decoded here, since grpc would log a reply that cannot be decoded, and return None.
        method: grpc.aio.UnaryUnaryMultiCallable[Message, bytes] = self._channel.unary_unary(
            f"/{SERVICE}/{name}", type(request).SerializeToString
        )
        try:
            return reply_type.FromString(await method(request, timeout=timeout, metadata=self._metadata()))
        except grpc.aio.AioRpcError as error:
            raise await self._call_error(error) from error
        except DecodeError as error:
            raise CallError(f"the reply to {name} could not be decoded") from error
        except (asyncio.CancelledError, grpc.aio.UsageError) as error:
            # grpc cancels calls on a closed channel; a cancellation of this task is passed on.
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            raise CallError("the connection was reopened during the call", grpc.StatusCode.UNAVAILABLE) from error

    async def _call_error(self, error: grpc.aio.AioRpcError) -> CallError:
        code, details = error.code(), error.details() or ""
        text = f"{code.name}: {one_line(details or 'no details', MAX_DETAILS)}"
        if code is grpc.StatusCode.UNAVAILABLE:
            await self._reload_tls_files()
            if NOT_TLS in details:
                return NotTls(text, code)
        return CallError(text, code)

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        if self._endpoint.token is None:
            return ()
        try:
            return (("authorization", f"Bearer {read_token(self._endpoint.token)}"),)
        except ValueError as error:
            raise TokenFileError(f"the token file {error}") from error

    async def _reload_tls_files(self) -> None:
        """Reconnect with the current files if they changed: certificates are rotated while the process runs."""
        try:
            files = _read_tls_files(self._endpoint)
        except OSError as error:
            log.warn("could not reload the TLS files; the previous ones stay in use", error=str(error))
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
    """Read the token in a file; ValueError if there is none."""
    try:
        token = file.read_text().strip()
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} holds no token") from error
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError(f"{file} holds no token")
    return token


def _read_tls_files(endpoint: Endpoint) -> TlsFiles:
    """OSError if the files are invalid or do not match, as in the middle of a rotation."""
    if endpoint.insecure:
        return None, None, None
    context = ssl.create_default_context()
    if endpoint.ca:
        context.load_verify_locations(endpoint.ca)
    if endpoint.cert:
        context.load_cert_chain(endpoint.cert, endpoint.key)
    system_ca = ssl.get_default_verify_paths().cafile
    ca_file = endpoint.ca or (Path(system_ca) if system_ca else None)
    ca, key, certificate = (path.read_bytes() if path else None for path in (ca_file, endpoint.key, endpoint.cert))
    return ca, key, certificate
