"""Which agents may create their VmafxNode, and what they cannot choose, with real tokens and roles."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import pytest

from tests.support.inprocess_controller import Agent, controller_stub, running_controller
from tests.support.tokens import bearing, grant, service_account_token
from tests.support.waiting import eventually
from vmafx.api.meta import ObjectMeta
from vmafx.api.node import VmafxNode, VmafxNodeSpec
from vmafx.auth import access
from vmafx.auth.access import TokenAccess
from vmafx.auth.reviews import AUDIENCE
from vmafx.kube import NODES, Client, ObjectKey
from vmafx.kube.errors import Forbidden, NotFound
from vmafx.wire import controller_pb2 as wire
from vmafx.wire.controller_pb2_grpc import VmafxControllerStub

Register = Callable[..., Awaitable[wire.RegisterNodeResponse | str]]
ASKED = {"labels": {"gpu": "big"}, "capability": wire.NodeCapability(gpu_vendor="cpu", concurrency=500)}


def rule(resource: str, verb: str) -> dict[str, list[str]]:
    """What docs/agents.md grants: by the name of the node."""
    return {"apiGroups": ["vmafx.dev"], "resources": [resource], "verbs": [verb], "resourceNames": ["box"]}


@pytest.fixture
async def register(client: Client, namespace: str) -> AsyncIterator[Register]:
    """Register the node `box` with an account that has these rules; the reply, or the message of a denial."""
    at = 0.0
    async with (
        running_controller(client, namespace, TokenAccess(client, lambda: at)) as port,
        controller_stub(port) as stub,
    ):

        async def register(account: str, *rules: dict[str, list[str]], **more: Any) -> wire.RegisterNodeResponse | str:
            nonlocal at
            await grant(client, ObjectKey(namespace, account), *rules)
            token = await service_account_token(client, ObjectKey(namespace, account), AUDIENCE)
            replies: list[wire.RegisterNodeResponse | str] = []

            async def answered() -> bool:
                nonlocal at
                at += access.ALLOWED_TTL
                replies.append(await _register(stub, token, **more))
                return "vmafxnodes/status" not in str(replies[-1])

            await eventually(answered, "the API server has seen the binding: the status of the node may be patched")
            return replies[-1]

        yield register


async def _register(stub: VmafxControllerStub, token: str, **more: Any) -> wire.RegisterNodeResponse | str:
    request = wire.RegisterNodeRequest(**{"name": "box"} | more)
    try:
        return await stub.RegisterNode(request, metadata=(("authorization", f"Bearer {token}"),))
    except grpc.aio.AioRpcError as error:
        if error.code() != grpc.StatusCode.PERMISSION_DENIED:
            raise
        return error.details() or ""


async def test_an_agent_that_may_not_create_its_node_cannot_register_a_new_one(
    client: Client, namespace: str, register: Register
) -> None:
    denial = await register("box", rule("vmafxnodes/status", "patch"), **ASKED)
    assert denial == (
        f"'system:serviceaccount:{namespace}:box' may not create vmafxnodes 'box' in namespace '{namespace}', "
        "and this VmafxNode does not exist: create it, or grant the permission"
    )
    with pytest.raises(NotFound):
        await client.get(NODES, ObjectKey(namespace, "box"))


async def test_an_agent_that_may_create_its_node_registers_it_and_can_create_no_other(
    client: Client, namespace: str, register: Register
) -> None:
    rules = rule("vmafxnodes/status", "patch"), rule("vmafxnodes", "create")
    reply = await register("box", *rules, **ASKED)
    assert isinstance(reply, wire.RegisterNodeResponse), reply
    node = await client.get(NODES, ObjectKey(namespace, "box"))
    assert node.metadata.labels == {"gpu": "big", "vmafx.dev/registered-by": "agent"}
    token = await service_account_token(client, ObjectKey(namespace, "box"))
    async with Client(bearing(token, client.config)) as agent:
        for name in ("box", "other"):
            with pytest.raises(Forbidden):
                await agent.create(
                    NODES, VmafxNode(metadata=ObjectMeta(name=name), spec=VmafxNodeSpec("cpu")), namespace
                )


async def test_an_agent_cannot_change_a_node_that_an_administrator_created(
    client: Client, namespace: str, register: Register
) -> None:
    made = VmafxNode(
        metadata=ObjectMeta(name="box", labels={"rack": "a"}), spec=VmafxNodeSpec("cpu", capacity=2, runtime="Agent")
    )
    await client.create(NODES, made, namespace)
    reply = await register("box", rule("vmafxnodes/status", "patch"), **ASKED)
    assert isinstance(reply, wire.RegisterNodeResponse), reply
    assert (reply.capacity, reply.message) == (2, "")
    node = await client.get(NODES, ObjectKey(namespace, "box"))
    assert (node.metadata.labels, node.spec) == (made.metadata.labels, made.spec)
    assert node.status.agentSession


@pytest.mark.parametrize(("asked", "given"), [(1, 1), (8, 8), (9, 8), (2**31 - 1, 8)])
async def test_the_capacity_of_a_new_node_is_limited(client: Client, namespace: str, asked: int, given: int) -> None:
    """The registration is accepted: an agent with more slots than it gets jobs works as well."""
    async with running_controller(client, namespace, max_capacity=8) as port, controller_stub(port) as stub:
        agent = Agent(stub, "box", capacity=asked)
        for _ in range(2):  # the second time, the node exists
            reply = await agent.register()
            assert agent.node_capacity == given
            limited = f"capability.concurrency is {asked}, and the controller limits it to 8" in reply.message
            assert limited == (asked > given)
    assert (await client.get(NODES, ObjectKey(namespace, "box"))).spec.capacity == given
