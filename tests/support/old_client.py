"""A client built from the original proto file, without the fields that vmafx added to it."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message

OLD_PROTO = """
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


class OldProtocol:
    """The messages of the original proto file, in their own descriptor pool: names must be unique in a pool."""

    def __init__(self, file: descriptor_pb2.FileDescriptorProto) -> None:
        self.file, self._pool = file, DescriptorPool()
        self._pool.Add(file)

    def message(self, name: str) -> type[Message]:
        return message_factory.GetMessageClass(self._pool.FindMessageTypeByName(f"vmafx.controller.v1.{name}"))


class OldClient:
    """Calls a controller with the original messages."""

    def __init__(self, protocol: OldProtocol, channel: grpc.aio.Channel) -> None:
        self._protocol, self._channel = protocol, channel

    async def call(self, method: str, **fields: Any) -> Any:
        return await self._call(method, "unary_unary", **fields)

    def stream(self, method: str, **fields: Any) -> Any:
        return self._call(method, "unary_stream", **fields)

    def _call(self, method: str, kind: str, **fields: Any) -> Any:
        (service,) = self._protocol.file.service
        (rpc,) = (one for one in service.method if one.name == method)
        request, response = (
            self._protocol.message(name.rpartition(".")[2]) for name in (rpc.input_type, rpc.output_type)
        )
        path = f"/{self._protocol.file.package}.{service.name}/{method}"
        return getattr(self._channel, kind)(path, request.SerializeToString, response.FromString)(request(**fields))


def compile_old_protocol(folder: Path) -> OldProtocol:
    (folder / "old.proto").write_text(OLD_PROTO)
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", f"--descriptor_set_out={folder}/old.bin"]
    subprocess.run([*command, "old.proto"], check=True)
    (file,) = descriptor_pb2.FileDescriptorSet.FromString((folder / "old.bin").read_bytes()).file
    return OldProtocol(file)
