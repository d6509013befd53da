"""Nodes with agents: stale, lost, draining and deleted nodes, and clock skew."""

import asyncio
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from tests.support.agent_fleet import AgentFleet, failures, placed, running_on
from tests.support.fleet import add_node, reaches, submit
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


async def is_deleted(client: Client, key: ObjectKey) -> bool:
    try:
        await client.get(NODES, key)
    except NotFound:
        return True
    return False


async def test_a_pod_node_is_stale_without_heartbeats_and_unhealthy_without_a_controller(
    agents: AgentFleet, client: Client, namespace: str
) -> None:
    # Seven digits, as another client may write: the operator must not rewrite it.
    young = (agents.now() - timedelta(seconds=32)).strftime("%Y-%m-%dT%H:%M:%S.7654321Z")
    for name in ("stale", "agentless"):
        await add_node(client, namespace, name)
    await client.patch_status(NODES, ObjectKey(namespace, "stale"), {"lastHeartbeat": young})

    async def ready() -> tuple[str, str]:
        return await agents.ready("stale"), await agents.ready("agentless")

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
        node = await client.get(NODES.decoded_as(dict), ObjectKey(namespace, "stale"))
        assert node["status"]["lastHeartbeat"] == young

        # Events report a stale agent and a healthy node, but not an unreachable controller.
        async def reported() -> bool:
            stale, agentless = await agents.events("stale"), await agents.events("agentless")
            return {one for one, _ in stale} == {"HeartbeatStale"} and {one for one, _ in agentless} == {"Healthy"}

        await eventually(reported, "events report the changes")
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
        waiting = await reaches(client, late, lambda one: bool(one.status.conditions), "it says why it waits")
        (waits,) = waiting.status.conditions
        assert waits.reason == "NoHealthyNode"
        assert waits.message.startswith("the one node that fits, box, is draining")
        await client.patch_status(NODES, key, {"draining": None})  # as a new registration does
        await agents.settled()
        assert await agents.ready("box") == "Healthy"
        assert placed(await agents.job(late)) == ("Running", "box", 1)

        async def reported() -> bool:
            return {reason for reason, _ in await agents.events("box")} >= {"Draining", "Healthy"}

        await eventually(reported, "events report both changes")


async def test_jobs_stay_when_most_agents_fall_silent_together(agents: AgentFleet) -> None:
    """As if the load balancer before the controller's gRPC port failed: its health check passes all the time."""
    names = [f"a{number}" for number in range(6)]
    for name in names:
        await agents.agent(name)
    async with agents.operating():
        keys = [await agents.submit(f"job-{number}") for number in range(6)]
        await agents.settled()
        for key in keys:
            await agents.claim(key)
        jobs = {(await agents.job(key)).status.assignedNode: key for key in keys}
        assert sorted(map(str, jobs)) == names
        await agents.pass_time(30, beating=names)
        await agents.pass_time(90, beating=["a0"])  # the outage; one agent has another way to the controller
        assert [await agents.ready(name) for name in names] == ["Healthy", *["OutageSuspected"] * 5]
        assert [placed(await agents.job(jobs[name])) for name in names] == [("Running", name, 1) for name in names]
        await agents.pass_time(60, beating=names[:5])  # it is over, but one machine is really lost
        assert [await agents.ready(name) for name in names] == [*["Healthy"] * 5, "AgentLost"]
        assert [failures(await agents.job(jobs[name]))[0] for name in names] == [0, 0, 0, 0, 0, 1]
        await agents.pass_time(310)  # an outage for more than five minutes
        assert {await agents.ready(name) for name in names} == {"AgentLost"}


@pytest.mark.parametrize("beats", [False, True], ids=["silent", "heartbeat"])
async def test_a_heartbeat_that_the_cache_missed_keeps_a_node_from_being_lost(
    beats: bool, agents: AgentFleet, client: Client, namespace: str
) -> None:
    """The watch is stopped; the API server rejects the write, because it is based on an older version."""
    operator_context = context(client, namespace, now=agents.now, clock=agents.clock)
    key, nodes = ObjectKey(namespace, "a"), operator_context.nodes
    await agents.agent("a")
    watching = asyncio.create_task(nodes.run())
    reconciler = NodeReconciler(operator_context, defaults(NodeSettings, controller_address=agents.controller.address))
    await nodes.synced.wait()
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    for _ in range(3):
        await reconciler.prober.probe()
        agents.ahead += 30
    if beats:
        await agents.beat("a")
    await reconciler.reconcile(key)
    node = await client.get(NODES, key)
    assert node.status.healthy is beats
    assert [one.reason for one in node.status.conditions] == ([] if beats else ["AgentLost"])


async def test_nodes_registered_by_an_agent_are_deleted_after_a_day_without_heartbeat(
    agents: AgentFleet, client: Client, namespace: str
) -> None:
    registered = {"metadata": {"labels": {REGISTERED_BY: BY_AGENT}}}
    for name in ("registered", "alive", "by-hand"):
        await agents.agent(name)
        if name != "by-hand":
            await client.merge_patch(NODES, ObjectKey(namespace, name), registered)
    await client.merge_patch(NODES, ObjectKey(namespace, "alive"), {"spec": {"unschedulable": True}})
    await client.merge_patch(NODES, ObjectKey(namespace, "by-hand"), {"spec": {"unschedulable": True}})
    async with agents.operating():
        key = await running_on(agents, "registered")
        await agents.pass_time(90, beating=["alive"])
        assert placed(await agents.job(key)) == ("Pending", None, 1)
    agents.ahead += DAY - 120
    async with agents.operating():  # a new operator, which did not wait for a day
        await agents.pass_time(20, beating=["alive"])
        assert not await is_deleted(client, ObjectKey(namespace, "registered"))
        await agents.pass_time(30, beating=["alive"])
        assert await is_deleted(client, ObjectKey(namespace, "registered"))
        assert await agents.ready("alive") == "Healthy"
        assert await agents.ready("by-hand") == "AgentLost"


@pytest.mark.parametrize("has_jobs", [False, True])
async def test_a_node_with_jobs_is_not_deleted(
    has_jobs: bool, agents: AgentFleet, client: Client, namespace: str
) -> None:
    """An external job, which the operator does not move."""
    key = ObjectKey(namespace, "registered")
    await agents.agent("registered")
    await client.merge_patch(NODES, key, {"metadata": {"labels": {REGISTERED_BY: BY_AGENT}}})
    if has_jobs:
        job = await submit(client, namespace, "external", Path("/clips"), schedulerName="other")
        placed_by_other = {"phase": "Running", "assignedNode": "registered", "controllerJobID": "another's"}
        await client.patch_status(JOBS, job, placed_by_other)
    agents.ahead += DAY
    async with agents.operating():
        await agents.pass_time(90)
        assert await is_deleted(client, key) is not has_jobs


async def test_an_outage_of_the_controller_for_a_day_deletes_no_node(
    agents: AgentFleet, client: Client, namespace: str
) -> None:
    await agents.agent("registered")
    await client.merge_patch(
        NODES, ObjectKey(namespace, "registered"), {"metadata": {"labels": {REGISTERED_BY: BY_AGENT}}}
    )
    async with agents.operating():
        await agents.pass_time(30, beating=["registered"])
        agents.controller.status = 503
        await agents.pass_time(120)
        agents.ahead += DAY
        await agents.pass_time(60)
        agents.controller.status = 200
        await agents.pass_time(50)
        assert await agents.ready("registered") == "HeartbeatStale"
        await agents.pass_time(60, beating=["registered"])
        assert await agents.ready("registered") == "Healthy"


@pytest.mark.parametrize("skew", [-90, 90], ids=["behind", "ahead"])
async def test_clock_skew_of_the_controller_does_not_make_a_node_flap(
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
