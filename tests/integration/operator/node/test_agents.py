"""Nodes of agents: when they are given up, when they go, and by whose clock."""

import asyncio
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from tests.support.agent_fleet import AgentFleet, failures, placed, running_on
from tests.support.fleet import add_node, submit
from tests.support.operator_context import context
from tests.support.setting_defaults import defaults
from tests.support.waiting import eventually
from vmafx.api.meta import Condition
from vmafx.api.node import BY_AGENT, REGISTERED_BY
from vmafx.kube import JOBS, NODES, Client, ObjectKey
from vmafx.kube.errors import NotFound
from vmafx.operator.node.decide import DELETE_AFTER
from vmafx.operator.node.reconciler import NodeReconciler
from vmafx.operator.node.settings import NodeSettings

DAY = DELETE_AFTER.total_seconds()


async def gone(client: Client, key: ObjectKey) -> bool:
    try:
        await client.get(NODES, key)
    except NotFound:
        return True
    return False


async def test_a_node_fades_when_its_agent_is_silent_for_too_long_and_the_controller_is_there_for_all(
    agents: AgentFleet, client: Client, namespace: str
) -> None:
    """Jobs of these run as Pods, so nobody loses them."""
    # Written as an agent would, with digits that nobody else would write.
    young = (agents.now() - timedelta(seconds=32)).strftime("%Y-%m-%dT%H:%M:%S.7654321Z")
    for name in ("fading", "agentless"):
        await add_node(client, namespace, name)
    await client.patch_status(NODES, ObjectKey(namespace, "fading"), {"lastHeartbeat": young})

    async def ready() -> tuple[str, str]:
        return await agents.ready("fading"), await agents.ready("agentless")

    async with agents.operating():
        assert await ready() == ("Healthy", "Healthy")
        await agents.pass_time(20)
        assert await ready() == ("Healthy", "Healthy")
        await agents.pass_time(10)
        assert await ready() == ("HeartbeatStale", "Healthy")
        agents.controller.status = 503
        await agents.pass_time(30)
        assert await ready() == ("HeartbeatStale", "ControllerUnreachable")
        agents.controller.status = 204
        await agents.pass_time(30)
        assert await ready() == ("HeartbeatStale", "Healthy")
        node = await client.get(NODES.seen_as(dict), ObjectKey(namespace, "fading"))
        assert node["status"]["lastHeartbeat"] == young

        # Told of: a node whose agent fell silent, or that is healthy again; not that the controller was away.
        async def told() -> bool:
            fading, agentless = await agents.events("fading"), await agents.events("agentless")
            return {one for one, _ in fading} == {"HeartbeatStale"} and {one for one, _ in agentless} == {"Healthy"}

        await eventually(told, "events tell of those that turned")
        assert agents.controller.asked == 4  # one probe serves all nodes of the namespace


async def test_a_draining_agent_keeps_its_jobs_and_its_node_says_so(
    agents: AgentFleet, client: Client, namespace: str
) -> None:
    key = ObjectKey(namespace, "box")
    await agents.agent("box", capacity=2)
    async with agents.operating():
        job = await running_on(agents, "box")

        async def counted() -> bool:
            return (await client.get(NODES, key)).status.assignedJobs == 1

        await eventually(counted, "its job is counted")
        await client.patch_status(NODES, key, {"draining": True})
        await agents.settled()
        late = await agents.submit("late")
        await agents.pass_time(120, beating=["box"])
        status = (await client.get(NODES, key)).status
        (ready,) = status.conditions
        assert (status.healthy, ready.status, ready.reason) == (True, "False", "Draining")
        assert ready.message == "the agent is draining: it finishes 1 job and takes no new ones"
        assert placed(await agents.job(job)) == ("Running", "box", 1)
        (waits,) = (await agents.job(late)).status.conditions
        assert waits.reason == "NoHealthyNode"
        assert waits.message.startswith("the one node that fits, box, is draining")
        await client.patch_status(NODES, key, {"draining": None})  # as a new registration does
        await agents.settled()
        assert await agents.ready("box") == "Healthy"
        assert placed(await agents.job(late)) == ("Running", "box", 1)

        async def told() -> bool:
            return {reason for reason, _ in await agents.events("box")} >= {"Draining", "Healthy"}

        await eventually(told, "events say when it drained and when it was back")


@pytest.mark.parametrize("heard", [False, True], ids=["silent", "heard"])
async def test_a_heartbeat_that_comes_while_the_node_is_given_up_saves_it(
    heard: bool, agents: AgentFleet, client: Client, namespace: str
) -> None:
    """A watch that does not tell of it: only the server knows, and refuses what is written about an older state."""
    made = context(client, namespace, now=agents.now, clock=agents.clock)
    key, nodes = ObjectKey(namespace, "a"), made.nodes
    await agents.agent("a")
    watching = asyncio.create_task(nodes.run())
    health = NodeReconciler(made, defaults(NodeSettings, controller_address=agents.controller.address))
    await nodes.synced.wait()
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    for _ in range(3):
        await health.probes.ask()
        agents.ahead += 30
    if heard:
        await agents.beat("a")
    await health.reconcile(key)
    node = await client.get(NODES, key)
    assert node.status.healthy is heard
    assert [one.reason for one in node.status.conditions] == ([] if heard else ["AgentLost"])


async def test_nodes_that_agents_made_go_after_a_day_without_them(
    agents: AgentFleet, client: Client, namespace: str
) -> None:
    made = {"metadata": {"labels": {REGISTERED_BY: BY_AGENT}}}
    for name in ("made", "alive", "written"):
        await agents.agent(name)
        if name != "written":
            await client.merge_patch(NODES, ObjectKey(namespace, name), made)
    await client.merge_patch(NODES, ObjectKey(namespace, "alive"), {"spec": {"unschedulable": True}})
    await client.merge_patch(NODES, ObjectKey(namespace, "written"), {"spec": {"unschedulable": True}})
    async with agents.operating():
        key = await running_on(agents, "made")
        await agents.pass_time(90, beating=["alive"])
        assert placed(await agents.job(key)) == ("Pending", None, 1)
    agents.ahead += DAY - 120
    async with agents.operating():  # which has not waited for a day
        await agents.pass_time(20, beating=["alive"])
        assert not await gone(client, ObjectKey(namespace, "made"))
        await agents.pass_time(30, beating=["alive"])
        assert await gone(client, ObjectKey(namespace, "made"))
        assert await agents.ready("alive") == "Healthy"
        assert await agents.ready("written") == "AgentLost"


@pytest.mark.parametrize("has_jobs", [False, True])
async def test_a_node_that_has_jobs_stays(has_jobs: bool, agents: AgentFleet, client: Client, namespace: str) -> None:
    """One that another controller placed there, which is not ours to move."""
    key = ObjectKey(namespace, "made")
    await agents.agent("made")
    await client.merge_patch(NODES, key, {"metadata": {"labels": {REGISTERED_BY: BY_AGENT}}})
    if has_jobs:
        job = await submit(client, namespace, "theirs", Path("/clips"), schedulerName="other")
        there = {"phase": "Running", "assignedNode": "made", "controllerJobID": "another's"}
        await client.patch_status(JOBS, job, there)
    agents.ahead += DAY
    async with agents.operating():
        await agents.pass_time(90)
        assert await gone(client, key) is not has_jobs


async def test_a_controller_that_was_away_for_a_day_costs_no_node(
    agents: AgentFleet, client: Client, namespace: str
) -> None:
    await agents.agent("made")
    await client.merge_patch(NODES, ObjectKey(namespace, "made"), {"metadata": {"labels": {REGISTERED_BY: BY_AGENT}}})
    async with agents.operating():
        await agents.pass_time(30, beating=["made"])
        agents.controller.status = 503
        await agents.pass_time(120)
        agents.ahead += DAY
        await agents.pass_time(60)
        agents.controller.status = 200
        await agents.pass_time(50)
        assert await agents.ready("made") == "HeartbeatStale"
        await agents.pass_time(60, beating=["made"])
        assert await agents.ready("made") == "Healthy"


@pytest.mark.parametrize("skew", [-90, 90], ids=["behind", "ahead"])
async def test_a_controllers_clock_that_differs_makes_no_node_flap(
    skew: int, agents: AgentFleet, client: Client, namespace: str
) -> None:
    agents.skew = timedelta(seconds=skew)
    await agents.agent("a")

    async def since() -> Condition:
        node = await client.get(NODES, ObjectKey(namespace, "a"))
        assert node.status.healthy
        return msgspec.structs.replace(node.status.conditions[0], observedGeneration=0)

    async with agents.operating():
        await agents.pass_time(10, beating=["a"])
        first = await since()
        key = await running_on(agents, "a")
        for _ in range(20):
            await agents.pass_time(10, beating=["a"])
            assert await since() == first
        assert placed(await agents.job(key)) == ("Running", "a", 1)
        await agents.pass_time(80)
        assert await agents.ready("a") == "AgentLost"
        assert failures(await agents.job(key)) == (1, ("a",))
