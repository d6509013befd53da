"""The calls to the controller, with its answers read and its errors told in our terms.

LinkError          a call came to nothing; what it was about is kept, and tried again
    Unreachable    nobody answered, or not in a way that can be used
    NoToken        the token file is not there, or holds none; nobody was asked
    NotKnown       our session or our token does not count (any more)
    Refused        not like this: another vendor than its VmafxNode has, or no right to it
    Wrong          what we say of ourselves makes no sense, and never will
"""

from collections.abc import Iterable
from typing import TypeVar

import grpc
import msgspec
from google.protobuf.message import Message

from vmafx.wire import client
from vmafx.wire import controller_pb2 as wire
from vmafx.wire.client import CallError, ControllerClient, Endpoint, NotTls

SOON, PULL_WAITS, PULL_SLACK = 10.0, 30, 15.0  # seconds
OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 10_000),
    # A heartbeat is answered every 10 s: only where that fails is the connection asked whether it lives.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)
M = TypeVar("M", bound=Message)


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


KINDS: dict[grpc.StatusCode | None, type[LinkError]] = {
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


class Link:
    """A channel to the controller. OSError on making one whose files cannot be used."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._client = ControllerClient(endpoint, OPTIONS)

    async def close(self) -> None:
        await self._client.close()

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
        try:
            return await self._client.call(name, request, kind, within)
        except NotTls as error:
            raise Unreachable(
                "the controller does not speak TLS here: use --insecure, or give it --tls-cert and --tls-key"
            ) from error
        except client.NoToken as error:
            raise NoToken(str(error)) from error
        except CallError as error:
            raise KINDS.get(error.code, Unreachable)(str(error)) from error
