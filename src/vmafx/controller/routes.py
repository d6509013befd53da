"""Which call of the service stands where in HTTP: the one list that the server and its description are made from."""

from collections.abc import AsyncGenerator
from typing import NamedTuple, Protocol

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from vmafx.auth.credentials import CallerCredentials
from vmafx.wire import controller_pb2 as wire

SERVICE = wire.DESCRIPTOR.services_by_name["VmafxController"]


class Servicer(Protocol):
    """What answers. One method for each call of the wire; it says no by Refused."""

    async def SubmitJob(self, asked: wire.SubmitJobRequest, shown: CallerCredentials, /) -> wire.SubmitJobResponse: ...
    async def GetJob(self, asked: wire.GetJobRequest, shown: CallerCredentials, /) -> wire.Job: ...
    async def CancelJob(self, asked: wire.CancelJobRequest, shown: CallerCredentials, /) -> wire.CancelJobResponse: ...
    def StreamJobs(self, asked: wire.StreamJobsRequest, shown: CallerCredentials, /) -> AsyncGenerator[wire.Job]: ...
    async def RegisterNode(
        self, asked: wire.RegisterNodeRequest, shown: CallerCredentials, /
    ) -> wire.RegisterNodeResponse: ...
    async def Heartbeat(self, asked: wire.HeartbeatRequest, shown: CallerCredentials, /) -> wire.HeartbeatResponse: ...
    async def PullWork(self, asked: wire.PullWorkRequest, shown: CallerCredentials, /) -> wire.PullWorkResponse: ...
    async def ReportResult(
        self, asked: wire.ReportResultRequest, shown: CallerCredentials, /
    ) -> wire.ReportResultResponse: ...


class CallRoute(NamedTuple):
    """`{name}` in the path is a field of the request. A POST has the rest in its body, a GET in its query."""

    method: str
    path: str
    call: str
    about: str
    status: int = 200
    location: str = ""  # where what was made is found, with fields of the answer

    @property
    def descriptor(self) -> MethodDescriptor:
        return SERVICE.methods_by_name[self.call]

    def request(self) -> Message:
        message: Message = getattr(wire, self.descriptor.input_type.name)()
        return message

    def query(self) -> dict[str, str]:
        """Parameters, and the fields that they fill."""
        if self.method != "GET":
            return {}
        fields = [one.name for one in self.descriptor.input_type.fields if f"{{{one.name}}}" not in self.path]
        return {ALIASES.get(name, name): name for name in fields}


ALIASES = {"status_filter": "status"}
# A node's id is `<namespace>/<name>`: in the path as it is, or with %2F.
PATTERNS = {"node_id": r"[^/]+(?:/[^/]+)?"}

ROUTES = (
    CallRoute("POST", "/v1/jobs", "SubmitJob", "Hand in a job.", 201, "/v1/jobs/{job_id}"),
    CallRoute("GET", "/v1/jobs", "StreamJobs", "All jobs, and each again as it changes: a JSON object a line."),
    CallRoute("GET", "/v1/jobs/{job_id}", "GetJob", "A job, by the id that it was handed in with."),
    CallRoute("POST", "/v1/jobs/{job_id}/cancel", "CancelJob", "Stop a job; it stays, as CANCELLED."),
    CallRoute("POST", "/v1/nodes", "RegisterNode", "For agents: begin a session."),
    CallRoute("POST", "/v1/nodes/{node_id}/heartbeat", "Heartbeat", "For agents: still here, about every 10 s."),
    CallRoute("POST", "/v1/nodes/{node_id}/pull", "PullWork", "For agents: fetch a job, or wait for one."),
    CallRoute(
        "POST", "/v1/nodes/{node_id}/results", "ReportResult", "For agents: how far a job is, or what came of it."
    ),
)
