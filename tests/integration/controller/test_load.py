"""The controller process and callers who are too many, or too slow: what they cost, and who is served all the same."""

import asyncio
import re
import time
from base64 import urlsafe_b64encode
from pathlib import Path

import grpc
import pytest

from tests.conftest import Kubectl
from tests.support.fleet import submit
from tests.support.inprocess_controller import controller_stub
from tests.support.machines import ControllerProcess, controllers
from tests.support.replica_proxy import ReplicaProxy
from tests.support.tokens import create_account, service_account_token
from tests.support.waiting import eventually
from vmafx.auth.access import FAILURE_DECAY, MAX_FAILURES
from vmafx.auth.reviews import AUDIENCE, MAX_CONCURRENT
from vmafx.devcluster import DevCluster
from vmafx.kube import JOBS, Client, ObjectKey
from vmafx.wire import controller_pb2 as wire
from vmafx.wire.controller_pb2_grpc import VmafxControllerStub

READERS, JOBS_THERE, FIRST, CHANGES = 20, 20, 80, 200
LENGTH = 30_000  # characters in each change: many bytes by few writes
SPARE = 16 << 20  # bytes: after the first changes, one reader alone gets more than 3 MB, all of them more than 70

Stream = grpc.aio.UnaryStreamCall[wire.StreamJobsRequest, wire.Job]


async def change(client: Client, keys: list[ObjectKey], first: int, last: int) -> None:
    """Write so many versions, each with another message."""
    turns = asyncio.Semaphore(16)

    async def write(number: int) -> None:
        async with turns:
            said = f"{number} ".ljust(LENGTH, "x")
            await client.patch_status(JOBS, keys[number % len(keys)], {"phase": "Failed", "message": said})

    await asyncio.gather(*(write(number) for number in range(first, last)))


async def followed(stub: VmafxControllerStub, count: int) -> Stream:
    """A stream that has shown what there is."""
    stream = stub.StreamJobs(wire.StreamJobsRequest())
    for _ in range(count):
        await stream.read()
    return stream


async def test_who_does_not_read_costs_nothing(
    cluster: DevCluster, client: Client, namespace: str, tmp_path: Path
) -> None:
    keys = [await submit(client, namespace, f"job-{one}", tmp_path) for one in range(JOBS_THERE)]
    with controllers(cluster, namespace, tmp_path) as (controller,):
        await controller.ready()
        async with controller_stub(controller.grpc) as stub:
            reader, *streams = [await followed(stub, JOBS_THERE) for _ in range(1 + READERS)]
            await change(client, keys, 0, FIRST)  # fills what buffers there are
            await catches_up(reader, client, keys[0], "the first")  # so that the controller has seen to the others too
            before = controller.resident()
            await change(client, keys, FIRST, CHANGES)
            await catches_up(reader, client, keys[0], "the last but one")
            assert controller.resident() - before < SPARE
            asked = wire.GetJobRequest(job_id=(await client.get(JOBS, keys[0])).metadata.uid)
            assert (await stub.GetJob(asked)).name == keys[0].name  # others are served
            await catches_up(streams[0], client, keys[0], "the last")
            assert controller.resident() - before < SPARE
            for stream in (reader, *streams):
                stream.cancel()


async def catches_up(stream: Stream, client: Client, key: ObjectKey, message: str) -> None:
    """It reads on at last, and hears of what happens now."""
    await client.patch_status(JOBS, key, {"message": message})
    async with asyncio.timeout(120):
        while True:
            job = await stream.read()
            assert isinstance(job, wire.Job)
            if job.name == key.name and job.error == message:
                return


def made_up(number: int) -> str:
    """What only the server can tell from a token."""
    parts = (b'{"alg":"ES256"}', b'{"n":%d}' % number, b"signature")
    return ".".join(urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


def reviewed(kubectl: Kubectl) -> int:
    """How many tokens the API server was ever asked about."""
    said = kubectl("get", "--raw", "/metrics").stdout
    counts = re.findall(r'^apiserver_request_total\{.*resource="tokenreviews".*\} (\S+)$', said, re.MULTILINE)
    return int(sum(map(float, counts)))


async def may_speak(client: Client, kubectl: Kubectl, namespace: str) -> str:
    """The token of an agent that may."""
    await create_account(client, ObjectKey(namespace, "agent"))
    role = ["--verb=patch", "--resource=vmafxnodes.vmafx.dev/status", "--resource-name=ours"]
    assert kubectl("create", "role", "agent", *role).returncode == 0
    bound = kubectl("create", "rolebinding", "agent", "--role=agent", f"--serviceaccount={namespace}:agent")
    assert bound.returncode == 0
    may = ("auth", "can-i", "patch", "vmafxnodes.vmafx.dev/ours", "--subresource=status")
    who = f"--as=system:serviceaccount:{namespace}:agent"
    await eventually(lambda: kubectl(*may, who).stdout == "yes\n", "the server has seen the binding")
    return await service_account_token(client, ObjectKey(namespace, "agent"), AUDIENCE)


async def test_a_flood_of_bad_tokens_reaches_nobody(
    cluster: DevCluster, client: Client, namespace: str, kubectl: Kubectl, tmp_path: Path
) -> None:
    token = await may_speak(client, kubectl, namespace)
    before, flood, served, began = reviewed(kubectl), 3000, 0, time.monotonic()
    with controllers(cluster, namespace, tmp_path, "--auth", "token") as (controller,):
        await controller.ready()
        flooding = asyncio.create_task(refusals(controller, flood))
        async with (
            ReplicaProxy(controller.grpc, source="127.0.0.3") as elsewhere,
            controller_stub(elsewhere.port) as stub,
        ):
            me = (("authorization", f"Bearer {token}"),)

            async def registered() -> bool:
                try:
                    await stub.RegisterNode(wire.RegisterNodeRequest(name="ours"), metadata=me)
                except grpc.aio.AioRpcError as error:
                    if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:  # its turn did not come in time
                        raise
                    return False
                return True

            await eventually(registered, "a good caller is served")
            while not flooding.done():
                await stub.RegisterNode(wire.RegisterNodeRequest(name="ours"), metadata=me)
                served += 1
        refused = await flooding
    assert served > 0
    assert sum(refused.values()) == flood
    assert set(refused) <= {"UNAUTHENTICATED", "RESOURCE_EXHAUSTED"}
    asked = reviewed(kubectl) - before
    forgiven = (time.monotonic() - began) / FAILURE_DECAY
    assert 1 < asked < MAX_FAILURES + MAX_CONCURRENT + 5 + forgiven


async def refusals(controller: ControllerProcess, count: int) -> dict[str, int]:
    """Calls with tokens that are all made up, many at once, and how they were refused."""
    codes: dict[str, int] = {}
    turns = asyncio.Semaphore(64)
    async with controller_stub(controller.grpc) as stub:

        async def call(number: int) -> None:
            me = (("authorization", f"Bearer {made_up(number)}"),)
            async with turns:
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await stub.RegisterNode(wire.RegisterNodeRequest(name="ours"), metadata=me)
            codes[error.value.code().name] = codes.get(error.value.code().name, 0) + 1

        await asyncio.gather(*map(call, range(count)))
    return codes
