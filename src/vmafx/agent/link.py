"""The calls to the controller, with its answers read and its errors told in our terms.

LinkError          a call came to nothing; what it was about is kept, and tried again
    Unreachable    nobody answered, or not in a way that can be used
    NoToken        the token file is not there, or holds none; nobody was asked
    NotKnown       our session or our token does not count (any more)
    Refused        not like this: another vendor than its VmafxNode has, or no right to it
    Wrong          what we say of ourselves makes no sense, and never will
"""

import asyncio
import ssl
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import grpc
import msgspec
from google.protobuf.message import DecodeError, Message

from vmafx.agent.token import read_token
from vmafx.logs import log
from vmafx.plain import plain
from vmafx.wire import controller_pb2 as wire

SERVICE = wire.DESCRIPTOR.services_by_name["VmafxController"].full_name
SOON, PULL_WAITS, PULL_SLACK = 10.0, 30, 15.0  # seconds
TEXT_MOST = 500
NOT_TLS = "WRONG_VERSION_NUMBER"  # OpenSSL's name for it; gRPC has no code of its own
OPTIONS = (
    ("grpc.max_receive_message_length", 4 << 20),
    ("grpc.use_local_subchannel_pool", 1),  # or a new channel would wait as long as the old one was going to
    ("grpc.service_config_disable_resolution", 1),
    ("grpc.initial_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 10_000),
    # A heartbeat is answered every 10 s: only where that fails is the connection asked whether it lives.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)
M = TypeVar("M", bound=Message)
Call = grpc.aio.UnaryUnaryMultiCallable[Message, bytes]


class LinkError(Exception):
    """A call came to nothing."""


class Unreachable(LinkError):
    """Nobody answered, or not in a way that can be used."""


class NoToken(LinkError):
    """The token file is not there, or holds none; nobody was asked."""


class NotKnown(LinkError):
    """Our session or our token does not count (any more)."""


class Refused(LinkError):
    """Not like this; somebody has to change something."""


class Wrong(LinkError):
    """What we say of ourselves makes no sense, and never will."""


KINDS: dict[grpc.StatusCode, type[LinkError]] = {
    grpc.StatusCode.UNAUTHENTICATED: NotKnown,
    grpc.StatusCode.FAILED_PRECONDITION: Refused,
    grpc.StatusCode.PERMISSION_DENIED: Refused,
    grpc.StatusCode.INVALID_ARGUMENT: Wrong,
}


class Session(msgspec.Struct, frozen=True):
    """Ours, until the controller says otherwise."""

    node: str
    token: str
    capacity: int = 0  # of the VmafxNode; 0 if the controller does not say


class Door(msgspec.Struct, frozen=True, kw_only=True):
    """Where the controller is, and how we show who we are."""

    address: str
    insecure: bool = False
    ca: Path | None = None  # if not said, the system's
    cert: Path | None = None
    key: Path | None = None
    token: Path | None = None  # read anew for every call: it is replaced while we run


class Link:
    """A channel to the controller. OSError on making one whose files cannot be used."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._files = _contents(door)
        self._channel = _channel(door, self._files)

    async def close(self) -> None:
        await self._channel.close()

    async def register(self, request: wire.RegisterNodeRequest) -> Session:
        said = await self._call("RegisterNode", request, wire.RegisterNodeResponse, SOON)
        return Session(said.node_id, said.session_token, said.capacity)

    async def heartbeat(
        self, session: Session, jobs: Iterable[wire.RunningJob], working: int, *, draining: bool
    ) -> wire.HeartbeatResponse:
        request = wire.HeartbeatRequest(
            node_id=session.node,
            session_token=session.token,
            jobs_running=working,
            running_job_ids=wire.RunningJobs(jobs=jobs),
            draining=draining,
        )
        return await self._call("Heartbeat", request, wire.HeartbeatResponse, SOON)

    async def pull(
        self, session: Session, capability: wire.NodeCapability, jobs: Iterable[wire.RunningJob]
    ) -> wire.PullWorkResponse:
        """Waits for work for a while."""
        request = wire.PullWorkRequest(
            node_id=session.node,
            session_token=session.token,
            capability=capability,
            running_job_ids=wire.RunningJobs(jobs=jobs),
            wait_seconds=PULL_WAITS,
        )
        return await self._call("PullWork", request, wire.PullWorkResponse, PULL_WAITS + PULL_SLACK)

    async def report(self, session: Session, request: wire.ReportResultRequest) -> bool:
        """Whether it counts; if not, the attempt is over."""
        request.node_id, request.session_token = session.node, session.token
        return (await self._call("ReportResult", request, wire.ReportResultResponse, SOON)).ok

    async def _call(self, name: str, request: Message, kind: type[M], within: float) -> M:
        # Answers are decoded here, not by the library: it would log one that cannot be, and hand out None.
        call: Call = self._channel.unary_unary(f"/{SERVICE}/{name}", type(request).SerializeToString)
        try:
            return kind.FromString(await call(request, timeout=within, metadata=self._identity()))
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                await self._renew()
                if NOT_TLS in (error.details() or ""):
                    raise Unreachable(
                        "the controller does not speak TLS here: use --insecure, or give it --tls-cert and --tls-key"
                    ) from error
            raise KINDS.get(error.code(), Unreachable)(_words(error)) from error
        except DecodeError as error:
            raise Unreachable(f"its answer to {name} cannot be read") from error
        except (asyncio.CancelledError, grpc.aio.UsageError) as error:
            ours = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and ours is not None and ours.cancelling():
                raise
            raise Unreachable("the connection was renewed meanwhile") from error

    def _identity(self) -> tuple[tuple[str, str], ...]:
        if self._door.token is None:
            return ()
        try:
            return (("authorization", f"Bearer {read_token(self._door.token)}"),)
        except ValueError as error:
            raise NoToken(f"the token file {error}") from error

    async def _renew(self) -> None:
        """Certificates are replaced while we run, too: a connection that failed is made with those of now."""
        try:
            files = _contents(self._door)
        except OSError as error:
            log.warn("a certificate cannot be used", error=str(error))
            return
        if files != self._files:
            old, self._files, self._channel = self._channel, files, _channel(self._door, files)
            await old.close()


def _contents(door: Door) -> tuple[bytes | None, bytes | None, bytes | None]:
    """CA, key and certificate; OSError if they are no such things, as half of a new pair is none."""
    if door.insecure:
        return None, None, None
    tried = ssl.create_default_context()
    if door.ca:
        tried.load_verify_locations(door.ca)
    if door.cert:
        tried.load_cert_chain(door.cert, door.key)
    system = ssl.get_default_verify_paths().cafile
    ca = door.ca or (Path(system) if system else None)
    first, second, third = (path.read_bytes() if path else None for path in (ca, door.key, door.cert))
    return first, second, third


def _channel(door: Door, files: tuple[bytes | None, bytes | None, bytes | None]) -> grpc.aio.Channel:
    if door.insecure:
        return grpc.aio.insecure_channel(door.address, OPTIONS)
    return grpc.aio.secure_channel(door.address, grpc.ssl_channel_credentials(*files), OPTIONS)


def _words(error: grpc.aio.AioRpcError) -> str:
    return f"{error.code().name}: {plain(error.details() or 'no more is said', TEXT_MOST)}"
