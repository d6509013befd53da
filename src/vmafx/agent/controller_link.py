"""The agent's calls to the controller: requests built, replies decoded, errors translated."""

from collections.abc import Iterable
from typing import TypeVar

import grpc
import msgspec
from google.protobuf.message import Message

from vmafx.agent.spool import SpooledResult
from vmafx.jobs.attempt import AttemptSpec
from vmafx.jobs.worker_process import WorkerTask
from vmafx.scoring.result import Progress
from vmafx.wire import client
from vmafx.wire import controller_pb2 as wire
from vmafx.wire.client import CallError, ControllerClient, Endpoint, NotTls

CALL_TIMEOUT, PULL_WAIT, PULL_SLACK = 10.0, 30, 15.0  # seconds
CHANNEL_OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 10_000),
    # A heartbeat is answered every 10 s: only where that fails is the connection asked whether it lives.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)
M = TypeVar("M", bound=Message)


class ControllerError(Exception):
    """A call came to nothing."""


class ControllerUnreachable(ControllerError):
    """Nobody answered, or not in a way that can be used."""


class TokenUnavailable(ControllerError):
    """The token file is not there, or holds none; nobody was asked."""


class SessionRejected(ControllerError):
    """Our session or our token does not count (any more)."""


class ControllerRefused(ControllerError):
    """Not like this; somebody has to change something."""


class RegistrationInvalid(ControllerError):
    """What we say of ourselves makes no sense, and never will."""


ERROR_TYPES: dict[grpc.StatusCode | None, type[ControllerError]] = {
    grpc.StatusCode.UNAUTHENTICATED: SessionRejected,
    grpc.StatusCode.FAILED_PRECONDITION: ControllerRefused,
    grpc.StatusCode.PERMISSION_DENIED: ControllerRefused,
    grpc.StatusCode.INVALID_ARGUMENT: RegistrationInvalid,
}


class AgentSession(msgspec.Struct, frozen=True):
    """Ours, until the controller says otherwise."""

    node: str
    token: str
    capacity: int = 0  # of the VmafxNode; 0 if the controller does not say


class ControllerLink:
    """A channel to the controller. OSError on making one whose files cannot be used."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._client = ControllerClient(endpoint, CHANNEL_OPTIONS)

    async def close(self) -> None:
        await self._client.close()

    async def register(self, request: wire.RegisterNodeRequest) -> AgentSession:
        said = await self._call("RegisterNode", request, wire.RegisterNodeResponse, CALL_TIMEOUT)
        return AgentSession(said.node_id, said.session_token, said.capacity)

    async def heartbeat(
        self, session: AgentSession, jobs: Iterable[wire.RunningJob], working: int, *, draining: bool
    ) -> wire.HeartbeatResponse:
        request = wire.HeartbeatRequest(
            node_id=session.node,
            session_token=session.token,
            jobs_running=working,
            running_job_ids=wire.RunningJobs(jobs=jobs),
            draining=draining,
        )
        return await self._call("Heartbeat", request, wire.HeartbeatResponse, CALL_TIMEOUT)

    async def pull(
        self, session: AgentSession, capability: wire.NodeCapability, jobs: Iterable[wire.RunningJob]
    ) -> wire.PullWorkResponse:
        """Waits for work for a while."""
        request = wire.PullWorkRequest(
            node_id=session.node,
            session_token=session.token,
            capability=capability,
            running_job_ids=wire.RunningJobs(jobs=jobs),
            wait_seconds=PULL_WAIT,
        )
        return await self._call("PullWork", request, wire.PullWorkResponse, PULL_WAIT + PULL_SLACK)

    async def report(self, session: AgentSession, request: wire.ReportResultRequest) -> bool:
        """Whether it counts; if not, the attempt is over."""
        request.node_id, request.session_token = session.node, session.token
        return (await self._call("ReportResult", request, wire.ReportResultResponse, CALL_TIMEOUT)).ok

    async def _call(self, name: str, request: Message, kind: type[M], within: float) -> M:
        try:
            return await self._client.call(name, request, kind, within)
        except NotTls as error:
            raise ControllerUnreachable(
                "the controller does not speak TLS here: use --insecure, or give it --tls-cert and --tls-key"
            ) from error
        except client.TokenFileError as error:
            raise TokenUnavailable(str(error)) from error
        except CallError as error:
            raise ERROR_TYPES.get(error.code, ControllerUnreachable)(str(error)) from error


def worker_task(job: wire.Job, backend: str, threads: int) -> WorkerTask:
    """An old controller hands out clips and a model, and no whole work."""
    said, work = job.scoring, job.work
    if not work:
        whole = AttemptSpec(said.reference, said.distorted, id=job.id)
        if said.model:
            whole = msgspec.structs.replace(whole, model=said.model)
        work = msgspec.json.encode(whole).decode()
    return WorkerTask(job.id, work, said.backend or backend, threads)


def result_message(done: SpooledResult) -> wire.ReportResultRequest:
    """The whole answer, and the parts of it that an old controller knows."""
    answer = done.answer
    return wire.ReportResultRequest(
        job_id=done.id,
        final=True,
        score=answer.score or 0.0,
        features={name: one.mean for name, one in answer.metrics.items() if one.mean is not None},
        error=f"{answer.fault}: {answer.message}" if answer.fault else "",
        answer=msgspec.json.encode(answer).decode(),
        name=done.name,
    )


def progress_message(attempt: str, name: str, heard: Progress | None) -> wire.ReportResultRequest:
    """Before the first frame, that it has begun is all there is to say."""
    said = wire.Progress()
    if heard is not None and heard.stage == "scoring":
        said = wire.Progress(frames=heard.done, total_frames=heard.total or 0, fps=heard.fps)
    return wire.ReportResultRequest(job_id=attempt, name=name, progress=said)
