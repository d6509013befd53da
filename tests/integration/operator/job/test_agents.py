"""Jobs that agents run: what the operator does about them, and what it leaves alone."""

import pytest

from tests.conftest import Logged
from tests.support.agent_fleet import AgentFleet, failures, placed, running_on
from tests.support.fleet import add_node, allow_pods, condition
from tests.support.waiting import eventually
from vmafx.api.meta import Condition, LocalSecretRef
from vmafx.api.node import NodeView
from vmafx.kube import JOBS, NODES, Client, ObjectKey
from vmafx.kube.core import PODS


async def test_a_job_is_offered_to_its_agent_and_its_result_is_kept(
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
        await eventually(lambda: assigned(1), "its node tells of it")
        await agents.claim(key)
        await agents.pass_time(300, beating=["a"])
        await agents.report(key, score=93.5, frames=300)
        await eventually(lambda: slots("used") == 0, "its slot is free")
        await eventually(lambda: assigned(0), "its node tells of that")
        job = await agents.job(key)
        assert (*placed(job), job.status.score, *failures(job)) == ("Succeeded", "a", 1, 93.5, 0, ())
        assert (await client.list(PODS, namespace)).items == []
        assert await agents.events("job") == set()
        agents.ahead += 3600

    async def deleted() -> bool:
        return (await client.list(JOBS, namespace)).items == []

    async with agents.operating():
        await eventually(deleted, "its time is up")


async def test_what_is_not_taken_within_a_minute_goes_elsewhere(agents: AgentFleet) -> None:
    await agents.agent("a")
    async with agents.operating():
        key = await running_on(agents, "a", claimed=False)
        await agents.agent("b")
        await agents.pass_time(50, beating=["a", "b"])
        assert placed(await agents.job(key)) == ("Running", "a", 1)
        await agents.pass_time(30, beating=["a", "b"])
        job = await agents.job(key)
        assert (placed(job), failures(job)) == (("Running", "b", 2), (1, ("a",)))
        told = ("Retrying", "its agent a did not take it within 60 s")
        await eventually(lambda: _told(agents, "job", told), "it is told")
        assert await agents.ready("a") == "Healthy"  # it may have its reasons


async def _told(agents: AgentFleet, name: str, wanted: tuple[str, str]) -> bool:
    return wanted in await agents.events(name)


async def test_what_a_silent_agent_had_goes_elsewhere(
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
        heard = node.status.lastHeartbeat
        assert heard is not None
        since = heard.isoformat().replace("+00:00", "Z")
        told = ("Retrying", f"its node a has not been heard of since {since}")
        await eventually(lambda: _told(agents, "job", told), "it is told")
        lost = ("AgentLost", f"no heartbeat since {since}; its jobs go elsewhere")
        await eventually(lambda: _told(agents, "a", lost), "of the node too")
        await agents.pass_time(10, beating=["a", "b"])
        assert await agents.ready("a") == "Healthy"
        await agents.claim(key)
        await agents.pass_time(120, beating=["a", "b"])
        assert placed(await agents.job(key)) == ("Running", "b", 2)
    assert [message for message, _ in logged("node", f"{namespace}/a")] == ["agent lost", "node healthy"]
    assert logged("node", f"{namespace}/a")[0][1] == {"reason": "AgentLost", "heartbeat": since}
    assert logged("job", str(key)) == [
        ("job placed", {"node": "a", "attempt": 1}),
        ("attempt failed, will retry", {"node": "a", "attempt": 1, "error": told[1]}),
        ("job placed", {"node": "b", "attempt": 2}),
    ]


@pytest.mark.parametrize("claimed", [True, False], ids=["claimed", "not claimed"])
async def test_a_controller_that_is_away_moves_no_job(agents: AgentFleet, claimed: bool) -> None:
    """Nor does it when it is back, and its agents are."""
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


async def test_an_agent_that_went_while_the_controller_was_away_is_missed_a_minute_later(agents: AgentFleet) -> None:
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


async def test_a_restart_takes_nothing_away_from_agents_that_are_heard(agents: AgentFleet) -> None:
    await agents.agent("a")
    async with agents.operating():
        key = await running_on(agents, "a", claimed=False)
        await agents.agent("spare")
    agents.ahead += 600  # everything was away
    async with agents.operating():
        await agents.pass_time(20)
        assert placed(await agents.job(key)) == ("Running", "a", 1)
        await agents.pass_time(20, beating=["a", "spare"])
        await agents.claim(key)
        await agents.pass_time(120, beating=["a", "spare"])
        job = await agents.job(key)
        assert (placed(job), failures(job)) == (("Running", "a", 1), (0, ()))


async def test_a_restart_forgets_nobody_who_is_silent(agents: AgentFleet) -> None:
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


@pytest.mark.parametrize("heard", [False, True], ids=["silent", "heard since"])
async def test_a_verdict_counts_after_a_restart_unless_a_heartbeat_came(
    heard: bool, agents: AgentFleet, client: Client, namespace: str
) -> None:
    """As an operator leaves it that is stopped between the verdict and what follows from it."""
    await agents.agent("a")
    async with agents.operating():
        key = await running_on(agents, "a")
        await agents.agent("b")
        await agents.settled()
    node = await client.get(NODES.seen_as(NodeView), ObjectKey(namespace, "a"))
    since = node.status.lastHeartbeat
    assert since is not None
    says = f"no heartbeat since {since.isoformat().replace('+00:00', 'Z')}; its jobs go elsewhere"
    lost = Condition("Ready", "False", agents.now(), "AgentLost", says)
    verdict = {"healthy": False, "observedHeartbeat": since, "conditions": [lost]}
    await client.patch_status(NODES, ObjectKey(namespace, "a"), verdict)
    agents.ahead += 90
    await agents.beat("b")
    if heard:
        await agents.beat("a")
    async with agents.operating():
        await agents.pass_time(20, beating=["a", "b"] if heard else ["b"])
        assert placed(await agents.job(key)) == (("Running", "a", 1) if heard else ("Running", "b", 2))


async def test_a_node_that_is_deleted_is_nobodys_failure(agents: AgentFleet, client: Client, namespace: str) -> None:
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
async def test_cancel_and_suspend_while_the_agent_has_it(agents: AgentFleet, client: Client, claimed: bool) -> None:
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


async def test_a_deadline_runs_over_all_attempts(agents: AgentFleet) -> None:
    await agents.agent("a")
    async with agents.operating():
        key = await agents.submit("job", activeDeadlineSeconds=100)
        await agents.settled()
        await agents.pass_time(80, beating=["a"])  # not taken, and tried again
        await agents.claim(key)
        await agents.pass_time(10, beating=["a"])
        assert placed(await agents.job(key)) == ("Running", "a", 2)
        await agents.pass_time(20, beating=["a"])
        job = await agents.job(key)
        assert (job.status.phase, condition(job, "Failed")) == ("Failed", ("True", "DeadlineExceeded"))


async def test_an_agent_that_fails_again_and_again(agents: AgentFleet) -> None:
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
        assert job.status.message == "failed 2 times, at last: its agent a did not take it within 60 s"


async def test_a_node_that_changes_its_runtime_gives_its_jobs_back(
    agents: AgentFleet, client: Client, namespace: str
) -> None:
    await allow_pods(client, namespace)
    await add_node(client, namespace, "a")

    async def turns(runtime: str) -> None:
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
        await turns("Agent")
        job = await agents.job(key)
        assert (placed(job), failures(job)) == (("Pending", None, 1), (0, ()))
        assert job.status.message == "its node a now has an agent run its jobs"
        await eventually(has_pods, "the Pod is ended")
        await agents.pass_time(10)
        assert placed(await agents.job(key)) == ("Running", "a", 2)
        assert await pods() == []
        await turns("Pod")
        job = await agents.job(key)
        assert (placed(job), job.status.message) == (("Pending", None, 2), "its node a now runs its jobs as Pods")
        await agents.pass_time(10)
        assert (placed(await agents.job(key)), failures(job)) == (("Running", "a", 3), (0, ()))
        await eventually(lambda: has_pods("job-2"), "and runs as a Pod again")


async def test_credentials_are_given_to_no_agent_whoever_places_the_job(agents: AgentFleet, client: Client) -> None:
    await agents.agent("a")
    async with agents.operating():
        key = await agents.submit("job", schedulerName="mine", credentialsSecretRef=LocalSecretRef("keys"))
        await client.patch_status(JOBS, key, {"assignedNode": "a"})
        await agents.settled()
        job = await agents.job(key)
        assert (placed(job), condition(job, "Scheduled")) == (("Pending", "a", 0), ("False", "BackendUnavailable"))
