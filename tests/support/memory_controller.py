"""A controller for agents: a real gRPC server with jobs in memory, and faults on demand.

Like the real one, it hands out jobs that are placed and that the agent does not hold. Tests can make it unavailable,
forget sessions, and lose the reply to a result.
"""

# ruff: noqa: N802 - methods have the names of the calls

import asyncio
from contextlib import suppress
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import grpc
import msgspec

from vmafx.api.hardware import Backend
from vmafx.api.scoring import ScoringOptions
from vmafx.devcluster.cluster import free_port
from vmafx.jobs.attempt import AttemptResult, AttemptSpec
from vmafx.wire import controller_pb2 as wire
from vmafx.wire.controller_pb2_grpc import VmafxControllerServicer, add_VmafxControllerServicer_to_server

Context = Any


class ReceivedCall(NamedTuple):
    """One call of an agent."""

    method: str
    request: Any
    authorization: str


class MemoryController(VmafxControllerServicer):
    """Use as an async context manager; `stop` and `start` simulate an outage."""

    def __init__(self, credentials: grpc.ServerCredentials | None = None) -> None:
        self.credentials = credentials
        self._port = 0
        self._numbers = count()
        self._changed = asyncio.Event()
        self.placed: dict[str, wire.Job] = {}  # attempts of this node, held by its agent or waiting for it
        self.results: dict[str, AttemptResult] = {}
        self.stops: set[str] = set()
        self.sessions: set[str] = set()
        self.superseded = False
        self.message = ""  # in the reply to a registration
        self.refusals: dict[str, grpc.StatusCode] = {}  # by method: the status that it fails with
        self.lost: set[str] = set()  # methods whose reply is lost, after the call has taken effect
        self.old = False  # behave like an original controller, without the fields from 100 up
        self._handed_out = self.most_at_once = 0  # jobs handed out when `old`, each once
        self.received: list[ReceivedCall] = []
        self.wants_samples = False  # of the jobs that are placed from now on
        self.samples: dict[str, bytes] = {}  # what was stored, by token
        self.samples_result = wire.PushSamplesResponse.STORED

    @property
    def address(self) -> str:
        return f"localhost:{self._port}"

    async def start(self) -> None:
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        add_VmafxControllerServicer_to_server(self, self._server)
        self._port = self._port or free_port()  # a fixed port, free again after an outage
        address = f"localhost:{self._port}"
        if self.credentials is None:
            self._port = self._server.add_insecure_port(address)
        else:
            self._port = self._server.add_secure_port(address, self.credentials)
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(None)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def place(
        self,
        attempt: str,
        reference: Path,
        distorted: Path,
        options: ScoringOptions | None = None,
        output: str | None = None,
        backend: Backend | None = None,
    ) -> None:
        scoring = wire.ScoringParams(reference=reference.as_uri(), distorted=distorted.as_uri(), backend=backend or "")
        job = wire.Job(id=attempt, scoring=scoring)
        if not self.old:
            work = AttemptSpec(
                reference.as_uri(), distorted.as_uri(), backend=backend, options=options, output=output, id=attempt
            )
            job.name, job.work = f"job-{attempt}", msgspec.json.encode(work).decode()
            job.samples_token = f"token-{attempt}" if self.wants_samples else ""
        self.placed[attempt] = job
        self.change()

    def place_short(self, clips: Path, attempt: str = "uid-0") -> None:
        """Place a job that is scored in less than a second."""
        self.place(attempt, clips / "reference.mkv", clips / "distorted.mp4")

    def place_long(self, clips: Path, attempt: str = "uid-0") -> None:
        """Place a job that takes several seconds."""
        self.place(attempt, clips / "long.mkv", clips / "long.mkv", ScoringOptions(threads=1))

    def end(self, attempt: str) -> None:
        """Withdraw an attempt: the agent is told to stop it."""
        self.placed.pop(attempt, None)
        self.stops.add(attempt)
        self.change()

    def change(self) -> None:
        """Wake up waiting PullWork calls."""
        self._changed.set()
        self._changed = asyncio.Event()

    def calls(self, method: str) -> list[Any]:
        return [one.request for one in self.received if one.method == method]

    def held(self) -> set[str]:
        """The attempts that the agent held in its last call."""
        requests = [one.request for one in self.received if one.method in {"Heartbeat", "PullWork"}]
        return {job.id for job in requests[-1].running_job_ids.jobs} if requests else set()

    async def RegisterNode(self, request: wire.RegisterNodeRequest, context: Context) -> wire.RegisterNodeResponse:
        await self._record("RegisterNode", request, context)
        token = f"session-{next(self._numbers)}"
        self.sessions.add(token)
        reply = wire.RegisterNodeResponse(
            node_id=f"{request.namespace or 'default'}/{request.name}", session_token=token
        )
        if not self.old:
            reply.capacity, reply.message = request.capability.concurrency, self.message
        return reply

    async def Heartbeat(self, request: wire.HeartbeatRequest, context: Context) -> wire.HeartbeatResponse:
        await self._record("Heartbeat", request, context)
        if self.superseded or request.session_token not in self.sessions:
            return wire.HeartbeatResponse(ok=False, superseded=self.superseded)
        return wire.HeartbeatResponse(ok=True, stop_job_ids=self._to_stop(request.running_job_ids))

    async def PullWork(self, request: wire.PullWorkRequest, context: Context) -> wire.PullWorkResponse:
        await self._record("PullWork", request, context)
        with suppress(TimeoutError):
            async with asyncio.timeout(0.01 if self.old else max(0.01, request.wait_seconds)):
                while True:
                    if request.session_token not in self.sessions:
                        await context.abort(grpc.StatusCode.UNAUTHENTICATED, "this session is not known")
                    if (reply := self._work(request)) is not None:
                        return reply
                    await self._changed.wait()
        return wire.PullWorkResponse()

    def _work(self, request: wire.PullWorkRequest) -> wire.PullWorkResponse | None:
        held = {job.id for job in request.running_job_ids.jobs}
        if stops := self._to_stop(request.running_job_ids):
            return wire.PullWorkResponse(stop_job_ids=stops)
        if self.old:
            return self._hand_out_once() if self.placed else None
        waiting = [job for attempt, job in self.placed.items() if attempt not in held]
        if waiting and len(held) < request.capability.concurrency:
            return wire.PullWorkResponse(job=waiting[0])
        return None

    def _hand_out_once(self) -> wire.PullWorkResponse:
        self._handed_out += 1
        self.most_at_once = max(self.most_at_once, self._handed_out - len(self.results))
        return wire.PullWorkResponse(job=self.placed.pop(next(iter(self.placed))))

    async def ReportResult(self, request: wire.ReportResultRequest, context: Context) -> wire.ReportResultResponse:
        await self._record("ReportResult", request, context)
        if request.session_token not in self.sessions:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "this session is not known")
        wanted = self.old or request.job_id in self.placed
        if request.final and wanted:
            self.results[request.job_id] = msgspec.json.decode(request.answer, type=AttemptResult)
            self.placed.pop(request.job_id, None)
        if "ReportResult" in self.lost:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "lost")
        return wire.ReportResultResponse(ok=wanted)

    async def PushSamples(self, request: wire.PushSamplesRequest, context: Context) -> wire.PushSamplesResponse:
        await self._record("PushSamples", request, context)
        if request.session_token not in self.sessions:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "this session is not known")
        reply = wire.PushSamplesResponse(result=self.samples_result)
        if reply.result == wire.PushSamplesResponse.STORED:
            self.samples.setdefault(request.samples_token, request.samples)
        if "PushSamples" in self.lost:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "lost")
        return reply

    def _to_stop(self, running: wire.RunningJobs) -> list[str]:
        return [job.id for job in running.jobs if job.id in self.stops]

    async def _record(self, method: str, request: Any, context: Context) -> None:
        metadata = dict(context.invocation_metadata())
        self.received.append(ReceivedCall(method, request, metadata.get("authorization", "")))
        if method in self.refusals:
            await context.abort(self.refusals[method], "so it \x1b[31mis")

    async def SubmitJob(self, request: Any, context: Context) -> Any:
        raise NotImplementedError

    async def GetJob(self, request: Any, context: Context) -> Any:
        raise NotImplementedError

    async def CancelJob(self, request: Any, context: Context) -> Any:
        raise NotImplementedError

    def StreamJobs(self, request: Any, context: Context) -> Any:
        raise NotImplementedError

    def ListJobs(self, request: Any, context: Context) -> Any:
        raise NotImplementedError
