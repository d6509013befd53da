"""Jobs that agents run: claims, lost agents, cancellation, retries."""

import pytest

from tests.conftest import Logged
from tests.support.agent_fleet import AgentFleet, failures, placed, running_on
from tests.support.fleet import add_node, allow_pods, condition
from tests.support.waiting import eventually
from vmafx.api.meta import Condition, LocalSecretRef
from vmafx.api.node import NodeView
from vmafx.kube import JOBS, NODES, Client, ObjectKey
from vmafx.kube.core import PODS


async def test_a_job_placed_on_an_agent_is_counted_scored_and_deleted_after_its_ttl(
    agents: AgentFleet, client: Client, namespace: str
) -> None:
    await agents.agent("a", capacity=2)
    node = ObjectKey(namespace, "a")

    def slots(state: str) -> float | None:
        return agents.metrics.registry.get_sample_value("vmafx_slots", {"vendor": "cpu", "state": state})

    async def assigned(jobs: int) -> bool:
        return (await client.get(NODES, node)).status.assignedJobs == jobs

    async with agents.operating():
        key = await agents.submit("job", ttlSecondsAfterFinished=3600)
        await agents.settled()
        job = await agents.job(key)
        assert placed(job) == ("Running", "a", 1)
        assert condition(job, "Scheduled") == ("True", "PlacedWithAgent")
        assert job.status.controllerJobID == f"{job.metadata.uid}-0"
        assert (slots("used"), slots("free")) == (1, 1)
        await eventually(lambda: assigned(1), "its node counts it")
        await agents.claim(key)
        await agents.pass_time(300, beating=["a"])
        await agents.report(key, score=93.5, frames=300)
        await eventually(lambda: slots("used") == 0, "its slot is free")
        await eventually(lambda: assigned(0), "its node counts none")
        job = await agents.job(key)
        assert (*placed(job), job.status.score, *failures(job)) == ("Succeeded", "a", 1, 93.5, 0, ())
        assert (await client.list(PODS, namespace)).items == []
        assert await agents.events("job") == set()
        agents.ahead += 3600

    async def deleted() -> bool:
        return (await client.list(JOBS, namespace)).items == []

    async with agents.operating():
        await eventually(deleted, "it is deleted after its TTL")


async def test_a_job_that_is_not_claimed_within_a_minute_moves_to_another_node(agents: AgentFleet) -> None:
    await agents.agent("a")
    async with agents.operating():
        key = await running_on(agents, "a", claimed=False)
        await agents.agent("b")
        await agents.pass_time(50, beating=["a", "b"])
        assert placed(await agents.job(key)) == ("Running", "a", 1)
        await agents.pass_time(30, beating=["a", "b"])
        job = await agents.job(key)
        assert (placed(job), failures(job)) == (("Running", "b", 2), (1, ("a",)))
        event = ("Retrying", "agent a did not claim it within 60 s")
        await eventually(lambda: _has_event(agents, "job", event), "an event reports it")
        assert await agents.ready("a") == "Healthy"


async def _has_event(agents: AgentFleet, name: str, wanted: tuple[str, str]) -> bool:
    return wanted in await agents.events(name)


async def test_the_jobs_of_a_lost_agent_move_to_another_node(
    agents: AgentFleet, client: Client, namespace: str, logged: Logged
) -> None:
    await agents.agent("a")
    async with agents.operating():
        key = await running_on(agents, "a")
        await agents.agent("b")
        await agents.pass_time(50, beating=["b"])
        assert placed(await agents.job(key)) == ("Running", "a", 1)
        await agents.pass_time(30, beating=["b"])
        job, node = await agents.job(key), await client.get(NODES, ObjectKey(namespace, "a"))
        assert (placed(job), failures(job)) == (("Running", "b", 2), (1, ("a",)))
        assert (node.status.healthy, await agents.ready("a")) == (False, "AgentLost")
        heartbeat = node.status.lastHeartbeat
        assert heartbeat is not None
        since = heartbeat.isoformat().replace("+00:00", "Z")
        event = ("Retrying", f"its node a has sent no heartbeat since {since}")
        await eventually(lambda: _has_event(agents, "job", event), "an event reports it")
        lost = ("AgentLost", f"no heartbeat since {since}; its jobs move to other nodes")
        await eventually(lambda: _has_event(agents, "a", lost), "and one of the node")
        await agents.pass_time(10, beating=["a", "b"])
        assert await agents.ready("a") == "Healthy"
        await agents.claim(key)
        await agents.pass_time(120, beating=["a", "b"])
        assert placed(await agents.job(key)) == ("Running", "b", 2)
    assert [message for message, _ in logged("node", f"{namespace}/a")] == ["agent lost", "node healthy"]
    assert logged("node", f"{namespace}/a")[0][1] == {"reason": "AgentLost", "heartbeat": since}
    assert logged("job", str(key)) == [
        ("job placed", {"node": "a", "attempt": 0}),
        ("attempt failed, will retry", {"node": "a", "attempt": 0, "error": event[1]}),
        ("job placed", {"node": "b", "attempt": 1}),
    ]


@pytest.mark.parametrize("claimed", [True, False], ids=["claimed", "not claimed"])
async def test_an_outage_of_the_controller_moves_no_job(agents: AgentFleet, claimed: bool) -> None:
    """Neither during the outage, nor when the controller and the agents are back."""
    await agents.agent("a")
    async with agents.operating():
        key = await running_on(agents, "a", claimed=claimed)
        await agents.agent("spare")
        await agents.pass_time(20 if not claimed else 120, beating=["a", "spare"])
        agents.controller.status = 503
        await agents.pass_time(90)
        assert await agents.ready("a") == "HeartbeatStale"
        agents.controller.status = 200
        await agents.pass_time(20)
        assert placed(await agents.job(key)) == ("Running", "a", 1)
        await agents.pass_time(10, beating=["a", "spare"])
        await agents.claim(key)
        await agents.pass_time(180, beating=["a", "spare"])
        job = await agents.job(key)
        assert (placed(job), failures(job)) == (("Running", "a", 1), (0, ()))
        assert await agents.ready("a") == "Healthy"


async def test_an_agent_lost_during_an_outage_of_the_controller_is_noticed_a_minute_later(agents: AgentFleet) -> None:
    await agents.agent("a")
    async with agents.operating():
        key = await running_on(agents, "a")
        await agents.agent("b")
        await agents.pass_time(120, beating=["a", "b"])
        agents.controller.status = 503
        await agents.pass_time(900)
        agents.controller.status = 200
        await agents.pass_time(60, beating=["b"])
        assert (placed(await agents.job(key)), await agents.ready("a")) == (("Running", "a", 1), "HeartbeatStale")
        await agents.pass_time(60, beating=["b"])
        job = await agents.job(key)
        assert (placed(job), failures(job)) == (("Running", "b", 2), (1, ("a",)))


async def test_a_restart_moves_no_job_of_an_agent_that_sends_heartbeats(agents: AgentFleet) -> None:
    await agents.agent("a")
    async with agents.operating():
        key = await running_on(agents, "a", claimed=False)
        await agents.agent("spare")
    agents.ahead += 600  # operator, controller and agents were down
    async with agents.operating():
        await agents.pass_time(20)
        assert placed(await agents.job(key)) == ("Running", "a", 1)
        await agents.pass_time(20, beating=["a", "spare"])
        await agents.claim(key)
        await agents.pass_time(120, beating=["a", "spare"])
        job = await agents.job(key)
        assert (placed(job), failures(job)) == (("Running", "a", 1), (0, ()))


async def test_an_agent_silent_since_before_a_restart_is_lost_after_it(agents: AgentFleet) -> None:
    await agents.agent("a")
    async with agents.operating():
        key = await running_on(agents, "a")
        await agents.agent("b")
        await agents.pass_time(50, beating=["b"])
    async with agents.operating():
        await agents.pass_time(50, beating=["b"])
        assert (placed(await agents.job(key)), await agents.ready("a")) == (("Running", "a", 1), "HeartbeatStale")
        await agents.pass_time(40, beating=["b"])
        assert placed(await agents.job(key)) == ("Running", "b", 2)


@pytest.mark.parametrize("beats", [False, True], ids=["silent", "heartbeat since"])
async def test_a_lost_agent_is_acted_on_after_a_restart_unless_a_heartbeat_arrived(
    beats: bool, agents: AgentFleet, client: Client, namespace: str
) -> None:
    """The operator was stopped after it marked the agent as lost, before it moved the job."""
    await agents.agent("a")
    async with agents.operating():
        key = await running_on(agents, "a")
        await agents.agent("b")
        await agents.settled()
    node = await client.get(NODES.decoded_as(NodeView), ObjectKey(namespace, "a"))
    since = node.status.lastHeartbeat
    assert since is not None
    message = f"no heartbeat since {since.isoformat().replace('+00:00', 'Z')}; its jobs move to other nodes"
    lost = Condition("Ready", "False", agents.now(), "AgentLost", message)
    status = {"healthy": False, "observedHeartbeat": since, "conditions": [lost]}
    await client.patch_status(NODES, ObjectKey(namespace, "a"), status)
    agents.ahead += 90
    await agents.beat("b")
    if beats:
        await agents.beat("a")
    async with agents.operating():
        await agents.pass_time(20, beating=["a", "b"] if beats else ["b"])
        assert placed(await agents.job(key)) == (("Running", "a", 1) if beats else ("Running", "b", 2))


async def test_a_deleted_node_costs_no_failure(agents: AgentFleet, client: Client, namespace: str) -> None:
    await agents.agent("a")
    async with agents.operating():
        key = await running_on(agents, "a")
        await agents.agent("b")
        await client.delete(NODES, ObjectKey(namespace, "a"))
        await agents.settled()
        assert condition(await agents.job(key), "Scheduled") == ("False", "Retrying")
        await agents.pass_time(10, beating=["b"])
        job = await agents.job(key)
        assert (placed(job), failures(job)) == (("Running", "b", 2), (0, ()))


@pytest.mark.parametrize("claimed", [True, False], ids=["claimed", "not claimed"])
async def test_a_job_with_an_agent_can_be_suspended_resumed_and_cancelled(
    agents: AgentFleet, client: Client, claimed: bool
) -> None:
    await agents.agent("a")
    async with agents.operating():
        key = await running_on(agents, "a", claimed=claimed)
        await client.merge_patch(JOBS, key, {"spec": {"suspend": True}})
        await agents.settled()
        job = await agents.job(key)
        assert (placed(job), condition(job, "Scheduled")) == (("Pending", None, 1), ("False", "Suspended"))
        assert (job.status.controllerJobID, job.status.claimedAt, job.status.progress) == (None, None, None)
        await client.merge_patch(JOBS, key, {"spec": {"suspend": False}})
        await agents.settled()
        job = await agents.job(key)
        assert (placed(job), job.status.controllerJobID) == (("Running", "a", 2), f"{job.metadata.uid}-1")
        await client.merge_patch(JOBS, key, {"spec": {"cancel": True}})
        await agents.settled()
        job = await agents.job(key)
        assert (job.status.phase, condition(job, "Failed")) == ("Failed", ("True", "Cancelled"))
        assert failures(job) == (0, ())


async def test_the_deadline_covers_all_attempts(agents: AgentFleet) -> None:
    await agents.agent("a")
    async with agents.operating():
        key = await agents.submit("job", activeDeadlineSeconds=100)
        await agents.settled()
        await agents.pass_time(80, beating=["a"])  # not claimed, and retried
        await agents.claim(key)
        await agents.pass_time(10, beating=["a"])
        assert placed(await agents.job(key)) == ("Running", "a", 2)
        await agents.pass_time(20, beating=["a"])
        job = await agents.job(key)
        assert (job.status.phase, condition(job, "Failed")) == ("Failed", ("True", "DeadlineExceeded"))


async def test_a_job_fails_after_its_retries_with_an_agent_are_exhausted(agents: AgentFleet) -> None:
    await agents.agent("a")
    async with agents.operating():
        key = await agents.submit("job", retryLimit=1)
        await agents.settled()
        await agents.report(key, fault="EngineFailure", message="no luck")
        await agents.settled()
        assert condition(await agents.job(key), "Scheduled") == ("False", "Retrying")
        await agents.pass_time(10, beating=["a"])
        job = await agents.job(key)
        assert (placed(job), failures(job)) == (("Running", "a", 2), (1, ("a",)))
        await agents.pass_time(70, beating=["a"])
        job = await agents.job(key)
        assert (job.status.phase, condition(job, "Failed")) == ("Failed", ("True", "RetriesExhausted"))
        assert job.status.message == "failed 2 times, last error: agent a did not claim it within 60 s"


async def test_the_jobs_of_a_node_that_changes_its_runtime_are_retried(
    agents: AgentFleet, client: Client, namespace: str
) -> None:
    await allow_pods(client, namespace)
    await add_node(client, namespace, "a")

    async def change_to(runtime: str) -> None:
        await client.merge_patch(NODES, ObjectKey(namespace, "a"), {"spec": {"runtime": runtime}})
        await agents.settled()

    async def pods() -> list[str]:
        return sorted(one["metadata"]["name"] for one in (await client.list(PODS, namespace)).items)

    async def has_pods(*names: str) -> bool:
        return await pods() == list(names)

    async with agents.operating():
        key = await agents.submit("job")
        await eventually(lambda: has_pods("job-0"), "it runs as a Pod")
        await client.patch_status(NODES, ObjectKey(namespace, "a"), {"agentSession": "s"})
        await change_to("Agent")
        job = await agents.job(key)
        assert (placed(job), failures(job)) == (("Pending", None, 1), (0, ()))
        assert job.status.message == "spec.runtime of its node a changed to Agent"
        await eventually(has_pods, "the Pod is deleted")
        await agents.pass_time(10)
        assert placed(await agents.job(key)) == ("Running", "a", 2)
        assert await pods() == []
        await change_to("Pod")
        job = await agents.job(key)
        assert (placed(job), job.status.message) == (("Pending", None, 2), "spec.runtime of its node a changed to Pod")
        await agents.pass_time(10)
        assert (placed(await agents.job(key)), failures(job)) == (("Running", "a", 3), (0, ()))
        await eventually(lambda: has_pods("job-2"), "and runs as a Pod again")


async def test_a_job_with_credentials_is_not_run_by_an_agent_even_if_another_scheduler_placed_it(
    agents: AgentFleet, client: Client
) -> None:
    await agents.agent("a")
    async with agents.operating():
        key = await agents.submit("job", schedulerName="mine", credentialsSecretRef=LocalSecretRef("keys"))
        await client.patch_status(JOBS, key, {"assignedNode": "a"})
        await agents.settled()
        job = await agents.job(key)
        assert (placed(job), condition(job, "Scheduled")) == (("Pending", "a", 0), ("False", "BackendUnavailable"))
