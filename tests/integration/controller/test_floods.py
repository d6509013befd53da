"""20 agents score 200 jobs while somebody floods the controller: no call of an agent is refused, and no job moves.

Operator and controller are processes, callers have tokens, and all of them have the same address.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import aiohttp
import grpc
import pytest

from tests.support.busy_agents import SLOTS, busy_agents
from tests.support.fleet import add_node
from tests.support.floods import CALLERS, CONNECTIONS, STREAMS, FloodCounts, FloodPlan, flooding
from tests.support.inprocess_controller import Agent, controller_stub
from tests.support.machines import ControllerProcess, controllers
from tests.support.operator_process import operator
from tests.support.tokens import grant, service_account_token
from tests.support.waiting import eventually
from vmafx.api.meta import GROUP
from vmafx.auth.reviews import AUDIENCE, AccessReviewer, ResourceAction
from vmafx.devcluster import DevCluster
from vmafx.kube import JOBS, NODES, Client, ObjectKey
from vmafx.kube.core import UserInfo
from vmafx.wire import controller_pb2 as wire
from vmafx.wire.controller_pb2_grpc import VmafxControllerStub

JOB_COUNT = 200
NAMES = tuple(f"agent-{number}" for number in range(20))
HEARTBEATS = 5  # of each agent during the flood
CLIPS = wire.ScoringParams(reference="file:///a.mp4", distorted="file:///b.mp4")
AGENT = {"resources": ["vmafxnodes/status"], "verbs": ["patch"]}
CLIENT = {"resources": ["vmafxjobs"], "verbs": ["get", "watch", "create"]}
RULES = {"agent": AGENT, "greedy": AGENT, "encoder": CLIENT, "flooder": CLIENT}

# Whether a flood has reached the limits that stop it.
REACHED: dict[str, Callable[[FloodCounts], bool]] = {
    "strangers": lambda counts: (
        counts.held > CONNECTIONS * STREAMS // 3
        and counts.total("watch RESOURCE_EXHAUSTED") > STREAMS
        and counts.total("half-open RESOURCE_EXHAUSTED") > STREAMS
        and counts.total("reflection UNAUTHENTICATED") > STREAMS
    ),
    "pulls": lambda counts: counts.total("pull OK") > CONNECTIONS * STREAMS // 2,  # each ended for a later one
    "tokens": lambda counts: (
        counts.total("grpc UNAUTHENTICATED") > 0
        and counts.total("grpc RESOURCE_EXHAUSTED") > CALLERS
        and counts.total("http 429") > CALLERS
    ),
    "ids": lambda counts: counts.total("grpc NOT_FOUND") > CALLERS and counts.total("http 404") > CALLERS,
    "streams": lambda counts: counts.held >= 50 and counts.total("http 429") > CALLERS,
    "reports": lambda counts: (
        counts.total("report RESOURCE_EXHAUSTED") > CALLERS and counts.total("heartbeat RESOURCE_EXHAUSTED") > 0
    ),
}


class Site(NamedTuple):
    """A controller with its operator, and accounts that may call it."""

    controller: ControllerProcess
    client: Client
    namespace: str

    async def token(self, account: str) -> str:
        return await service_account_token(self.client, ObjectKey(self.namespace, account), AUDIENCE)

    async def flood_plan(self, kind: str) -> FloodPlan:
        """Agents flood with PullWork and reports, clients with the others; strangers have no account."""
        me = {}
        account = {"pulls": "greedy", "reports": "greedy", "ids": "flooder", "streams": "flooder"}.get(kind)
        token = await self.token(account) if account else ""
        if account == "greedy":
            await add_node(self.client, self.namespace, "greedy", runtime="Agent", unschedulable=True)
            async with controller_stub(self.controller.grpc) as stub:
                agent = Agent(stub, "greedy", token=token)
                await agent.register()
            me = {"node": agent.me["node_id"], "session": agent.me["session_token"]}
        return FloodPlan(kind, self.controller.grpc, self.controller.http, token, **me)

    async def submit_all(self, token: str) -> None:
        """Submit the jobs through the controller, which finds each of them at once."""
        metadata = (("authorization", f"Bearer {token}"),)

        async def submit(stub: VmafxControllerStub) -> None:
            submitted = await stub.SubmitJob(wire.SubmitJobRequest(scoring=CLIPS), metadata=metadata)
            found = await stub.GetJob(wire.GetJobRequest(job_id=submitted.job_id), metadata=metadata)
            assert found.name == submitted.name

        async with controller_stub(self.controller.grpc) as stub:
            await asyncio.gather(*(submit(stub) for _ in range(JOB_COUNT)))

    async def known_client(self) -> str:
        """The token of a client that the controller has seen: behind invalid tokens, a new one would wait."""
        token = await self.token("encoder")
        async with controller_stub(self.controller.grpc) as stub:
            with pytest.raises(grpc.aio.AioRpcError, match="no job has the id"):
                await stub.GetJob(wire.GetJobRequest(job_id="none"), metadata=(("authorization", f"Bearer {token}"),))
        return token

    async def all_succeeded(self) -> bool:
        jobs = (await self.client.list(JOBS, self.namespace)).items
        assert not [job for job in jobs if job.status.phase == "Failed"]
        return [job.status.phase for job in jobs] == ["Succeeded"] * JOB_COUNT

    async def outcomes(self) -> set[tuple[str, int, int]]:
        """Phase, attempts and failures of all jobs. Attempts are placements, so one attempt is one node."""
        jobs = (await self.client.list(JOBS, self.namespace)).items
        return {(job.status.phase, job.status.attempts, job.status.failures) for job in jobs}

    async def readiness(self) -> dict[str, str]:
        """The reason of each agent's Ready condition."""
        nodes = {node.metadata.name: node for node in (await self.client.list(NODES, self.namespace)).items}
        return {name: next(one.reason for one in nodes[name].status.conditions) for name in NAMES}


@pytest.fixture
async def site(cluster: DevCluster, client: Client, namespace: str, tmp_path: Path) -> AsyncIterator[Site]:
    for account, rule in RULES.items():
        await grant(client, ObjectKey(namespace, account), {"apiGroups": [GROUP], **rule})
    for name in NAMES:
        await add_node(client, namespace, name, runtime="Agent", capacity=SLOTS)
    await eventually(lambda: _has_seen_roles(client, namespace), "the API server has seen the roles")
    with controllers(cluster, namespace, tmp_path, "--auth", "token") as (controller,):
        await controller.ready()
        address = f"http://127.0.0.1:{controller.http}"
        with operator(cluster, namespace, tmp_path, VMAFX_CONTROLLER_HTTP_ADDR=address):
            yield Site(controller, client, namespace)


async def _has_seen_roles(client: Client, namespace: str) -> bool:
    """Whether it grants the last verb of each rule."""
    for account, rule in RULES.items():
        user = UserInfo(username=f"system:serviceaccount:{namespace}:{account}")
        resource, _, subresource = rule["resources"][0].partition("/")
        action = ResourceAction(rule["verbs"][-1], resource, namespace, subresource=subresource)
        if not await AccessReviewer(client).review_access(user, action):
            return False
    return True


@asynccontextmanager
async def probing(controller: ControllerProcess) -> AsyncIterator[set[int]]:
    """Probe /healthz during the `with`, each time with a new connection; yields the statuses."""
    statuses: set[int] = set()

    async def probe() -> None:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session:
            while True:
                async with session.get(f"http://127.0.0.1:{controller.http}/healthz") as response:
                    statuses.add(response.status)
                await asyncio.sleep(0.1)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(probe())
        yield statuses
        task.cancel()


async def test_agents_pass_a_flood_of_invalid_tokens_after_a_restart(site: Site) -> None:
    """The new process has not seen any token, and the agents have the address of the flood."""
    tokens = [await site.token("agent") for _ in NAMES]
    async with controller_stub(site.controller.grpc) as stub:
        registered = [Agent(stub, name, token=token) for name, token in zip(NAMES, tokens, strict=True)]
        for agent in registered:
            await agent.register()
    async with flooding(await site.flood_plan("tokens")) as flood:
        site.controller.kill()
        site.controller.start()
        await site.controller.ready()
        before = flood.counts.total("grpc RESOURCE_EXHAUSTED")
        await eventually(
            lambda: flood.counts.total("grpc RESOURCE_EXHAUSTED") > before + CALLERS, "new callers are refused"
        )
        async with controller_stub(site.controller.grpc) as stub:
            for known in registered:
                agent = Agent(stub, known.name, token=known.token)
                agent.me = known.me
                assert (await agent.beat()).ok
                assert not (await agent.pull(wait=0)).HasField("job")


@pytest.mark.timeout(400)
@pytest.mark.parametrize("kind", REACHED)
async def test_a_flood_disturbs_neither_agents_nor_jobs(kind: str, site: Site) -> None:
    plan, encoder = await site.flood_plan(kind), await site.known_client()
    tokens = [await site.token("agent") for _ in NAMES]
    async with (
        probing(site.controller) as statuses,
        busy_agents(site.controller.grpc, NAMES, tokens) as agents,
        flooding(plan) as flood,
    ):
        await eventually(lambda: REACHED[kind](flood.counts), "the flood has reached its limit")
        before = [agent.heartbeats for agent in agents]
        for agent in agents:  # as when tokens are renewed: the controller has not seen the new one
            agent.token = await site.token("agent")
        await site.submit_all(encoder)
        await eventually(site.all_succeeded, "all jobs have succeeded")

        def all_beat() -> bool:
            return all(agent.heartbeats >= count + HEARTBEATS for agent, count in zip(agents, before, strict=True))

        await eventually(all_beat, "all agents have sent heartbeats")
        assert flood.is_running
    assert await site.outcomes() == {("Succeeded", 1, 0)}
    assert set((await site.readiness()).values()) == {"Healthy"}
    assert statuses == {200}
