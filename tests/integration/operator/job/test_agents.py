"""Jobs that agents run: what the operator does about them, and what it leaves alone."""

from collections.abc import AsyncIterator

import pytest

from tests.conftest import Logged
from tests.support.agent_fleet import AgentFleet, agent_fleet, failures, placed, running_on
from tests.support.fleet import add_node, allow_pods, condition
from tests.support.waiting import eventually
from vmafx.api.meta import Condition, LocalSecretRef
from vmafx.api.node import NodeView
from vmafx.kube import JOBS, NODES, Client, ObjectKey
from vmafx.kube.core import PODS


@pytest.fixture
async def fleet(client: Client, namespace: str) -> AsyncIterator[AgentFleet]:
    async with agent_fleet(client, namespace) as fleet:
        yield fleet


async def test_a_job_is_offered_to_its_agent_and_its_result_is_kept(
    fleet: AgentFleet, client: Client, namespace: str
) -> None:
    await fleet.agent("a", capacity=2)
    node = ObjectKey(namespace, "a")

    def slots(state: str) -> float | None:
        return fleet.metrics.registry.get_sample_value("vmafx_slots", {"vendor": "cpu", "state": state})

    async def assigned(jobs: int) -> bool:
        return (await client.get(NODES, node)).status.assignedJobs == jobs

    async with fleet.operating():
        key = await fleet.submit("job", ttlSecondsAfterFinished=3600)
        await fleet.settled()
        job = await fleet.job(key)
        assert placed(job) == ("Running", "a", 1)
        assert condition(job, "Scheduled") == ("True", "PlacedWithAgent")
        assert job.status.controllerJobID == f"{job.metadata.uid}-0"
        assert (slots("used"), slots("free")) == (1, 1)
        await eventually(lambda: assigned(1), "its node tells of it")
        await fleet.claim(key)
        await fleet.pass_time(300, beating=["a"])
        await fleet.report(key, score=93.5, frames=300)
        await eventually(lambda: slots("used") == 0, "its slot is free")
        await eventually(lambda: assigned(0), "its node tells of that")
        job = await fleet.job(key)
        assert (*placed(job), job.status.score, *failures(job)) == ("Succeeded", "a", 1, 93.5, 0, ())
        assert (await client.list(PODS, namespace)).items == []
        assert await fleet.events("job") == set()
        fleet.ahead += 3600

    async def deleted() -> bool:
        return (await client.list(JOBS, namespace)).items == []

    async with fleet.operating():
        await eventually(deleted, "its time is up")


async def test_what_is_not_taken_within_a_minute_goes_elsewhere(fleet: AgentFleet) -> None:
    await fleet.agent("a")
    async with fleet.operating():
        key = await running_on(fleet, "a", claimed=False)
        await fleet.agent("b")
        await fleet.pass_time(50, beating=["a", "b"])
        assert placed(await fleet.job(key)) == ("Running", "a", 1)
        await fleet.pass_time(30, beating=["a", "b"])
        job = await fleet.job(key)
        assert (placed(job), failures(job)) == (("Running", "b", 2), (1, ("a",)))
        told = ("Retrying", "its agent a did not take it within 60 s")
        await eventually(lambda: _told(fleet, "job", told), "it is told")
        assert await fleet.ready("a") == "Healthy"  # it may have its reasons


async def _told(fleet: AgentFleet, name: str, wanted: tuple[str, str]) -> bool:
    return wanted in await fleet.events(name)


async def test_what_a_silent_agent_had_goes_elsewhere(
    fleet: AgentFleet, client: Client, namespace: str, logged: Logged
) -> None:
    await fleet.agent("a")
    async with fleet.operating():
        key = await running_on(fleet, "a")
        await fleet.agent("b")
        await fleet.pass_time(50, beating=["b"])
        assert placed(await fleet.job(key)) == ("Running", "a", 1)
        await fleet.pass_time(30, beating=["b"])
        job, node = await fleet.job(key), await client.get(NODES, ObjectKey(namespace, "a"))
        assert (placed(job), failures(job)) == (("Running", "b", 2), (1, ("a",)))
        assert (node.status.healthy, await fleet.ready("a")) == (False, "AgentLost")
        heard = node.status.lastHeartbeat
        assert heard is not None
        since = heard.isoformat().replace("+00:00", "Z")
        told = ("Retrying", f"its node a has not been heard of since {since}")
        await eventually(lambda: _told(fleet, "job", told), "it is told")
        lost = ("AgentLost", f"no heartbeat since {since}; its jobs go elsewhere")
        await eventually(lambda: _told(fleet, "a", lost), "of the node too")
        await fleet.pass_time(10, beating=["a", "b"])
        assert await fleet.ready("a") == "Healthy"
        await fleet.claim(key)
        await fleet.pass_time(120, beating=["a", "b"])
        assert placed(await fleet.job(key)) == ("Running", "b", 2)
    assert [message for message, _ in logged("node", f"{namespace}/a")] == ["agent lost", "node healthy"]
    assert logged("node", f"{namespace}/a")[0][1] == {"reason": "AgentLost", "heartbeat": since}
    assert logged("job", str(key)) == [
        ("job placed", {"node": "a", "attempt": 1}),
        ("attempt failed, will retry", {"node": "a", "attempt": 1, "error": told[1]}),
        ("job placed", {"node": "b", "attempt": 2}),
    ]


@pytest.mark.parametrize("claimed", [True, False], ids=["claimed", "not claimed"])
async def test_a_controller_that_is_away_moves_no_job(fleet: AgentFleet, claimed: bool) -> None:
    """Nor does it when it is back, and its agents are."""
    await fleet.agent("a")
    async with fleet.operating():
        key = await running_on(fleet, "a", claimed=claimed)
        await fleet.agent("spare")
        await fleet.pass_time(20 if not claimed else 120, beating=["a", "spare"])
        fleet.controller.status = 503
        await fleet.pass_time(90)
        assert await fleet.ready("a") == "HeartbeatStale"
        fleet.controller.status = 200
        await fleet.pass_time(20)
        assert placed(await fleet.job(key)) == ("Running", "a", 1)
        await fleet.pass_time(10, beating=["a", "spare"])
        await fleet.claim(key)
        await fleet.pass_time(180, beating=["a", "spare"])
        job = await fleet.job(key)
        assert (placed(job), failures(job)) == (("Running", "a", 1), (0, ()))
        assert await fleet.ready("a") == "Healthy"


async def test_an_agent_that_went_while_the_controller_was_away_is_missed_a_minute_later(fleet: AgentFleet) -> None:
    await fleet.agent("a")
    async with fleet.operating():
        key = await running_on(fleet, "a")
        await fleet.agent("b")
        await fleet.pass_time(120, beating=["a", "b"])
        fleet.controller.status = 503
        await fleet.pass_time(900)
        fleet.controller.status = 200
        await fleet.pass_time(60, beating=["b"])
        assert (placed(await fleet.job(key)), await fleet.ready("a")) == (("Running", "a", 1), "HeartbeatStale")
        await fleet.pass_time(60, beating=["b"])
        job = await fleet.job(key)
        assert (placed(job), failures(job)) == (("Running", "b", 2), (1, ("a",)))


async def test_a_restart_takes_nothing_away_from_agents_that_are_heard(fleet: AgentFleet) -> None:
    await fleet.agent("a")
    async with fleet.operating():
        key = await running_on(fleet, "a", claimed=False)
        await fleet.agent("spare")
    fleet.ahead += 600  # everything was away
    async with fleet.operating():
        await fleet.pass_time(20)
        assert placed(await fleet.job(key)) == ("Running", "a", 1)
        await fleet.pass_time(20, beating=["a", "spare"])
        await fleet.claim(key)
        await fleet.pass_time(120, beating=["a", "spare"])
        job = await fleet.job(key)
        assert (placed(job), failures(job)) == (("Running", "a", 1), (0, ()))


async def test_a_restart_forgets_nobody_who_is_silent(fleet: AgentFleet) -> None:
    await fleet.agent("a")
    async with fleet.operating():
        key = await running_on(fleet, "a")
        await fleet.agent("b")
        await fleet.pass_time(50, beating=["b"])
    async with fleet.operating():
        await fleet.pass_time(50, beating=["b"])
        assert (placed(await fleet.job(key)), await fleet.ready("a")) == (("Running", "a", 1), "HeartbeatStale")
        await fleet.pass_time(40, beating=["b"])
        assert placed(await fleet.job(key)) == ("Running", "b", 2)


@pytest.mark.parametrize("heard", [False, True], ids=["silent", "heard since"])
async def test_a_verdict_counts_after_a_restart_unless_a_heartbeat_came(
    heard: bool, fleet: AgentFleet, client: Client, namespace: str
) -> None:
    """As an operator leaves it that is stopped between the verdict and what follows from it."""
    await fleet.agent("a")
    async with fleet.operating():
        key = await running_on(fleet, "a")
        await fleet.agent("b")
        await fleet.settled()
    node = await client.get(NODES.seen_as(NodeView), ObjectKey(namespace, "a"))
    since = node.status.lastHeartbeat
    assert since is not None
    says = f"no heartbeat since {since.isoformat().replace('+00:00', 'Z')}; its jobs go elsewhere"
    lost = Condition("Ready", "False", fleet.now(), "AgentLost", says)
    verdict = {"healthy": False, "observedHeartbeat": since, "conditions": [lost]}
    await client.patch_status(NODES, ObjectKey(namespace, "a"), verdict)
    fleet.ahead += 90
    await fleet.beat("b")
    if heard:
        await fleet.beat("a")
    async with fleet.operating():
        await fleet.pass_time(20, beating=["a", "b"] if heard else ["b"])
        assert placed(await fleet.job(key)) == (("Running", "a", 1) if heard else ("Running", "b", 2))


async def test_a_node_that_is_deleted_is_nobodys_failure(fleet: AgentFleet, client: Client, namespace: str) -> None:
    await fleet.agent("a")
    async with fleet.operating():
        key = await running_on(fleet, "a")
        await fleet.agent("b")
        await client.delete(NODES, ObjectKey(namespace, "a"))
        await fleet.settled()
        assert condition(await fleet.job(key), "Scheduled") == ("False", "Retrying")
        await fleet.pass_time(10, beating=["b"])
        job = await fleet.job(key)
        assert (placed(job), failures(job)) == (("Running", "b", 2), (0, ()))


@pytest.mark.parametrize("claimed", [True, False], ids=["claimed", "not claimed"])
async def test_cancel_and_suspend_while_the_agent_has_it(fleet: AgentFleet, client: Client, claimed: bool) -> None:
    await fleet.agent("a")
    async with fleet.operating():
        key = await running_on(fleet, "a", claimed=claimed)
        await client.merge_patch(JOBS, key, {"spec": {"suspend": True}})
        await fleet.settled()
        job = await fleet.job(key)
        assert (placed(job), condition(job, "Scheduled")) == (("Pending", None, 1), ("False", "Suspended"))
        assert (job.status.controllerJobID, job.status.claimedAt, job.status.progress) == (None, None, None)
        await client.merge_patch(JOBS, key, {"spec": {"suspend": False}})
        await fleet.settled()
        job = await fleet.job(key)
        assert (placed(job), job.status.controllerJobID) == (("Running", "a", 2), f"{job.metadata.uid}-1")
        await client.merge_patch(JOBS, key, {"spec": {"cancel": True}})
        await fleet.settled()
        job = await fleet.job(key)
        assert (job.status.phase, condition(job, "Failed")) == ("Failed", ("True", "Cancelled"))
        assert failures(job) == (0, ())


async def test_a_deadline_runs_over_all_attempts(fleet: AgentFleet) -> None:
    await fleet.agent("a")
    async with fleet.operating():
        key = await fleet.submit("job", activeDeadlineSeconds=100)
        await fleet.settled()
        await fleet.pass_time(80, beating=["a"])  # not taken, and tried again
        await fleet.claim(key)
        await fleet.pass_time(10, beating=["a"])
        assert placed(await fleet.job(key)) == ("Running", "a", 2)
        await fleet.pass_time(20, beating=["a"])
        job = await fleet.job(key)
        assert (job.status.phase, condition(job, "Failed")) == ("Failed", ("True", "DeadlineExceeded"))


async def test_an_agent_that_fails_again_and_again(fleet: AgentFleet) -> None:
    await fleet.agent("a")
    async with fleet.operating():
        key = await fleet.submit("job", retryLimit=1)
        await fleet.settled()
        await fleet.report(key, fault="EngineFailure", message="no luck")
        await fleet.settled()
        assert condition(await fleet.job(key), "Scheduled") == ("False", "Retrying")
        await fleet.pass_time(10, beating=["a"])
        job = await fleet.job(key)
        assert (placed(job), failures(job)) == (("Running", "a", 2), (1, ("a",)))
        await fleet.pass_time(70, beating=["a"])
        job = await fleet.job(key)
        assert (job.status.phase, condition(job, "Failed")) == ("Failed", ("True", "RetriesExhausted"))
        assert job.status.message == "failed 2 times, last error: its agent a did not take it within 60 s"


async def test_a_node_that_changes_its_runtime_gives_its_jobs_back(
    fleet: AgentFleet, client: Client, namespace: str
) -> None:
    await allow_pods(client, namespace)
    await add_node(client, namespace, "a")

    async def turns(runtime: str) -> None:
        await client.merge_patch(NODES, ObjectKey(namespace, "a"), {"spec": {"runtime": runtime}})
        await fleet.settled()

    async def pods() -> list[str]:
        return sorted(one["metadata"]["name"] for one in (await client.list(PODS, namespace)).items)

    async def has_pods(*names: str) -> bool:
        return await pods() == list(names)

    async with fleet.operating():
        key = await fleet.submit("job")
        await eventually(lambda: has_pods("job-0"), "it runs as a Pod")
        await client.patch_status(NODES, ObjectKey(namespace, "a"), {"agentSession": "s"})
        await turns("Agent")
        job = await fleet.job(key)
        assert (placed(job), failures(job)) == (("Pending", None, 1), (0, ()))
        assert job.status.message == "its node a now has an agent run its jobs"
        await eventually(has_pods, "the Pod is ended")
        await fleet.pass_time(10)
        assert placed(await fleet.job(key)) == ("Running", "a", 2)
        assert await pods() == []
        await turns("Pod")
        job = await fleet.job(key)
        assert (placed(job), job.status.message) == (("Pending", None, 2), "its node a now runs its jobs as Pods")
        await fleet.pass_time(10)
        assert (placed(await fleet.job(key)), failures(job)) == (("Running", "a", 3), (0, ()))
        await eventually(lambda: has_pods("job-2"), "and runs as a Pod again")


async def test_credentials_are_given_to_no_agent_whoever_places_the_job(fleet: AgentFleet, client: Client) -> None:
    await fleet.agent("a")
    async with fleet.operating():
        key = await fleet.submit("job", schedulerName="mine", credentialsSecretRef=LocalSecretRef("keys"))
        await client.patch_status(JOBS, key, {"assignedNode": "a"})
        await fleet.settled()
        job = await fleet.job(key)
        assert (placed(job), condition(job, "Scheduled")) == (("Pending", "a", 0), ("False", "BackendUnavailable"))
