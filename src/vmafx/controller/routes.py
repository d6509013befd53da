"""The HTTP routes of the service's calls; the HTTP server and the OpenAPI document are both built from this list."""

from collections.abc import AsyncGenerator
from typing import NamedTuple, Protocol

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from vmafx.auth.credentials import CallerCredentials
from vmafx.wire import controller_pb2 as wire

SERVICE = wire.DESCRIPTOR.services_by_name["VmafxController"]
QUERY_NAMES = {"status_filter": "status"}  # where a query parameter is not called as its field
# A node's id is `<namespace>/<name>`; in a path, the slash is written as it is or as %2F.
PATTERNS = {"node_id": r"[^/]+(?:/[^/]+)?"}


class Servicer(Protocol):
    """One method for each call of the service; a failed call raises StatusError."""

    async def SubmitJob(
        self, request: wire.SubmitJobRequest, credentials: CallerCredentials, /
    ) -> wire.SubmitJobResponse: ...
    async def GetJob(self, request: wire.GetJobRequest, credentials: CallerCredentials, /) -> wire.Job: ...
    async def CancelJob(
        self, request: wire.CancelJobRequest, credentials: CallerCredentials, /
    ) -> wire.CancelJobResponse: ...
    def StreamJobs(
        self, request: wire.StreamJobsRequest, credentials: CallerCredentials, /
    ) -> AsyncGenerator[wire.Job]: ...
    async def ListJobs(
        self, request: wire.ListJobsRequest, credentials: CallerCredentials, /
    ) -> wire.ListJobsResponse: ...
    async def RegisterNode(
        self, request: wire.RegisterNodeRequest, credentials: CallerCredentials, /
    ) -> wire.RegisterNodeResponse: ...
    async def Heartbeat(
        self, request: wire.HeartbeatRequest, credentials: CallerCredentials, /
    ) -> wire.HeartbeatResponse: ...
    async def PullWork(
        self, request: wire.PullWorkRequest, credentials: CallerCredentials, /
    ) -> wire.PullWorkResponse: ...
    async def ReportResult(
        self, request: wire.ReportResultRequest, credentials: CallerCredentials, /
    ) -> wire.ReportResultResponse: ...
    async def PushSamples(
        self, request: wire.PushSamplesRequest, credentials: CallerCredentials, /
    ) -> wire.PushSamplesResponse: ...


class CallRoute(NamedTuple):
    """`{name}` in the path is a field of the request. A POST has the other fields in its body, a GET in its query."""

    method: str
    path: str
    call: str
    summary: str
    status: int = 200
    location: str = ""  # template of the Location header, with fields of the reply
    anonymous: bool = False  # credentials are optional, since the request has a token of its own
    list_call: str = ""  # of a stream: the call for requests that want one page of a list instead

    def as_list(self) -> "CallRoute":
        """The same path for requests that want a list."""
        return self._replace(call=self.list_call, list_call="")

    @property
    def descriptor(self) -> MethodDescriptor:
        return SERVICE.methods_by_name[self.call]

    def request(self) -> Message:
        message: Message = getattr(wire, self.descriptor.input_type.name)()
        return message

    def query_fields(self) -> dict[str, str]:
        """The field of each query parameter."""
        if self.method != "GET":
            return {}
        fields = [field.name for field in self.descriptor.input_type.fields if f"{{{field.name}}}" not in self.path]
        return {QUERY_NAMES.get(name, name): name for name in fields}


ROUTES = (
    CallRoute("POST", "/v1/jobs", "SubmitJob", "Submit a job.", 201, "/v1/jobs/{job_id}?namespace={namespace}"),
    CallRoute(
        "GET",
        "/v1/jobs",
        "StreamJobs",
        "Stream all jobs, and each again when it changes, one object per line; or list them page by page.",
        list_call="ListJobs",
    ),
    CallRoute("GET", "/v1/jobs/{job_id}", "GetJob", "Get a job by the ID from its submission."),
    CallRoute("POST", "/v1/jobs/{job_id}/cancel", "CancelJob", "Cancel a job; it is kept, as CANCELLED."),
    CallRoute("POST", "/v1/nodes", "RegisterNode", "For agents: register and start a session."),
    CallRoute("POST", "/v1/nodes/{node_id}/heartbeat", "Heartbeat", "For agents: send a heartbeat, every 10 s."),
    CallRoute("POST", "/v1/nodes/{node_id}/pull", "PullWork", "For agents: pull a job, or wait for one."),
    CallRoute(
        "POST", "/v1/nodes/{node_id}/results", "ReportResult", "For agents: report the progress or result of a job."
    ),
    CallRoute(
        "POST",
        "/v1/samples",
        "PushSamples",
        "For agents and worker Pods: push the samples of an attempt.",
        anonymous=True,
    ),
)
