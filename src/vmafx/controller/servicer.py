"""The calls of the service, each implemented once for gRPC and HTTP: authorization, request, reply."""

import math
import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from functools import partial

import msgspec

from vmafx.api.job import JobProgress, VmafxJob
from vmafx.auth.access import AccessControl
from vmafx.auth.credentials import CallerCredentials
from vmafx.auth.streams import while_authorized
from vmafx.controller.dispatch import WorkDispatcher
from vmafx.controller.jobs import ClientJobs, JobStreams, job_spec
from vmafx.controller.messages import PHASES, job_message, work_message
from vmafx.controller.registry import AgentDescription, AgentRegistry
from vmafx.controller.results import ResultRecorder
from vmafx.controller.samples import SampleForwarder
from vmafx.controller.sessions import Session, Sessions
from vmafx.http.errors import StatusError
from vmafx.http.lists import DEFAULT_LIMIT, MAX_LIMIT
from vmafx.jobs.attempt import MAX_MESSAGE, AttemptResult, decode_result
from vmafx.kube import ObjectKey
from vmafx.text import one_line
from vmafx.training.samples import MAX_BATCH_BYTES
from vmafx.wire import controller_pb2 as wire

MAX_PULL_WAIT = 60  # seconds
MAX_RUNNING = 1024
ALL_NAMESPACES = "*"
NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class ServicerParts(msgspec.Struct, frozen=True):
    """The components that implement the calls."""

    access: AccessControl
    sessions: Sessions
    jobs: ClientJobs
    registry: AgentRegistry
    dispatcher: WorkDispatcher
    results: ResultRecorder
    samples: SampleForwarder
    streams: JobStreams
    default_namespace: str  # for requests without a namespace
    only_namespace: str = ""  # the namespace that is served; empty: all


class ControllerServicer:
    """One method for each call of the service."""

    def __init__(self, parts: ServicerParts) -> None:
        self._parts, self._access = parts, parts.access

    # Calls of clients.

    async def SubmitJob(self, request: wire.SubmitJobRequest, credentials: CallerCredentials) -> wire.SubmitJobResponse:
        namespace = self._namespace(request.namespace)
        await self._access.authorize(credentials, "create", "vmafxjobs", namespace)
        scoring = request.scoring
        spec = job_spec(scoring.reference, scoring.distorted, scoring.model, scoring.backend, request.spec)
        meta = (await self._parts.jobs.submit(namespace, request.name, spec)).metadata
        return wire.SubmitJobResponse(job_id=meta.uid, namespace=meta.namespace, name=meta.name)

    async def GetJob(self, request: wire.GetJobRequest, credentials: CallerCredentials) -> wire.Job:
        job = await self._authorized_job(request.job_id, request.namespace, "get", credentials)
        return job_message(job, request.job_id)

    async def CancelJob(self, request: wire.CancelJobRequest, credentials: CallerCredentials) -> wire.CancelJobResponse:
        job = await self._authorized_job(request.job_id, request.namespace, "patch", credentials)
        ok, message = await self._parts.jobs.cancel(job)
        return wire.CancelJobResponse(ok=ok, message=message)

    async def StreamJobs(
        self, request: wire.StreamJobsRequest, credentials: CallerCredentials
    ) -> AsyncGenerator[wire.Job]:
        namespace = self._listed_namespace(request.namespace)
        authorize = partial(self._access.authorize, credentials, "watch", "vmafxjobs", namespace)
        states = set(request.status_filter)
        async with aclosing(while_authorized(self._parts.streams.watch(namespace), authorize)) as jobs:
            async for job in jobs:
                message = job_message(job)
                if not states or message.status in states:
                    yield message

    async def ListJobs(self, request: wire.ListJobsRequest, credentials: CallerCredentials) -> wire.ListJobsResponse:
        namespace = self._listed_namespace(request.namespace)
        await self._access.authorize(credentials, "list", "vmafxjobs", namespace)
        if request.limit < 0:
            raise StatusError("INVALID_ARGUMENT", f"limit is {request.limit}; it must be from 1 to {MAX_LIMIT}")
        limit, states = min(request.limit or DEFAULT_LIMIT, MAX_LIMIT), set(request.status_filter)
        phases = {PHASES[state] for state in states if state in PHASES}
        page = await self._parts.streams.page(namespace, phases, limit, request.continue_token)
        jobs = [job_message(job) for job in page.items]
        return wire.ListJobsResponse(
            jobs=[job for job in jobs if not states or job.status in states], continue_token=page.metadata.continue_
        )

    # Calls of agents.

    async def RegisterNode(
        self, request: wire.RegisterNodeRequest, credentials: CallerCredentials
    ) -> wire.RegisterNodeResponse:
        node = ObjectKey(self._namespace(request.namespace), request.name)
        await self._authorize_agent(credentials, node)
        machine = AgentDescription(
            vendor=request.capability.gpu_vendor or "cpu",
            capacity=request.capability.concurrency or 1,
            device=request.device,
            fps=request.fps,
            labels=dict(request.labels),
        )

        async def authorize_creation() -> None:
            with _advise_if_denied(", and this VmafxNode does not exist: create it, or grant the permission"):
                await self._access.authorize(credentials, "create", "vmafxnodes", node.namespace, node.name)

        registered = await self._parts.registry.register(node, machine, authorize_creation)
        token = self._parts.sessions.sign(registered.session)
        return wire.RegisterNodeResponse(
            node_id=str(node), session_token=token, capacity=registered.capacity, message=registered.message
        )

    async def Heartbeat(self, request: wire.HeartbeatRequest, credentials: CallerCredentials) -> wire.HeartbeatResponse:
        session = self._session(request.node_id, request.session_token)
        if session is None:
            await self._access.authenticate(credentials)
            return wire.HeartbeatResponse(ok=False)
        await self._authorize_agent(credentials, session.node)
        state = await self._parts.registry.session_state(session)
        if state != "current":
            return wire.HeartbeatResponse(ok=False, superseded=state == "superseded")
        await self._parts.registry.record_heartbeat(session, draining=request.draining)
        if not request.HasField("running_job_ids"):  # an old agent
            self._parts.dispatcher.record_running_count(session, request.jobs_running)
        return wire.HeartbeatResponse(
            ok=True,
            stop_job_ids=await self._parts.dispatcher.attempts_to_stop(
                session.node, _reported(request.running_job_ids)
            ),
            capacity=self._parts.registry.capacity(session.node),
        )

    async def PullWork(self, request: wire.PullWorkRequest, credentials: CallerCredentials) -> wire.PullWorkResponse:
        session = await self._current_session(request.node_id, request.session_token, credentials)
        if not request.HasField("running_job_ids"):  # an old agent
            claimed = await self._parts.dispatcher.claim(session)
            return wire.PullWorkResponse(job=work_message(claimed, old_agent=True) if claimed is not None else None)
        pulled = await self._parts.dispatcher.pull(
            session.node,
            _reported(request.running_job_ids),
            request.capability.concurrency or 1,
            min(max(request.wait_seconds, 0), MAX_PULL_WAIT),
        )
        if pulled.job is not None and await self._parts.registry.session_state(session) != "current":
            raise _invalid_session()  # another agent registered during the long poll
        job = None
        if pulled.job is not None:
            job = work_message(pulled.job, await self._parts.samples.agent_token(pulled.job, session.node))
        return wire.PullWorkResponse(job=job, stop_job_ids=pulled.stop)

    async def ReportResult(
        self, request: wire.ReportResultRequest, credentials: CallerCredentials
    ) -> wire.ReportResultResponse:
        session = await self._current_session(request.node_id, request.session_token, credentials)
        results = self._parts.results
        if request.final:
            ok = await results.record_result(session, request.job_id, request.name, _result(request))
            if ok:
                self._parts.dispatcher.attempt_ended(session.node, request.job_id)
        else:
            ok = await results.record_progress(session, request.job_id, request.name, _progress(request))
        return wire.ReportResultResponse(ok=ok)

    async def PushSamples(
        self, request: wire.PushSamplesRequest, credentials: CallerCredentials
    ) -> wire.PushSamplesResponse:
        if not 0 < len(request.samples) <= MAX_BATCH_BYTES:
            raise StatusError(
                "INVALID_ARGUMENT", f"samples has {len(request.samples)} bytes; it must have 1 to {MAX_BATCH_BYTES}"
            )
        node = None
        if request.node_id:  # an agent; a worker Pod has no session
            node = (await self._current_session(request.node_id, request.session_token, credentials)).node
        pushed = await self._parts.samples.push(request.samples_token, request.samples, node)
        return wire.PushSamplesResponse(result=pushed.result, message=pushed.message)

    def _listed_namespace(self, namespace: str) -> str:
        """The namespace of a list or a stream; empty: all."""
        return self._parts.only_namespace if namespace == ALL_NAMESPACES else self._namespace(namespace)

    def _namespace(self, namespace: str) -> str:
        """The namespace of a request, or the default one; StatusError if it is invalid or not served."""
        only = self._parts.only_namespace
        if not namespace:
            return self._parts.default_namespace
        if not NAMESPACE.fullmatch(namespace):
            raise StatusError(
                "INVALID_ARGUMENT",
                f"namespace {namespace[:100]!r} is not a valid name: use up to 63 lower-case letters, digits and '-'",
            )
        if only and namespace != only:
            raise StatusError(
                "FAILED_PRECONDITION",
                f"this controller serves only the namespace {only!r}, not {namespace!r}; "
                "leave namespace out, or call the controller of the other namespace",
            )
        return namespace

    async def _authorized_job(self, job_id: str, namespace: str, verb: str, credentials: CallerCredentials) -> VmafxJob:
        """The job with this ID; it is neither searched nor read before the caller is authorized."""
        jobs = self._parts.jobs
        key = jobs.known_key(job_id, namespace)
        if key is None:
            key = await jobs.search(job_id, await self._authorize_search(namespace, verb, credentials))
        await self._access.authorize(credentials, verb, "vmafxjobs", key.namespace, key.name)
        return await jobs.get(job_id, key)

    async def _authorize_search(self, namespace: str, verb: str, credentials: CallerCredentials) -> str:
        """The namespace to search for a job: one in which the caller may read or cancel every job; empty: all."""
        if not namespace and not self._parts.only_namespace:
            try:
                await self._access.authorize(credentials, verb, "vmafxjobs", "")
            except StatusError as error:
                if error.code != "PERMISSION_DENIED":
                    raise
            else:
                return ""
        searched = self._namespace(namespace)
        with _advise_if_denied("" if namespace else "; if the job is in another namespace, give that one"):
            await self._access.authorize(credentials, verb, "vmafxjobs", searched)
        return searched

    async def _authorize_agent(self, credentials: CallerCredentials, node: ObjectKey) -> None:
        await self._access.authorize(credentials, "patch", "vmafxnodes", node.namespace, node.name, "status")

    def _session(self, node_id: str, token: str) -> Session | None:
        session = self._parts.sessions.verify(token)
        return session if session is not None and str(session.node) == node_id else None

    async def _current_session(self, node_id: str, token: str, credentials: CallerCredentials) -> Session:
        session = self._session(node_id, token)
        if session is None:
            await self._access.authenticate(credentials)
            raise _invalid_session()
        await self._authorize_agent(credentials, session.node)
        if await self._parts.registry.session_state(session) != "current":
            raise _invalid_session()
        return session


@contextmanager
def _advise_if_denied(advice: str) -> Iterator[None]:
    """Append what to do to the message of a denial."""
    try:
        yield
    except StatusError as error:
        if error.code != "PERMISSION_DENIED":
            raise
        raise StatusError(error.code, f"{error.message}{advice}", caller=error.caller) from error


def _invalid_session() -> StatusError:
    return StatusError(
        "UNAUTHENTICATED",
        "the session token is not valid for this node, or another agent has registered the node since; register again",
    )


def _reported(running: wire.RunningJobs) -> dict[str, str]:
    if len(running.jobs) > MAX_RUNNING:
        raise StatusError(
            "INVALID_ARGUMENT", f"running_job_ids has {len(running.jobs)} jobs; at most {MAX_RUNNING} are accepted"
        )
    return {job.id: job.name for job in running.jobs}


def _result(request: wire.ReportResultRequest) -> AttemptResult | None:
    """The worker's result, or one built from the fields of an old agent; None if it is invalid."""
    if request.answer:
        result = decode_result(request.answer, request.job_id)
        return result and msgspec.structs.replace(
            result, message=one_line(result.message, MAX_MESSAGE) if result.message else None
        )
    if request.error:
        result = AttemptResult(request.job_id, fault="EngineFailure", message=one_line(request.error, MAX_MESSAGE))
    else:
        metrics = {name: {"mean": value} for name, value in request.features.items()}
        try:
            result = msgspec.convert({"id": request.job_id, "score": request.score, "metrics": metrics}, AttemptResult)
        except msgspec.ValidationError:
            return None
    return decode_result(msgspec.json.encode(result).decode(), request.job_id)


def _progress(request: wire.ReportResultRequest) -> JobProgress:
    progress = request.progress
    if not math.isfinite(progress.fps):
        raise StatusError("INVALID_ARGUMENT", f"progress.fps is {progress.fps}; it must be a finite number")
    frames = progress.frames or len(request.partial_scores)
    fields = {"frames": frames, "totalFrames": progress.total_frames, "fps": progress.fps}
    try:
        return msgspec.convert(fields, JobProgress)
    except msgspec.ValidationError as error:
        raise StatusError("INVALID_ARGUMENT", f"progress: {error}") from error
