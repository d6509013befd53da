"""The calls of the service, each implemented once for gRPC and HTTP: authorization, request, reply."""

import math
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from vmafx.api.job import JobProgress
from vmafx.auth.access import AccessControl
from vmafx.auth.credentials import CallerCredentials
from vmafx.controller.dispatch import WorkDispatcher
from vmafx.controller.jobs import ClientJobs, JobStreams, spec_of
from vmafx.controller.messages import job_message, work_message
from vmafx.controller.registry import AgentDescription, AgentRegistry
from vmafx.controller.results import ResultRecorder
from vmafx.controller.sessions import Session, Sessions
from vmafx.http.errors import CallRefused
from vmafx.jobs.attempt import MAX_MESSAGE, AttemptResult, decode_result
from vmafx.kube import ObjectKey
from vmafx.text import one_line
from vmafx.wire import controller_pb2 as wire

MAX_PULL_WAIT = 60  # seconds
MAX_RUNNING = 1024
ALL_NAMESPACES = "*"
NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class ServicerParts(msgspec.Struct, frozen=True):
    """What the calls are answered with."""

    doors: AccessControl
    sessions: Sessions
    jobs: ClientJobs
    nodes: AgentRegistry
    work: WorkDispatcher
    results: ResultRecorder
    streams: JobStreams
    namespace: str  # where jobs and nodes go that do not say
    only: str = ""  # the one namespace that is served, if not all are


class ControllerServicer:
    """One method for each call of the service, by its name on the wire."""

    def __init__(self, parts: ServicerParts) -> None:
        self._parts = parts
        self._doors, self._namespace = parts.doors, parts.namespace

    # For clients.

    async def SubmitJob(self, request: wire.SubmitJobRequest, shown: CallerCredentials) -> wire.SubmitJobResponse:
        namespace = self._in(request.namespace)
        await self._doors.admit(shown, "create", "vmafxjobs", namespace)
        asked = request.scoring
        spec = spec_of(asked.reference, asked.distorted, asked.model, asked.backend, request.spec)
        made = await self._parts.jobs.submit(namespace, request.name, spec)
        meta = made.metadata
        return wire.SubmitJobResponse(job_id=meta.uid, namespace=meta.namespace, name=meta.name)

    async def GetJob(self, request: wire.GetJobRequest, shown: CallerCredentials) -> wire.Job:
        await self._doors.who(shown)
        job = await self._parts.jobs.get(request.job_id)
        await self._doors.admit(shown, "get", "vmafxjobs", job.metadata.namespace, job.metadata.name)
        return job_message(job, request.job_id)

    async def CancelJob(self, request: wire.CancelJobRequest, shown: CallerCredentials) -> wire.CancelJobResponse:
        await self._doors.who(shown)
        job = await self._parts.jobs.get(request.job_id)
        await self._doors.admit(shown, "patch", "vmafxjobs", job.metadata.namespace, job.metadata.name)
        ok, message = await self._parts.jobs.cancel(job)
        return wire.CancelJobResponse(ok=ok, message=message)

    async def StreamJobs(self, request: wire.StreamJobsRequest, shown: CallerCredentials) -> AsyncGenerator[wire.Job]:
        namespace = self._parts.only if request.namespace == ALL_NAMESPACES else self._in(request.namespace)
        await self._doors.admit(shown, "watch", "vmafxjobs", namespace)
        wanted = set(request.status_filter)
        async with aclosing(self._parts.streams.jobs(namespace)) as jobs:
            async for job in jobs:
                message = job_message(job)
                if not wanted or message.status in wanted:
                    yield message

    # For agents.

    async def RegisterNode(
        self, request: wire.RegisterNodeRequest, shown: CallerCredentials
    ) -> wire.RegisterNodeResponse:
        node = ObjectKey(self._in(request.namespace), request.name)
        await self._admit_agent(shown, node)
        offered = request.capability
        machine = AgentDescription(
            vendor=offered.gpu_vendor or "cpu",
            capacity=offered.concurrency or 1,
            device=request.device,
            fps=request.fps,
            labels=dict(request.labels),
        )
        session, capacity = await self._parts.nodes.register(node, machine)
        token = self._parts.sessions.token(session)
        return wire.RegisterNodeResponse(node_id=str(node), session_token=token, capacity=capacity)

    async def Heartbeat(self, request: wire.HeartbeatRequest, shown: CallerCredentials) -> wire.HeartbeatResponse:
        async with self._parts.nodes.in_time():
            return await self._heartbeat(request, shown)

    async def _heartbeat(self, request: wire.HeartbeatRequest, shown: CallerCredentials) -> wire.HeartbeatResponse:
        session = self._session(request.node_id, request.session_token)
        if session is None:
            await self._doors.who(shown)
            return wire.HeartbeatResponse(ok=False)
        await self._admit_agent(shown, session.node)
        standing = await self._parts.nodes.standing(session)
        if standing != "speaks":
            return wire.HeartbeatResponse(ok=False, superseded=standing == "superseded")
        await self._parts.nodes.beat(session, draining=request.draining)
        if not request.HasField("running_job_ids"):
            self._parts.work.heard(session, request.jobs_running)
        return wire.HeartbeatResponse(
            ok=True,
            stop_job_ids=await self._parts.work.over(session.node, _running(request.running_job_ids)),
            capacity=self._parts.nodes.capacity(session.node),
        )

    async def PullWork(self, request: wire.PullWorkRequest, shown: CallerCredentials) -> wire.PullWorkResponse:
        session = await self._speaker(request.node_id, request.session_token, shown)
        if not request.HasField("running_job_ids"):  # an old agent
            claimed = await self._parts.work.claim(session)
            return wire.PullWorkResponse(job=work_message(claimed) if claimed is not None else None)
        pulled = await self._parts.work.pull(
            session.node,
            _running(request.running_job_ids),
            request.capability.concurrency or 1,
            min(max(request.wait_seconds, 0), MAX_PULL_WAIT),
        )
        if pulled.job is not None and await self._parts.nodes.standing(session) != "speaks":
            raise _not_the_speaker()  # another agent came while this one waited
        job = work_message(pulled.job) if pulled.job is not None else None
        return wire.PullWorkResponse(job=job, stop_job_ids=pulled.stop)

    async def ReportResult(
        self, request: wire.ReportResultRequest, shown: CallerCredentials
    ) -> wire.ReportResultResponse:
        session = await self._speaker(request.node_id, request.session_token, shown)
        results = self._parts.results
        if request.final:
            ok = await results.final(session, request.job_id, request.name, _answer(request))
            if ok:
                self._parts.work.ended(session.node, request.job_id)
        else:
            ok = await results.progress(session, request.job_id, request.name, _progress(request))
        return wire.ReportResultResponse(ok=ok)

    def _in(self, namespace: str) -> str:
        """The namespace of a call; the controller's own if it names none."""
        served = self._parts.only
        if not namespace:
            return self._namespace
        if not NAMESPACE.fullmatch(namespace):
            raise CallRefused(
                "INVALID_ARGUMENT",
                f"namespace {namespace[:100]!r} is not a valid name: use up to 63 lower-case letters, digits and '-'",
            )
        if served and namespace != served:
            raise CallRefused(
                "FAILED_PRECONDITION",
                f"this controller serves only the namespace {served!r}, not {namespace!r}; "
                "leave namespace out, or call the controller of the other namespace",
            )
        return namespace

    async def _admit_agent(self, shown: CallerCredentials, node: ObjectKey) -> None:
        await self._doors.admit(shown, "patch", "vmafxnodes", node.namespace, node.name, "status")

    def _session(self, node_id: str, token: str) -> Session | None:
        session = self._parts.sessions.read(token)
        return session if session is not None and str(session.node) == node_id else None

    async def _speaker(self, node_id: str, token: str, shown: CallerCredentials) -> Session:
        session = self._session(node_id, token)
        if session is None:
            await self._doors.who(shown)
            raise _not_the_speaker()
        await self._admit_agent(shown, session.node)
        if await self._parts.nodes.standing(session) != "speaks":
            raise _not_the_speaker()
        return session


def _not_the_speaker() -> CallRefused:
    return CallRefused(
        "UNAUTHENTICATED",
        "the session token is not valid for this node, or another agent has registered the node since; register again",
    )


def _running(said: wire.RunningJobs) -> dict[str, str]:
    if len(said.jobs) > MAX_RUNNING:
        raise CallRefused(
            "INVALID_ARGUMENT", f"running_job_ids has {len(said.jobs)} jobs; at most {MAX_RUNNING} are accepted"
        )
    return {one.id: one.name for one in said.jobs}


def _answer(request: wire.ReportResultRequest) -> AttemptResult | None:
    """A worker's answer as it left it; or, from an old agent, what there is of one."""
    if request.answer:
        told = decode_result(request.answer, request.job_id)
        return told and msgspec.structs.replace(
            told, message=one_line(told.message, MAX_MESSAGE) if told.message else None
        )
    if request.error:
        said = AttemptResult(request.job_id, fault="EngineFailure", message=one_line(request.error, MAX_MESSAGE))
    else:
        metrics = {name: {"mean": value} for name, value in request.features.items()}
        try:
            said = msgspec.convert({"id": request.job_id, "score": request.score, "metrics": metrics}, AttemptResult)
        except msgspec.ValidationError:
            return None
    return decode_result(msgspec.json.encode(said).decode(), request.job_id)


def _progress(request: wire.ReportResultRequest) -> JobProgress:
    so_far = request.progress
    if not math.isfinite(so_far.fps):
        raise CallRefused("INVALID_ARGUMENT", f"progress.fps is {so_far.fps}; it must be a finite number")
    said = {"frames": so_far.frames or len(request.partial_scores), "totalFrames": so_far.total_frames}
    try:
        return msgspec.convert({**said, "fps": so_far.fps}, JobProgress)
    except msgspec.ValidationError as error:
        raise CallRefused("INVALID_ARGUMENT", f"progress: {error}") from error
