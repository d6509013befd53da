"""Compatibility with existing clients and agents: the same names, numbers, types and bytes."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from tests.support.old_client import OldProtocol, compile_old_protocol
from vmafx.wire import controller_pb2 as wire
from vmafx.wire import controller_pb2_grpc as calls

FIRST_NEW_NUMBER = 100  # fields that vmafx added to the original service


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> OldProtocol:
    return compile_old_protocol(tmp_path_factory.mktemp("spoken"))


def current() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto()
    wire.DESCRIPTOR.CopyToProto(file)
    return file


def shape(message: descriptor_pb2.DescriptorProto) -> dict[int, tuple[Any, ...]]:
    """Each field's number with its name, type and label; a map field includes the shape of its entries."""
    entries = {one.name: shape(one) for one in message.nested_type}
    return {
        field.number: (field.name, field.type, field.label, field.type_name, field.proto3_optional,
                       entries.get(field.type_name.rpartition(".")[2]))
        for field in message.field
        if field.number < FIRST_NEW_NUMBER
    }  # fmt: skip


def test_messages_have_the_original_fields(spoken: OldProtocol) -> None:
    original = {one.name: shape(one) for one in spoken.file.message_type}
    assert {one.name: shape(one) for one in current().message_type if one.name in original} == original


def test_job_states_have_the_original_numbers(spoken: OldProtocol) -> None:
    for file in (spoken.file, current()):
        (states,) = file.enum_type
        assert (states.name, [(one.number, one.name) for one in states.value]) == (
            "JobStatus",
            [(0, "PENDING"), (1, "RUNNING"), (2, "COMPLETED"), (3, "FAILED"), (4, "CANCELLED")],
        )


def test_calls_have_the_original_types(spoken: OldProtocol) -> None:
    def methods(file: descriptor_pb2.FileDescriptorProto) -> dict[str, tuple[Any, ...]]:
        (service,) = file.service
        return {
            f"/{file.package}.{service.name}/{one.name}": (
                one.input_type, one.output_type, one.client_streaming, one.server_streaming,
            )
            for one in service.method
        }  # fmt: skip

    original, now = methods(spoken.file), methods(current())
    assert {path: now.get(path) for path in original} == original
    assert "/vmafx.controller.v1.VmafxController/GetJob" in now


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
def test_messages_serialize_to_the_original_bytes(
    spoken: OldProtocol, job: dict[str, Any], capability: dict[str, Any], result: dict[str, Any], states: list[int]
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
        original = spoken.message(name)(**fields).SerializeToString(deterministic=True)
        kind: type[Message] = getattr(wire, name)
        assert kind(**fields).SerializeToString(deterministic=True) == original
        assert kind.FromString(original).SerializeToString(deterministic=True) == original


class Server(calls.VmafxControllerServicer):
    """A minimal controller."""

    async def GetJob(self, request: wire.GetJobRequest, _context: object) -> wire.Job:  # noqa: N802
        return wire.Job(id=request.job_id, status=wire.COMPLETED, final_score=93.25, partial_results=[1.5, 2.5])

    async def StreamJobs(  # noqa: N802
        self, request: wire.StreamJobsRequest, _context: object
    ) -> AsyncIterator[wire.Job]:
        for state in request.status_filter:
            yield wire.Job(id="one", status=state)


async def test_an_old_client_is_served(spoken: OldProtocol, tmp_path: Path) -> None:
    server, address = grpc.aio.server(), f"unix:{tmp_path}/socket"
    calls.add_VmafxControllerServicer_to_server(Server(), server)  # type: ignore[abstract]
    server.add_insecure_port(address)
    await server.start()
    path, message = "/vmafx.controller.v1.VmafxController", spoken.message("Job")
    one, many = spoken.message("GetJobRequest"), spoken.message("StreamJobsRequest")
    reply: Any
    try:
        async with grpc.aio.insecure_channel(address) as channel:
            get = channel.unary_unary(f"{path}/GetJob", one.SerializeToString, message.FromString)
            reply = await get(one(job_id="j-1"), timeout=60)
            assert (reply.id, reply.status, reply.final_score, list(reply.partial_results)) == (
                "j-1",
                2,
                93.25,
                [1.5, 2.5],
            )
            stream = channel.unary_stream(f"{path}/StreamJobs", many.SerializeToString, message.FromString)
            reply = [job async for job in stream(many(status_filter=[1, 4]), timeout=60)]
            assert [job.status for job in reply] == [1, 4]
    finally:
        await server.stop(None)
