"""The controller in this process, with a real API server, and gRPC clients for it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, NamedTuple

import grpc

from vmafx.auth.access import AccessControl, InsecureAccess
from vmafx.clock import loop_time, utc_now
from vmafx.controller import grpc_server, http_server
from vmafx.controller.caches import make_caches
from vmafx.controller.dispatch import WorkDispatcher
from vmafx.controller.jobs import ClientJobs, JobStreams
from vmafx.controller.middleware import AgentCalls, ControllerCallLimits
from vmafx.controller.registry import AgentRegistry
from vmafx.controller.results import ResultRecorder
from vmafx.controller.samples import SampleForwarder
from vmafx.controller.servicer import ControllerServicer, ServicerParts
from vmafx.controller.sessions import Sessions, signing_key
from vmafx.http import server
from vmafx.http.address import ListenAddress
from vmafx.jobs.sample_keys import SampleKeys
from vmafx.kube import Client
from vmafx.rpc.middleware import CallMetrics
from vmafx.runtime.events import EventRecorder
from vmafx.runtime.manager import Manager
from vmafx.runtime.metrics import Metrics
from vmafx.training.address import DEFAULT_ADDRESS
from vmafx.wire import controller_pb2 as wire
from vmafx.wire.controller_pb2_grpc import VmafxControllerStub

LOCAL = "127.0.0.1"


@asynccontextmanager
async def running_controller(
    client: Client, namespace: str, doors: AccessControl | None = None, port: int = 0, **options: Any
) -> AsyncIterator[int]:
    """Run one replica for `namespace`, or for all namespaces with `home` as the default; yields its port."""
    async with (
        controller_replica(client, namespace, doors, **options) as replica,
        grpc_server.serve_grpc(
            ListenAddress(LOCAL, port), None, replica.servicer, replica.access, Metrics(), 0.0
        ) as at,
    ):
        try:
            yield at
        finally:
            replica.dispatcher.close()


class Replica(NamedTuple):
    servicer: ControllerServicer
    access: AccessControl
    dispatcher: WorkDispatcher


@asynccontextmanager
async def controller_replica(
    client: Client,
    namespace: str,
    doors: AccessControl | None = None,
    *,
    home: str = "",
    trainers: str = DEFAULT_ADDRESS,
    metrics: Metrics | None = None,
    max_capacity: int = 64,
    now: Callable[[], datetime] = utc_now,
    clock: Callable[[], float] = loop_time,
) -> AsyncIterator[Replica]:
    """A replica with its caches, but without ports."""
    metrics = metrics or Metrics()
    cached = make_caches(client, namespace)
    events = EventRecorder(client, "vmafx-controller", "test")
    sessions = Sessions(await signing_key(client, namespace or home))
    parts = ServicerParts(
        access=doors or InsecureAccess(),
        sessions=sessions,
        jobs=ClientJobs(client, cached),
        registry=AgentRegistry(client, cached, sessions, max_capacity, now),
        dispatcher=WorkDispatcher(client, cached, now, clock),
        results=ResultRecorder(client, cached, events, metrics, now),
        samples=SampleForwarder(cached, SampleKeys(client), trainers, metrics, clock),
        streams=JobStreams(client),
        default_namespace=namespace or home,
        only_namespace=namespace,
    )
    manager = Manager(metrics, probes=None, metrics_at=None, election=None)
    for informer in cached:
        manager.add_informer(informer)
    manager.in_background(events.run)
    stop, ready = asyncio.Event(), asyncio.Event()

    async def started() -> None:
        ready.set()

    manager.while_leading(started)
    running = asyncio.create_task(manager.run(stop))
    try:
        await ready.wait()
        limited = AgentCalls(parts.registry).wrap(ControllerCallLimits(parts.access).wrap(ControllerServicer(parts)))
        measured = CallMetrics(grpc_server.CONTROLLER, metrics.registry).wrap(limited)
        yield Replica(measured, parts.access, parts.dispatcher)
    finally:
        stop.set()
        await running


@asynccontextmanager
async def controller_stub(port: int) -> AsyncIterator[VmafxControllerStub]:
    async with grpc.aio.insecure_channel(f"{LOCAL}:{port}", [("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield VmafxControllerStub(channel)


@asynccontextmanager
async def controller_ports(client: Client, namespace: str, **options: Any) -> AsyncIterator[tuple[int, str]]:
    """Run one replica; yields its gRPC port and the URL of its HTTP port."""
    async with controller_replica(client, namespace, **options) as replica:
        site = http_server.site(replica.servicer, {})
        async with (
            server.serve_http(ListenAddress(LOCAL, 0), site, None) as http,
            grpc_server.serve_grpc(
                ListenAddress(LOCAL, 0), None, replica.servicer, replica.access, Metrics(), 0.0
            ) as at,
        ):
            try:
                yield at, f"http://{LOCAL}:{http}"
            finally:
                replica.dispatcher.close()


class Agent:
    """A simulated agent that makes single calls with results set by the test."""

    def __init__(
        self, stub: VmafxControllerStub, name: str, capacity: int = 1, vendor: str = "cpu", token: str = ""
    ) -> None:
        self._stub, self.name, self.token = stub, name, token
        self._capability = wire.NodeCapability(gpu_vendor=vendor, concurrency=capacity)
        self.running: dict[str, str] = {}
        self.me: dict[str, Any] = {}
        self.node_capacity = 0

    def _credentials(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self.token}"),) if self.token else ()

    async def register(self, **more: Any) -> wire.RegisterNodeResponse:
        fields = {"name": self.name, "capability": self._capability, **more}
        session = await self._stub.RegisterNode(wire.RegisterNodeRequest(**fields), metadata=self._credentials())
        self.me = {"node_id": session.node_id, "session_token": session.session_token}
        self.node_capacity = session.capacity
        return session

    def _running(self) -> wire.RunningJobs:
        return wire.RunningJobs(jobs=[wire.RunningJob(id=one, name=name) for one, name in self.running.items()])

    async def beat(self, *, draining: bool = False) -> wire.HeartbeatResponse:
        return await self._stub.Heartbeat(
            wire.HeartbeatRequest(**self.me, running_job_ids=self._running(), draining=draining),
            metadata=self._credentials(),
        )

    async def pull(self, wait: int = 60) -> wire.PullWorkResponse:
        answer = await self._stub.PullWork(
            wire.PullWorkRequest(
                **self.me, capability=self._capability, running_job_ids=self._running(), wait_seconds=wait
            ),
            metadata=self._credentials(),
        )
        if answer.HasField("job"):
            self.running[answer.job.id] = answer.job.name
        return answer

    async def report(self, attempt: str, **more: Any) -> bool:
        name = self.running.get(attempt, "")
        answer = await self._stub.ReportResult(
            wire.ReportResultRequest(**self.me, job_id=attempt, **{"name": name} | more), metadata=self._credentials()
        )
        return answer.ok

    async def scored(self, attempt: str, score: float = 90.0) -> bool:
        ok = await self.report(attempt, final=True, answer=f'{{"id": "{attempt}", "score": {score}, "frames": 6}}')
        self.running.pop(attempt, None)
        return ok
