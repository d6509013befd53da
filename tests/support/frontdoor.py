"""A controller for agents to talk to: a real gRPC server with a queue in memory, and faults that a test asks for.

It hands out what is placed and not in hand, as the real one does, and can do what the real one cannot do on demand: go
away for as long as a test likes, forget sessions, take a result and lose the answer.
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

from vmafx.api.scoring import ScoringOptions
from vmafx.devcluster.cluster import free_port
from vmafx.jobs.attempt import AttemptResult, AttemptSpec
from vmafx.wire import controller_pb2 as wire
from vmafx.wire.controller_pb2_grpc import VmafxControllerServicer, add_VmafxControllerServicer_to_server

Context = Any


class Heard(NamedTuple):
    """One call."""

    method: str
    request: Any
    authorization: str


class FrontDoor(VmafxControllerServicer):
    """Use as an async context manager; `stop` and `start` are an outage."""

    def __init__(self, credentials: grpc.ServerCredentials | None = None) -> None:
        self.credentials = credentials
        self._port = 0
        self._numbers = count()
        self._changed = asyncio.Event()
        self.placed: dict[str, wire.Job] = {}  # jobs of this node, in hand or to be handed out
        self.results: dict[str, AttemptResult] = {}
        self.stops: set[str] = set()
        self.sessions: set[str] = set()
        self.superseded = False
        self.refusals: dict[str, grpc.StatusCode] = {}  # by method: what it fails with
        self.lost: set[str] = set()  # methods whose answer does not arrive, though all was done
        self.old = False  # as one that knows nothing of fields from 100 up
        self._handed_out = self.most_at_once = 0  # by an old one, which does so once
        self.heard: list[Heard] = []

    @property
    def address(self) -> str:
        return f"localhost:{self._port}"

    async def start(self) -> None:
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        add_VmafxControllerServicer_to_server(self, self._server)
        self._port = self._port or free_port()  # not one that a connection may have when it is wanted again
        at = f"localhost:{self._port}"
        if self.credentials is None:
            self._port = self._server.add_insecure_port(at)
        else:
            self._port = self._server.add_secure_port(at, self.credentials)
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

    def place(self, attempt: str, reference: Path, distorted: Path, options: ScoringOptions | None = None) -> None:
        job = wire.Job(
            id=attempt, scoring=wire.ScoringParams(reference=reference.as_uri(), distorted=distorted.as_uri())
        )
        if not self.old:
            work = AttemptSpec(reference.as_uri(), distorted.as_uri(), options=options, id=attempt)
            job.name, job.work = f"job-{attempt}", msgspec.json.encode(work).decode()
        self.placed[attempt] = job
        self.change()

    def place_short(self, clips: Path, attempt: str = "uid-0") -> None:
        """What is scored in a moment."""
        self.place(attempt, clips / "reference.mkv", clips / "distorted.mp4")

    def place_long(self, clips: Path, attempt: str = "uid-0") -> None:
        """What takes seconds."""
        self.place(attempt, clips / "long.mkv", clips / "long.mkv", ScoringOptions(threads=1))

    def end(self, attempt: str) -> None:
        """Nobody wants it any more."""
        self.placed.pop(attempt, None)
        self.stops.add(attempt)
        self.change()

    def change(self) -> None:
        """What waits for work looks again."""
        self._changed.set()
        self._changed = asyncio.Event()

    def calls(self, method: str) -> list[Any]:
        return [one.request for one in self.heard if one.method == method]

    def in_hand(self) -> set[str]:
        """By the last that the agent said."""
        said = [one.request for one in self.heard if one.method in {"Heartbeat", "PullWork"}]
        return {job.id for job in said[-1].running_job_ids.jobs} if said else set()

    async def RegisterNode(self, request: wire.RegisterNodeRequest, context: Context) -> wire.RegisterNodeResponse:
        await self._hear("RegisterNode", request, context)
        token = f"session-{next(self._numbers)}"
        self.sessions.add(token)
        said = wire.RegisterNodeResponse(
            node_id=f"{request.namespace or 'default'}/{request.name}", session_token=token
        )
        if not self.old:
            said.capacity = request.capability.concurrency
        return said

    async def Heartbeat(self, request: wire.HeartbeatRequest, context: Context) -> wire.HeartbeatResponse:
        await self._hear("Heartbeat", request, context)
        if self.superseded or request.session_token not in self.sessions:
            return wire.HeartbeatResponse(ok=False, superseded=self.superseded)
        return wire.HeartbeatResponse(ok=True, stop_job_ids=self._to_stop(request.running_job_ids))

    async def PullWork(self, request: wire.PullWorkRequest, context: Context) -> wire.PullWorkResponse:
        await self._hear("PullWork", request, context)
        with suppress(TimeoutError):
            async with asyncio.timeout(0.01 if self.old else max(0.01, request.wait_seconds)):
                while True:
                    if request.session_token not in self.sessions:
                        await context.abort(grpc.StatusCode.UNAUTHENTICATED, "this session is not known")
                    if (said := self._work(request)) is not None:
                        return said
                    await self._changed.wait()
        return wire.PullWorkResponse()

    def _work(self, request: wire.PullWorkRequest) -> wire.PullWorkResponse | None:
        held = {job.id for job in request.running_job_ids.jobs}
        if stops := self._to_stop(request.running_job_ids):
            return wire.PullWorkResponse(stop_job_ids=stops)
        if self.old:
            return self._handed_out_for_good() if self.placed else None
        waiting = [job for attempt, job in self.placed.items() if attempt not in held]
        if waiting and len(held) < request.capability.concurrency:
            return wire.PullWorkResponse(job=waiting[0])
        return None

    def _handed_out_for_good(self) -> wire.PullWorkResponse:
        self._handed_out += 1
        self.most_at_once = max(self.most_at_once, self._handed_out - len(self.results))
        return wire.PullWorkResponse(job=self.placed.pop(next(iter(self.placed))))

    async def ReportResult(self, request: wire.ReportResultRequest, context: Context) -> wire.ReportResultResponse:
        await self._hear("ReportResult", request, context)
        if request.session_token not in self.sessions:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "this session is not known")
        wanted = self.old or request.job_id in self.placed
        if request.final and wanted:
            self.results[request.job_id] = msgspec.json.decode(request.answer, type=AttemptResult)
            self.placed.pop(request.job_id, None)
        if "ReportResult" in self.lost:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "lost")
        return wire.ReportResultResponse(ok=wanted)

    def _to_stop(self, running: wire.RunningJobs) -> list[str]:
        return [job.id for job in running.jobs if job.id in self.stops]

    async def _hear(self, method: str, request: Any, context: Context) -> None:
        said = dict(context.invocation_metadata())
        self.heard.append(Heard(method, request, said.get("authorization", "")))
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
