"""The controller process under load: streams that are not read, and floods of invalid tokens and of idle calls."""

import asyncio
import re
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.conftest import Kubectl
from tests.support.fleet import add_node, submit
from tests.support.floods import invalid_token
from tests.support.inprocess_controller import controller_stub
from tests.support.machines import ControllerProcess, controllers
from tests.support.replica_proxy import ReplicaProxy
from tests.support.tokens import create_account, service_account_token
from tests.support.waiting import eventually
from vmafx.auth.access import MAX_FAILURES, TOKEN_FAILURE_DECAY
from vmafx.auth.reviews import AUDIENCE, MAX_UNKNOWN
from vmafx.devcluster import DevCluster
from vmafx.kube import JOBS, Client, ObjectKey
from vmafx.wire import controller_pb2 as wire
from vmafx.wire.controller_pb2_grpc import VmafxControllerStub

UNREAD_STREAMS, JOB_COUNT = 20, 20
FIRST, CHANGES = 120, 360  # writes before the memory is measured, and in all
LENGTH = 30_000  # characters in each change: many bytes with few writes
MAX_GROWTH = 32 << 20  # bytes; the remaining changes are 7 MB for one stream, and 140 MB for all

Stream = grpc.aio.UnaryStreamCall[wire.StreamJobsRequest, wire.Job]


async def change(client: Client, keys: list[ObjectKey], first: int, last: int) -> None:
    """Write the status of the jobs in turn, each time with another message."""
    concurrency = asyncio.Semaphore(16)

    async def write(number: int) -> None:
        async with concurrency:
            message = f"{number} ".ljust(LENGTH, "x")
            await client.patch_status(JOBS, keys[number % len(keys)], {"phase": "Failed", "message": message})

    await asyncio.gather(*(write(number) for number in range(first, last)))


async def open_stream(stub: VmafxControllerStub, count: int) -> Stream:
    """A stream that has sent all existing jobs."""
    stream = stub.StreamJobs(wire.StreamJobsRequest())
    for _ in range(count):
        await stream.read()
    return stream


async def test_streams_that_are_not_read_take_no_memory(
    cluster: DevCluster, client: Client, namespace: str, tmp_path: Path
) -> None:
    keys = [await submit(client, namespace, f"job-{one}", tmp_path) for one in range(JOB_COUNT)]
    with controllers(cluster, namespace, tmp_path) as (controller,):
        await controller.ready()
        async with controller_stub(controller.grpc) as stub:
            reader, *streams = [await open_stream(stub, JOB_COUNT) for _ in range(1 + UNREAD_STREAMS)]
            await change(client, keys, 0, FIRST)  # fills the socket buffers
            await read_until(reader, client, keys[0], "the first")  # the controller has sent them to all streams
            before = controller.resident()
            await change(client, keys, FIRST, CHANGES)
            await read_until(reader, client, keys[0], "the last but one")
            assert controller.resident() - before < MAX_GROWTH
            request = wire.GetJobRequest(job_id=(await client.get(JOBS, keys[0])).metadata.uid)
            assert (await stub.GetJob(request)).name == keys[0].name  # other calls are served
            await read_until(streams[0], client, keys[0], "the last")
            assert controller.resident() - before < MAX_GROWTH
            for stream in (reader, *streams):
                stream.cancel()


async def read_until(stream: Stream, client: Client, key: ObjectKey, message: str) -> None:
    """Write a message, and read the stream until it arrives."""
    await client.patch_status(JOBS, key, {"message": message})
    async with asyncio.timeout(120):
        while True:
            job = await stream.read()
            assert isinstance(job, wire.Job)
            if job.name == key.name and job.error == message:
                return


def token_review_count(kubectl: Kubectl) -> int:
    """The TokenReviews that the API server has served."""
    metrics = kubectl("get", "--raw", "/metrics").stdout
    counts = re.findall(r'^apiserver_request_total\{.*resource="tokenreviews".*\} (\S+)$', metrics, re.MULTILINE)
    return int(sum(map(float, counts)))


async def authorized_agent_token(client: Client, kubectl: Kubectl, namespace: str) -> str:
    """The token of an agent that may register the node `own-node`."""
    await create_account(client, ObjectKey(namespace, "agent"))
    await add_node(client, namespace, "own-node", runtime="Agent")
    role = ["--verb=patch", "--resource=vmafxnodes.vmafx.dev/status", "--resource-name=own-node"]
    assert kubectl("create", "role", "agent", *role).returncode == 0
    bound = kubectl("create", "rolebinding", "agent", "--role=agent", f"--serviceaccount={namespace}:agent")
    assert bound.returncode == 0
    can_i = ("auth", "can-i", "patch", "vmafxnodes.vmafx.dev/own-node", "--subresource=status")
    account = f"--as=system:serviceaccount:{namespace}:agent"
    await eventually(lambda: kubectl(*can_i, account).stdout == "yes\n", "the server has seen the binding")
    return await service_account_token(client, ObjectKey(namespace, "agent"), AUDIENCE)


async def test_a_flood_of_invalid_tokens_blocks_neither_the_api_server_nor_other_callers(
    cluster: DevCluster, client: Client, namespace: str, kubectl: Kubectl, tmp_path: Path
) -> None:
    token = await authorized_agent_token(client, kubectl, namespace)
    before, flood, served, started = token_review_count(kubectl), 3000, 0, time.monotonic()
    with controllers(cluster, namespace, tmp_path, "--auth", "token") as (controller,):
        await controller.ready()
        flooding = asyncio.create_task(flood_with_invalid_tokens(controller, flood))
        async with (
            ReplicaProxy(controller.grpc, source="127.0.0.3") as elsewhere,
            controller_stub(elsewhere.port) as stub,
        ):
            metadata = (("authorization", f"Bearer {token}"),)

            async def registered() -> bool:
                try:
                    await stub.RegisterNode(wire.RegisterNodeRequest(name="own-node"), metadata=metadata)
                except grpc.aio.AioRpcError as error:
                    if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:  # its review did not start in time
                        raise
                    return False
                return True

            await eventually(registered, "a valid caller is served")
            while not flooding.done():
                await stub.RegisterNode(wire.RegisterNodeRequest(name="own-node"), metadata=metadata)
                served += 1
        codes = await flooding
    assert served > 0
    assert sum(codes.values()) == flood
    assert set(codes) <= {"UNAUTHENTICATED", "RESOURCE_EXHAUSTED"}
    reviews = token_review_count(kubectl) - before
    expired = (time.monotonic() - started) / TOKEN_FAILURE_DECAY
    assert 1 < reviews < MAX_FAILURES + MAX_UNKNOWN + 5 + expired


async def flood_with_invalid_tokens(controller: ControllerProcess, count: int) -> dict[str, int]:
    """Make concurrent calls with invalid tokens, and count their status codes."""
    codes: dict[str, int] = {}
    concurrency = asyncio.Semaphore(64)
    async with controller_stub(controller.grpc) as stub:

        async def call(number: int) -> None:
            metadata = (("authorization", f"Bearer {invalid_token(number)}"),)
            async with concurrency:
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await stub.RegisterNode(wire.RegisterNodeRequest(name="own-node"), metadata=metadata)
            codes[error.value.code().name] = codes.get(error.value.code().name, 0) + 1

        await asyncio.gather(*map(call, range(count)))
    return codes


CONNECTIONS, CALLS = 42, 250  # more than 10,000 calls; a connection may have 256


async def open_idle_calls(port: int, stack: AsyncExitStack) -> list[Any]:
    """Calls without credentials on their own connection: watches of health, and calls whose message is not sent."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    channel = await stack.enter_async_context(grpc.aio.insecure_channel(f"127.0.0.1:{port}", options))
    health: Any = health_pb2_grpc.HealthStub(channel)
    watches = [health.Watch(health_pb2.HealthCheckRequest()) for _ in range(CALLS // 2)]
    path = "/vmafx.controller.v1.VmafxController"
    half_open: list[Any] = [channel.stream_unary(f"{path}/Heartbeat")() for _ in range(CALLS - len(watches))]
    await health.Check(health_pb2.HealthCheckRequest())  # sent last: the server has seen the others
    return [*watches, *half_open]


async def test_idle_calls_of_strangers_do_not_block_agents(
    cluster: DevCluster, client: Client, namespace: str, kubectl: Kubectl, tmp_path: Path
) -> None:
    metadata = (("authorization", f"Bearer {await authorized_agent_token(client, kubectl, namespace)}"),)
    with controllers(cluster, namespace, tmp_path, "--auth", "token") as (controller,):
        await controller.ready()
        async with AsyncExitStack() as stack, controller_stub(controller.grpc) as stub:
            session = await stub.RegisterNode(wire.RegisterNodeRequest(name="own-node"), metadata=metadata)
            me: dict[str, Any] = {"node_id": session.node_id, "session_token": session.session_token}
            calls = [call for _ in range(CONNECTIONS) for call in await open_idle_calls(controller.grpc, stack)]
            assert len(calls) > 10_000
            assert (await stub.Heartbeat(wire.HeartbeatRequest(**me), metadata=metadata)).ok
            pulled = await stub.PullWork(wire.PullWorkRequest(**me), metadata=metadata)
            assert not pulled.HasField("job")
            for call in calls:
                call.cancel()
