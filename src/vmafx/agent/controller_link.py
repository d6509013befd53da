"""The agent's calls to the controller: requests, responses and errors.

ControllerError
├── ControllerUnreachable  no response, or one that cannot be used
├── TokenUnavailable       the token file cannot be read; no call was made
├── SessionRejected        the session or the token is not valid (any more)
├── ControllerRefused      refused until somebody changes a setting or a permission
├── NotSupported           an old controller, without this call
└── InvalidRequest         the request is invalid; a retry would fail too
"""

from collections.abc import Iterable
from typing import TypeVar

import grpc
import msgspec
from google.protobuf.message import Message

from vmafx.agent.spool import SpooledResult
from vmafx.backoff import Backoff
from vmafx.jobs.attempt import AttemptSpec
from vmafx.jobs.worker_process import WorkerTask
from vmafx.logs import log
from vmafx.scoring.result import Progress
from vmafx.text import one_line
from vmafx.wire import client
from vmafx.wire import controller_pb2 as wire
from vmafx.wire.client import CallError, ControllerClient, Endpoint, NotTls

BACKOFF = Backoff(0.5, 26.0, spread=0.25)  # reconnects within 30 s of the controller's return
CALL_TIMEOUT, PULL_WAIT, PULL_SLACK = 10.0, 30, 15.0  # seconds
RECONNECT_AFTER = 2  # failed heartbeats in a row; the node is taken for lost after about six
CHANNEL_OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 10_000),
    # Heartbeats use the connection every 10 s: a keepalive ping is sent only when they stop.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)
M = TypeVar("M", bound=Message)


class ControllerError(Exception):
    """A call failed."""


class ControllerUnreachable(ControllerError):
    """No response, or one that cannot be used."""


class TokenUnavailable(ControllerError):
    """The token file cannot be read or is empty; no call was made."""


class SessionRejected(ControllerError):
    """The session or the token is not valid (any more)."""


class ControllerRefused(ControllerError):
    """Refused until somebody changes a setting or a permission."""


class NotSupported(ControllerError):
    """An old controller, without this call."""


class InvalidRequest(ControllerError):
    """The request is invalid; a retry would fail too."""


ERROR_TYPES: dict[grpc.StatusCode | None, type[ControllerError]] = {
    grpc.StatusCode.UNAUTHENTICATED: SessionRejected,
    grpc.StatusCode.FAILED_PRECONDITION: ControllerRefused,
    grpc.StatusCode.PERMISSION_DENIED: ControllerRefused,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequest,
    grpc.StatusCode.UNIMPLEMENTED: NotSupported,
}


class AgentSession(msgspec.Struct, frozen=True):
    """The session of this agent, as the controller returned it."""

    node: str
    token: str
    capacity: int = 0  # of the VmafxNode; 0 from an old controller


class ControllerLink:
    """A channel to the controller. The constructor raises OSError if a certificate or key cannot be used."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._client = ControllerClient(endpoint, CHANNEL_OPTIONS)
        self._failed_heartbeats = 0  # in a row

    async def close(self) -> None:
        await self._client.close()

    async def register(self, request: wire.RegisterNodeRequest) -> AgentSession:
        response = await self._call("RegisterNode", request, wire.RegisterNodeResponse, CALL_TIMEOUT)
        if response.message:
            log.warn("registration changed by the controller", message=one_line(response.message))
        return AgentSession(response.node_id, response.session_token, response.capacity)

    async def heartbeat(
        self, session: AgentSession, jobs: Iterable[wire.RunningJob], working: int, *, draining: bool
    ) -> wire.HeartbeatResponse:
        """After RECONNECT_AFTER failures, connect again: the address may have replicas that can take the next one."""
        request = wire.HeartbeatRequest(
            node_id=session.node,
            session_token=session.token,
            jobs_running=working,
            running_job_ids=wire.RunningJobs(jobs=jobs),
            draining=draining,
        )
        try:
            response = await self._call("Heartbeat", request, wire.HeartbeatResponse, CALL_TIMEOUT)
        except ControllerUnreachable:
            self._failed_heartbeats += 1
            if self._failed_heartbeats % RECONNECT_AFTER == 0:
                await self._client.reopen()
            raise
        self._failed_heartbeats = 0
        return response

    async def pull(
        self, session: AgentSession, capability: wire.NodeCapability, jobs: Iterable[wire.RunningJob]
    ) -> wire.PullWorkResponse:
        """Long poll: the controller waits up to PULL_WAIT seconds for a job."""
        request = wire.PullWorkRequest(
            node_id=session.node,
            session_token=session.token,
            capability=capability,
            running_job_ids=wire.RunningJobs(jobs=jobs),
            wait_seconds=PULL_WAIT,
        )
        return await self._call("PullWork", request, wire.PullWorkResponse, PULL_WAIT + PULL_SLACK)

    async def report(self, session: AgentSession, request: wire.ReportResultRequest) -> bool:
        """Report progress or a result; False if the attempt has ended."""
        request.node_id, request.session_token = session.node, session.token
        return (await self._call("ReportResult", request, wire.ReportResultResponse, CALL_TIMEOUT)).ok

    async def push_samples(self, session: AgentSession, token: str, samples: bytes) -> wire.PushSamplesResponse:
        """Push the samples of the attempt that `token` is for."""
        request = wire.PushSamplesRequest(
            node_id=session.node, session_token=session.token, samples_token=token, samples=samples
        )
        return await self._call("PushSamples", request, wire.PushSamplesResponse, CALL_TIMEOUT)

    async def _call(self, name: str, request: Message, kind: type[M], within: float) -> M:
        try:
            return await self._client.call(name, request, kind, within)
        except NotTls as error:
            raise ControllerUnreachable(
                "the controller does not use TLS: start the agent with --insecure, "
                "or the controller with --tls-cert and --tls-key"
            ) from error
        except client.TokenFileError as error:
            raise TokenUnavailable(str(error)) from error
        except CallError as error:
            raise ERROR_TYPES.get(error.code, ControllerUnreachable)(str(error)) from error


def worker_task(job: wire.Job, backend: str, threads: int, *, samples: bool = False) -> WorkerTask:
    """The task of a worker. An old controller sends clips, a model and a backend, and no AttemptSpec."""
    scoring, work = job.scoring, job.work
    if not work:
        spec = AttemptSpec(scoring.reference, scoring.distorted, id=job.id)
        if scoring.model:
            spec = msgspec.structs.replace(spec, model=scoring.model)
        if scoring.backend:
            spec = msgspec.structs.replace(spec, backend=scoring.backend)
        work = msgspec.json.encode(spec).decode()
    return WorkerTask(job.id, work, backend, threads, samples)


def result_message(done: SpooledResult) -> wire.ReportResultRequest:
    """The result as JSON, and in the fields that an old controller reads."""
    result = done.answer
    return wire.ReportResultRequest(
        job_id=done.id,
        final=True,
        score=result.score or 0.0,
        features={name: summary.mean for name, summary in result.metrics.items() if summary.mean is not None},
        error=f"{result.fault}: {result.message}" if result.fault else "",
        answer=msgspec.json.encode(result).decode(),
        name=done.name,
    )


def progress_message(attempt: str, name: str, progress: Progress | None) -> wire.ReportResultRequest:
    """Progress of an attempt; empty until its first frame is scored."""
    frames = wire.Progress()
    if progress is not None and progress.stage == "scoring":
        frames = wire.Progress(frames=progress.done, total_frames=progress.total or 0, fps=progress.fps)
    return wire.ReportResultRequest(job_id=attempt, name=name, progress=frames)


class OutageLog:
    """Logs the first failure of an outage and its end; further failures of the same kind at level debug."""

    def __init__(self, failure: str, recovery: str) -> None:
        self._failure, self._recovery = failure, recovery
        self._kind: type[ControllerError] | None = None

    def failed(self, error: ControllerError, **fields: str) -> None:
        write = log.debug if type(error) is self._kind else log.warn
        self._kind = type(error)
        write(self._failure, error=str(error), **fields)

    def recovered(self) -> None:
        if self._kind is not None:
            log.info(self._recovery)
            self._kind = None
