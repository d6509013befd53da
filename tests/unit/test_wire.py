"""Those who already speak to a controller are understood: the same names, numbers, types and bytes."""

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from vmafx.wire import controller_pb2 as wire
from vmafx.wire import controller_pb2_grpc as calls

OURS_FROM = 100  # fields with these numbers and above are ours to add
SPOKEN = """
syntax = "proto3";
package vmafx.controller.v1;
enum JobStatus { PENDING = 0; RUNNING = 1; COMPLETED = 2; FAILED = 3; CANCELLED = 4; }
message ScoringParams { string reference = 1; string distorted = 2; string model = 3; string backend = 4; }
message Job {
  string id = 1; JobStatus status = 2; ScoringParams scoring = 3; repeated double partial_results = 4;
  string assigned_node = 5; string error = 6; int64 created_at = 7; int64 updated_at = 8; double final_score = 9;
}
message NodeCapability { string gpu_vendor = 1; repeated string backends = 2; int32 concurrency = 3; }
message SubmitJobRequest { ScoringParams scoring = 1; }
message SubmitJobResponse { string job_id = 1; }
message GetJobRequest { string job_id = 1; }
message CancelJobRequest { string job_id = 1; }
message CancelJobResponse { bool ok = 1; string message = 2; }
message StreamJobsRequest { repeated JobStatus status_filter = 1; }
message RegisterNodeRequest { string name = 1; NodeCapability capability = 2; }
message RegisterNodeResponse { string node_id = 1; string session_token = 2; }
message HeartbeatRequest { string node_id = 1; string session_token = 2; int32 jobs_running = 3; }
message HeartbeatResponse { bool ok = 1; }
message PullWorkRequest { string node_id = 1; string session_token = 2; NodeCapability capability = 3; }
message PullWorkResponse { Job job = 1; }
message ReportResultRequest {
  string node_id = 1; string session_token = 2; string job_id = 3; bool final = 4; double score = 5;
  map<string, double> features = 6; repeated double partial_scores = 7; string error = 8;
}
message ReportResultResponse { bool ok = 1; }
service VmafxController {
  rpc SubmitJob(SubmitJobRequest) returns (SubmitJobResponse);
  rpc GetJob(GetJobRequest) returns (Job);
  rpc CancelJob(CancelJobRequest) returns (CancelJobResponse);
  rpc StreamJobs(StreamJobsRequest) returns (stream Job);
  rpc RegisterNode(RegisterNodeRequest) returns (RegisterNodeResponse);
  rpc Heartbeat(HeartbeatRequest) returns (HeartbeatResponse);
  rpc PullWork(PullWorkRequest) returns (PullWorkResponse);
  rpc ReportResult(ReportResultRequest) returns (ReportResultResponse);
}
"""


class Spoken:
    """The messages as an old client has them, in a pool of their own: two of a name cannot be in one."""

    def __init__(self, file: descriptor_pb2.FileDescriptorProto) -> None:
        self.file, self._pool = file, DescriptorPool()
        self._pool.Add(file)

    def message(self, name: str) -> type[Message]:
        return message_factory.GetMessageClass(self._pool.FindMessageTypeByName(f"vmafx.controller.v1.{name}"))


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> Spoken:
    folder = tmp_path_factory.mktemp("spoken")
    (folder / "old.proto").write_text(SPOKEN)
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", f"--descriptor_set_out={folder}/old.bin"]
    subprocess.run([*command, "old.proto"], check=True)
    (file,) = descriptor_pb2.FileDescriptorSet.FromString((folder / "old.bin").read_bytes()).file
    return Spoken(file)


def ours() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto()
    wire.DESCRIPTOR.CopyToProto(file)
    return file


def shape(message: descriptor_pb2.DescriptorProto) -> dict[int, tuple[Any, ...]]:
    """Each field's number, with its name, type and label; those of a map's entries under the map's own number."""
    entries = {one.name: shape(one) for one in message.nested_type}
    return {
        field.number: (field.name, field.type, field.label, field.type_name, field.proto3_optional,
                       entries.get(field.type_name.rpartition(".")[2]))
        for field in message.field
        if field.number < OURS_FROM
    }  # fmt: skip


def test_messages_and_fields(spoken: Spoken) -> None:
    theirs = {one.name: shape(one) for one in spoken.file.message_type}
    assert {one.name: shape(one) for one in ours().message_type if one.name in theirs} == theirs


def test_states(spoken: Spoken) -> None:
    for file in (spoken.file, ours()):
        (states,) = file.enum_type
        assert (states.name, [(one.number, one.name) for one in states.value]) == (
            "JobStatus",
            [(0, "PENDING"), (1, "RUNNING"), (2, "COMPLETED"), (3, "FAILED"), (4, "CANCELLED")],
        )


def test_calls(spoken: Spoken) -> None:
    def of(file: descriptor_pb2.FileDescriptorProto) -> dict[str, tuple[Any, ...]]:
        (service,) = file.service
        return {
            f"/{file.package}.{service.name}/{one.name}": (
                one.input_type, one.output_type, one.client_streaming, one.server_streaming,
            )
            for one in service.method
        }  # fmt: skip

    theirs, here = of(spoken.file), of(ours())
    assert {path: here.get(path) for path in theirs} == theirs
    assert "/vmafx.controller.v1.VmafxController/GetJob" in here


TEXT = st.text(max_size=20)
DOUBLES = st.floats(allow_nan=False)
INT64 = st.integers(-(2**63), 2**63 - 1)
SCORING = st.fixed_dictionaries(dict.fromkeys(("reference", "distorted", "model", "backend"), TEXT))
JOBS = st.fixed_dictionaries(
    {
        "id": TEXT, "status": st.integers(0, 4), "partial_results": st.lists(DOUBLES), "assigned_node": TEXT,
        "error": TEXT, "created_at": INT64, "updated_at": INT64, "final_score": DOUBLES,
    },
    optional={"scoring": SCORING},
)  # fmt: skip
CAPABILITY = st.fixed_dictionaries(
    {"gpu_vendor": TEXT, "backends": st.lists(TEXT), "concurrency": st.integers(-(2**31), 2**31 - 1)}
)
RESULTS = st.fixed_dictionaries(
    {"node_id": TEXT, "session_token": TEXT, "job_id": TEXT, "final": st.booleans(), "score": DOUBLES, "error": TEXT,
     "features": st.dictionaries(TEXT, DOUBLES, max_size=1), "partial_scores": st.lists(DOUBLES)}
)  # fmt: skip


@given(job=JOBS, capability=CAPABILITY, result=RESULTS, states=st.lists(st.integers(0, 4)))
def test_bytes(
    spoken: Spoken, job: dict[str, Any], capability: dict[str, Any], result: dict[str, Any], states: list[int]
) -> None:
    samples: dict[str, dict[str, Any]] = {
        "Job": job,
        "PullWorkResponse": {"job": job},
        "RegisterNodeRequest": {"name": "n", "capability": capability},
        "PullWorkRequest": {"node_id": "n", "session_token": "t", "capability": capability},
        "HeartbeatRequest": {"node_id": "n", "session_token": "t", "jobs_running": capability["concurrency"]},
        "ReportResultRequest": result,
        "StreamJobsRequest": {"status_filter": states},
        "CancelJobResponse": {"ok": result["final"], "message": result["error"]},
    }
    for name, fields in samples.items():
        theirs = spoken.message(name)(**fields).SerializeToString(deterministic=True)
        kind: type[Message] = getattr(wire, name)
        assert kind(**fields).SerializeToString(deterministic=True) == theirs
        assert kind.FromString(theirs).SerializeToString(deterministic=True) == theirs


class Server(calls.VmafxControllerServicer):
    """Enough of a controller to be spoken to."""

    async def GetJob(self, request: wire.GetJobRequest, _context: object) -> wire.Job:  # noqa: N802
        return wire.Job(id=request.job_id, status=wire.COMPLETED, final_score=93.25, partial_results=[1.5, 2.5])

    async def StreamJobs(  # noqa: N802
        self, request: wire.StreamJobsRequest, _context: object
    ) -> AsyncIterator[wire.Job]:
        for state in request.status_filter:
            yield wire.Job(id="one", status=state)


async def test_an_old_client_is_served(spoken: Spoken, tmp_path: Path) -> None:
    server, address = grpc.aio.server(), f"unix:{tmp_path}/socket"
    calls.add_VmafxControllerServicer_to_server(Server(), server)  # type: ignore[abstract]
    server.add_insecure_port(address)
    await server.start()
    path, job = "/vmafx.controller.v1.VmafxController", spoken.message("Job")
    one, many = spoken.message("GetJobRequest"), spoken.message("StreamJobsRequest")
    told: Any
    try:
        async with grpc.aio.insecure_channel(address) as channel:
            get = channel.unary_unary(f"{path}/GetJob", one.SerializeToString, job.FromString)
            told = await get(one(job_id="j-1"), timeout=10)
            assert (told.id, told.status, told.final_score, list(told.partial_results)) == ("j-1", 2, 93.25, [1.5, 2.5])
            stream = channel.unary_stream(f"{path}/StreamJobs", many.SerializeToString, job.FromString)
            told = [each async for each in stream(many(status_filter=[1, 4]), timeout=10)]
            assert [each.status for each in told] == [1, 4]
    finally:
        await server.stop(None)
