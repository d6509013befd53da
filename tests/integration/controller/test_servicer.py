"""The controller's calls, by gRPC, on the real API server; the operator places, and agents are played."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import grpc
import pytest

from tests.conftest import Logged
from tests.support.fleet import add_node, has_seen, operating
from tests.support.inprocess_controller import Agent, controller_stub, running_controller
from tests.support.proxy import FaultyProxy, Refuse, Stall
from tests.support.waiting import eventually
from vmafx.api.job import JobProgress, VmafxJob, VmafxJobSpec
from vmafx.api.meta import ObjectMeta
from vmafx.auth.access import InsecureAccess
from vmafx.auth.credentials import CallerCredentials
from vmafx.clock import utc_now
from vmafx.controller import registry as nodes_of_agents
from vmafx.controller.caches import make_caches
from vmafx.controller.registry import AgentDescription, AgentRegistry
from vmafx.controller.results import ResultRecorder
from vmafx.controller.servicer import ControllerServicer, ServicerParts
from vmafx.controller.sessions import Sessions
from vmafx.http.errors import CallRefused
from vmafx.jobs.attempt import AttemptResult
from vmafx.kube import JOBS, NODES, Client, ObjectKey
from vmafx.kube.core import EVENTS
from vmafx.kube.errors import ServerError
from vmafx.runtime.events import EventRecorder
from vmafx.runtime.metrics import Metrics
from vmafx.wire import controller_pb2 as wire
from vmafx.wire.controller_pb2_grpc import VmafxControllerStub

CLIPS = wire.ScoringParams(reference="file:///a.mp4", distorted="file:///b.mp4")


@pytest.fixture
async def port(client: Client, namespace: str) -> AsyncIterator[int]:
    async with running_controller(client, namespace) as port:
        yield port


@pytest.fixture
async def stub(port: int) -> AsyncIterator[VmafxControllerStub]:
    async with controller_stub(port) as stub:
        yield stub


async def job_of(client: Client, namespace: str, name: str) -> VmafxJob:
    return await client.get(JOBS, ObjectKey(namespace, name))


async def submitted(stub: VmafxControllerStub, name: str, spec: str = "") -> str:
    return (await stub.SubmitJob(wire.SubmitJobRequest(scoring=CLIPS, name=name, spec=spec))).job_id


async def joined(client: Client, namespace: str, agent: Agent, **more: object) -> None:
    """Registered, and found healthy, which is for the operator's other half to say."""
    await agent.register(**more)
    await client.patch_status(NODES, ObjectKey(namespace, agent.name), {"healthy": True})


async def refused(call: Awaitable[object], code: grpc.StatusCode) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    assert error.value.code() == code, error.value.details()
    return error.value.details() or ""


async def test_a_job_from_submission_to_score(client: Client, namespace: str, stub: VmafxControllerStub) -> None:
    agent = Agent(stub, "box", capacity=2)
    await joined(client, namespace, agent, device="a fine machine", fps=123.456, labels={"zone": "a"})
    node = await client.get(NODES, ObjectKey(namespace, "box"))
    assert node.spec.runtime == "Agent"
    assert node.metadata.labels == {"zone": "a", "vmafx.dev/registered-by": "agent"}
    assert (node.status.detectedDevice, node.status.throughput) == ("a fine machine", 123.46)
    async with operating(client, namespace):
        uid = await submitted(stub, "one", '{"priority": 3, "options": {"subsample": 2}}')
        pulled = await agent.pull()
        assert pulled.job.id == f"{uid}-0"
        assert '"subsample":2' in pulled.job.work
        assert (await stub.GetJob(wire.GetJobRequest(job_id=uid))).status == wire.RUNNING
        assert await agent.scored(pulled.job.id, 91.5)
    done = await stub.GetJob(wire.GetJobRequest(job_id=pulled.job.id))
    assert (done.id, done.status, done.final_score, done.name) == (pulled.job.id, wire.COMPLETED, 91.5, "one")
    late = await stub.CancelJob(wire.CancelJobRequest(job_id=uid))
    assert (late.ok, late.message) == (False, "the job has succeeded already; there is nothing to cancel")
    job = await job_of(client, namespace, "one")
    assert (job.status.phase, job.status.attempts, job.status.assignedNode) == ("Succeeded", 1, "box")
    assert job.status.claimedAt is None  # it was too short for that: two writes in all


async def test_work_is_there_as_soon_as_it_is_placed_and_only_for_its_node(
    client: Client, namespace: str, stub: VmafxControllerStub
) -> None:
    first, second = Agent(stub, "first"), Agent(stub, "second")
    await joined(client, namespace, first)
    await joined(client, namespace, second)
    waiting = [asyncio.create_task(agent.pull(wait=60)) for agent in (first, second)]
    async with operating(client, namespace):
        await submitted(stub, "a")
        await submitted(stub, "b")
        answers = await asyncio.gather(*waiting)
        assert {one.job.name for one in answers} == {"a", "b"}
        for agent in (first, second):
            [attempt] = agent.running
            assert (await job_of(client, namespace, agent.running[attempt])).status.assignedNode == agent.name
            assert not (await agent.pull(wait=0)).HasField("job")  # it is full
            assert await agent.scored(attempt)


@pytest.mark.parametrize("change", ["cancel", "suspend", "delete"])
async def test_an_agent_is_told_to_stop(client: Client, namespace: str, stub: VmafxControllerStub, change: str) -> None:
    agent = Agent(stub, "box")
    await joined(client, namespace, agent)
    async with operating(client, namespace):
        await submitted(stub, "one")
        attempt = (await agent.pull()).job.id
        assert list((await agent.beat()).stop_job_ids) == []
        waiting = asyncio.create_task(agent.pull())
        if change == "delete":
            await client.delete(JOBS, ObjectKey(namespace, "one"))
        else:
            await client.merge_patch(JOBS, ObjectKey(namespace, "one"), {"spec": {change: True}})
        assert list((await waiting).stop_job_ids) == [attempt]
        assert list((await agent.beat()).stop_job_ids) == [attempt]
        assert not await agent.scored(attempt)  # too late


async def test_a_result_counts_once_and_only_from_the_node_that_has_it(
    client: Client, namespace: str, stub: VmafxControllerStub
) -> None:
    agent, other = Agent(stub, "box"), Agent(stub, "other")
    await joined(client, namespace, agent)
    async with operating(client, namespace):
        await submitted(stub, "one")
        attempt = (await agent.pull()).job.id
        await joined(client, namespace, other)
        assert not await other.report(attempt, final=True, score=10.0, name="one")
        wrong = attempt.removesuffix("-0") + "-1"
        assert not await agent.report(wrong, final=True, score=10.0, name="one")
        assert await agent.scored(attempt, 80.0)
        assert await agent.report(attempt, final=True, score=10.0, name="one")  # heard already
    assert (await job_of(client, namespace, "one")).status.score == 80.0


async def test_progress_says_that_the_job_was_taken(client: Client, namespace: str, stub: VmafxControllerStub) -> None:
    agent = Agent(stub, "box")
    await joined(client, namespace, agent)
    async with operating(client, namespace):
        uid = await submitted(stub, "one")
        attempt = (await agent.pull()).job.id
        assert await agent.report(attempt, progress=wire.Progress(frames=5, total_frames=20, fps=2.5))
        job = await job_of(client, namespace, "one")
        assert job.status.claimedAt is not None
        assert job.status.progress is not None
        assert (job.status.progress.frames, job.status.progress.totalFrames) == (5, 20)
        told = (await stub.GetJob(wire.GetJobRequest(job_id=uid))).progress
        assert (told.frames, told.fps) == (5, 2.5)
        assert await agent.report(attempt, progress=wire.Progress(frames=6))
        assert await agent.scored(attempt)

        async def over() -> bool:
            return not await agent.report(attempt, name="one", progress=wire.Progress(frames=7))

        await eventually(over, "progress of a job that is over does not count")


async def test_the_progress_of_a_finished_job_is_complete_or_gone(
    client: Client, namespace: str, stub: VmafxControllerStub
) -> None:
    agent = Agent(stub, "box", capacity=2)
    await joined(client, namespace, agent)
    async with operating(client, namespace):
        for name in ("good", "bad"):
            await submitted(stub, name)
            attempt = (await agent.pull()).job.id
            assert await agent.report(attempt, progress=wire.Progress(frames=4, total_frames=7, fps=2.5))
        attempts = {name: one for one, name in agent.running.items()}
        fault = f'{{"id": "{attempts["bad"]}", "fault": "BadInput", "message": "so it is"}}'
        assert await agent.report(attempts["bad"], final=True, answer=fault)
        assert await agent.scored(attempts["good"])
    good, bad = [await job_of(client, namespace, name) for name in ("good", "bad")]
    assert (good.status.phase, good.status.frames, good.status.progress) == ("Succeeded", 6, JobProgress(6, 6, 2.5))
    assert (bad.status.phase, bad.status.progress) == ("Failed", None)


async def test_progress_that_comes_after_the_end_changes_nothing(client: Client, namespace: str) -> None:
    """Though the controller's cache still shows that the job runs."""
    await client.create(
        JOBS, VmafxJob(metadata=ObjectMeta(name="one"), spec=VmafxJobSpec("file:///a", "file:///b")), namespace
    )
    key = ObjectKey(namespace, "one")
    attempt = f"{(await client.get(JOBS, key)).metadata.uid}-0"
    running = {"phase": "Running", "assignedNode": "box", "controllerJobID": attempt, "attempts": 1}
    await client.patch_status(JOBS, key, running | {"claimedAt": utc_now()})
    cached = make_caches(client, namespace)
    following = asyncio.create_task(cached.jobs.run())
    await cached.jobs.synced.wait()
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    results = ResultRecorder(client, cached, EventRecorder(client, "vmafx-controller", "test"), Metrics())
    session = Sessions(b"k" * 32).begin(ObjectKey(namespace, "box"))
    assert await results.progress(session, attempt, "one", JobProgress(3, 6, 2.5))
    results._told.clear()  # as if it were a while ago
    assert await results.final(session, attempt, "one", AttemptResult(attempt, 90.0, 6))
    assert not await results.progress(session, attempt, "one", JobProgress(4, 6, 2.5))
    assert (await client.get(JOBS, key)).status.progress == JobProgress(6, 6, 2.5)


async def test_how_agents_end_jobs_is_logged_and_told_once(
    client: Client, namespace: str, stub: VmafxControllerStub, logged: Logged
) -> None:
    agent = Agent(stub, "box", capacity=2)
    await joined(client, namespace, agent)
    async with operating(client, namespace):
        for name in ("good", "broken"):
            await submitted(stub, name)
            await agent.pull()
        attempts = {name: one for one, name in agent.running.items()}
        fault = f'{{"id": "{attempts["broken"]}", "fault": "NodeFault", "message": "the disk is full"}}'
        assert await agent.report(attempts["broken"], final=True, answer=fault)
        assert await agent.scored(attempts["good"])
        assert await agent.report(attempts["good"], final=True, score=90.0, name="good")  # heard already
        assert logged("job", f"{namespace}/good") == [
            ("job placed", {"node": "box", "attempt": 1}),
            ("job succeeded", {"node": "box", "attempt": 1, "score": 90.0, "frames": 6}),
        ]
        assert logged("job", f"{namespace}/broken")[:2] == [
            ("job placed", {"node": "box", "attempt": 1}),
            ("attempt failed, will retry", {"node": "box", "attempt": 1, "error": "NodeFault: the disk is full"}),
        ]

        async def told() -> bool:
            events = (await client.list(EVENTS, namespace)).items
            found = {(one["regarding"]["name"], one["type"], one["reason"], one["note"]) for one in events}
            return found == {
                ("good", "Normal", "Scored", "VMAF 90.000, 6 frames"),
                ("broken", "Warning", "Retrying", "NodeFault: the disk is full"),
            }

        await eventually(told, "events tell of both")


async def test_a_failure_of_the_node_goes_to_another_and_a_bad_clip_to_none(
    client: Client, namespace: str, stub: VmafxControllerStub
) -> None:
    agent = Agent(stub, "box", capacity=2)
    await joined(client, namespace, agent)
    async with operating(client, namespace):
        await submitted(stub, "broken")
        await submitted(stub, "bad")
        for _ in range(2):
            await agent.pull()
        attempts = {name: one for one, name in agent.running.items()}
        fault = '{{"id": "{}", "fault": "{}", "message": "so it is"}}'
        assert await agent.report(attempts["broken"], final=True, answer=fault.format(attempts["broken"], "NodeFault"))
        assert await agent.report(attempts["bad"], final=True, answer=fault.format(attempts["bad"], "BadInput"))
    broken, bad = [await job_of(client, namespace, name) for name in ("broken", "bad")]
    assert (broken.status.phase, broken.status.failures, broken.status.excludedNodes) == ("Pending", 1, ("box",))
    assert (bad.status.phase, bad.status.message) == ("Failed", "so it is")
    told = await stub.GetJob(wire.GetJobRequest(job_id=bad.metadata.uid))
    assert (told.status, told.error, told.reason) == (wire.FAILED, "so it is", "BadInput")


async def test_the_last_agent_of_a_name_speaks_for_the_node(
    client: Client, namespace: str, stub: VmafxControllerStub
) -> None:
    old, new = Agent(stub, "box"), Agent(stub, "box")
    await joined(client, namespace, old)
    waiting = asyncio.create_task(old.pull(wait=60))
    async with operating(client, namespace):
        await joined(client, namespace, new)

        async def superseded() -> bool:
            answer = await old.beat()
            return (answer.ok, answer.superseded) == (False, True)

        await eventually(superseded, "the controller has seen the node as it is, which jobs may be ahead of")
        await submitted(stub, "one")
        attempt = (await new.pull()).job.id
        await refused(waiting, grpc.StatusCode.UNAUTHENTICATED)
        await refused(old.report(attempt, final=True, score=1.0, name="one"), grpc.StatusCode.UNAUTHENTICATED)
        assert await new.scored(attempt)


async def test_sessions_work_with_every_replica_and_after_a_restart(client: Client, namespace: str) -> None:
    async with running_controller(client, namespace) as first, controller_stub(first) as one:
        agent = Agent(one, "box")
        await agent.register()
        async with running_controller(client, namespace) as second, controller_stub(second) as two:
            there = Agent(two, "box")
            there.me = agent.me
            assert (await there.beat()).ok
    async with running_controller(client, namespace) as third, controller_stub(third) as three:
        after = Agent(three, "box")
        after.me = agent.me
        assert (await after.beat()).ok
        said, _, signature = agent.me["session_token"].rpartition(".")
        after.me = {**agent.me, "session_token": f"{said}.{signature[::-1]}"}
        assert not (await after.beat()).ok
        await refused(after.pull(), grpc.StatusCode.UNAUTHENTICATED)


async def test_heartbeats_are_written_now_and_then(
    client: Client, namespace: str, stub: VmafxControllerStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes_of_agents, "HEARTBEAT_WRITE_INTERVAL", 3600.0)
    agent = Agent(stub, "box")
    await agent.register()

    async def known() -> bool:
        return (await agent.beat()).capacity == 1

    await eventually(known, "the controller has seen the node: of one that it has not, every heartbeat is written")
    before = await client.get(NODES, ObjectKey(namespace, "box"))
    for _ in range(20):
        assert (await agent.beat()).ok
    after = await client.get(NODES, ObjectKey(namespace, "box"))
    assert after.metadata.resourceVersion == before.metadata.resourceVersion


@pytest.mark.parametrize(
    ("name", "more", "code", "why"),
    [
        ("Not A Name", {}, grpc.StatusCode.INVALID_ARGUMENT, "not a valid node name"),
        ("../other", {}, grpc.StatusCode.INVALID_ARGUMENT, "not a valid node name"),
        ("box", {"namespace": "elsewhere"}, grpc.StatusCode.FAILED_PRECONDITION, "only"),
        ("box", {"labels": {"no good": "x"}}, grpc.StatusCode.INVALID_ARGUMENT, "label"),
        ("box", {"fps": -1.0}, grpc.StatusCode.INVALID_ARGUMENT, "it must be 0 (not measured)"),
        ("box", {"fps": float("nan")}, grpc.StatusCode.INVALID_ARGUMENT, "it must be 0 (not measured)"),
    ],
)
async def test_no_registration(
    stub: VmafxControllerStub, name: str, more: dict[str, object], code: grpc.StatusCode, why: str
) -> None:
    assert why in await refused(Agent(stub, name).register(**more), code)


async def test_a_node_that_people_made_stays_as_it_is(
    client: Client, namespace: str, stub: VmafxControllerStub
) -> None:
    await add_node(client, namespace, "pods")
    assert "as Pods" in await refused(Agent(stub, "pods").register(), grpc.StatusCode.FAILED_PRECONDITION)
    agent = Agent(stub, "box")
    await agent.register()
    assert "is for cpu" in await refused(
        Agent(stub, "box", vendor="nvidia").register(), grpc.StatusCode.FAILED_PRECONDITION
    )
    assert "is unknown; use one of" in await refused(
        Agent(stub, "new", vendor="acme").register(), grpc.StatusCode.INVALID_ARGUMENT
    )


@pytest.mark.parametrize(
    ("scoring", "spec", "why"),
    [
        (wire.ScoringParams(), "", "missing fields: scoring.reference, scoring.distorted; give the URI"),
        (CLIPS, "[1]", "must be a JSON object"),
        (CLIPS, '{"reference": "file:///c.mp4"}', "scoring.reference and reference in spec differ"),
        (CLIPS, '{"colour": "red"}', "colour"),
        (CLIPS, '{"priority": "high"}', "spec.priority: Invalid value"),
        (wire.ScoringParams(reference="file:///a"), "", "missing fields: scoring.distorted; give the URI"),
        (wire.ScoringParams(reference="a", distorted="b"), "", "reference"),
        (wire.ScoringParams(reference="file:///a", distorted="file:///b", backend="abacus"), "", "backend"),
    ],
)
async def test_no_submission(stub: VmafxControllerStub, scoring: wire.ScoringParams, spec: str, why: str) -> None:
    call = stub.SubmitJob(wire.SubmitJobRequest(scoring=scoring, spec=spec))
    assert why in await refused(call, grpc.StatusCode.INVALID_ARGUMENT)


async def test_cancelling_and_looking_up(client: Client, namespace: str, stub: VmafxControllerStub) -> None:
    async with operating(client, namespace):
        uid = await submitted(stub, "one")
        first = await stub.CancelJob(wire.CancelJobRequest(job_id=uid))
        assert (first.ok, first.message) == (True, "")

        async def cancelled() -> bool:
            return (await stub.GetJob(wire.GetJobRequest(job_id=uid))).status == wire.CANCELLED

        await eventually(cancelled, "it is cancelled")
        again = await stub.CancelJob(wire.CancelJobRequest(job_id=uid))
        assert (again.ok, again.message) == (True, "the job was cancelled already")
    async with running_controller(client, namespace) as port, controller_stub(port) as other:  # which never saw it
        assert (await other.GetJob(wire.GetJobRequest(job_id=uid))).status == wire.CANCELLED
        await refused(other.GetJob(wire.GetJobRequest(job_id="nobody")), grpc.StatusCode.NOT_FOUND)
    await refused(stub.SubmitJob(wire.SubmitJobRequest(scoring=CLIPS, name="one")), grpc.StatusCode.ALREADY_EXISTS)


async def test_a_namespace_that_does_not_exist(client: Client, namespace: str) -> None:
    async with running_controller(client, "", home=namespace) as port, controller_stub(port) as stub:
        for call in (
            stub.StreamJobs(wire.StreamJobsRequest(namespace="nosuch")).read(),
            stub.SubmitJob(wire.SubmitJobRequest(scoring=CLIPS, namespace="nosuch")),
            stub.RegisterNode(wire.RegisterNodeRequest(name="box", namespace="nosuch")),
        ):
            said = await refused(call, grpc.StatusCode.NOT_FOUND)
            assert said == "the namespace 'nosuch' does not exist; create it, or name another one"


@pytest.mark.parametrize("name", ["..", "a/b", "Video", "-a", "a" * 64, "ü"])
async def test_what_cannot_be_a_namespace(client: Client, namespace: str, name: str) -> None:
    async with running_controller(client, "", home=namespace) as port, controller_stub(port) as stub:
        for call in (
            stub.StreamJobs(wire.StreamJobsRequest(namespace=name)).read(),
            stub.SubmitJob(wire.SubmitJobRequest(scoring=CLIPS, namespace=name)),
            stub.RegisterNode(wire.RegisterNodeRequest(name="box", namespace=name)),
        ):
            assert "is not a valid name" in await refused(call, grpc.StatusCode.INVALID_ARGUMENT)


async def test_a_controller_for_one_namespace_refuses_others(namespace: str, stub: VmafxControllerStub) -> None:
    for call in (
        stub.StreamJobs(wire.StreamJobsRequest(namespace="default")).read(),
        stub.SubmitJob(wire.SubmitJobRequest(scoring=CLIPS, namespace="default")),
        stub.RegisterNode(wire.RegisterNodeRequest(name="box", namespace="default")),
    ):
        said = await refused(call, grpc.StatusCode.FAILED_PRECONDITION)
        assert f"serves only the namespace '{namespace}', not 'default'" in said


async def test_a_stream_shows_what_is_there_and_what_becomes_of_it(
    client: Client, namespace: str, stub: VmafxControllerStub
) -> None:
    agent = Agent(stub, "box")
    await joined(client, namespace, agent)
    async with operating(client, namespace):
        uid = await submitted(stub, "one")
        seen: list[int] = []
        async with asyncio.timeout(60):
            async for job in stub.StreamJobs(wire.StreamJobsRequest(status_filter=[wire.RUNNING, wire.COMPLETED])):
                assert job.id == uid
                seen.append(job.status)
                if job.status == wire.RUNNING and not agent.running:
                    await agent.scored((await agent.pull()).job.id)
                if job.status == wire.COMPLETED:
                    break
        assert set(seen) == {wire.RUNNING, wire.COMPLETED}


async def test_a_node_of_the_same_name_elsewhere_cannot_report_for_it(
    client: Client, namespace: str, other_namespace: str
) -> None:
    async with (
        running_controller(client, "", home=namespace) as port,
        controller_stub(port) as stub,
        operating(client, namespace),
    ):
        mine, theirs = Agent(stub, "box"), Agent(stub, "box")
        await joined(client, namespace, mine)  # in the one for those who do not say
        await theirs.register(namespace=other_namespace)
        await stub.SubmitJob(wire.SubmitJobRequest(scoring=CLIPS, name="one", namespace=namespace))
        attempt = (await mine.pull()).job.id
        assert not await theirs.report(attempt, final=True, score=1.0, name="one")
        assert not await theirs.report(attempt, final=True, score=1.0)
        assert not await theirs.report(attempt, progress=wire.Progress(frames=1))
        theirs.running[attempt] = "one"
        assert list((await theirs.beat()).stop_job_ids) == [attempt]
        assert await mine.scored(attempt, 77.0)
    assert (await job_of(client, namespace, "one")).status.score == 77.0


async def test_an_agent_is_told_the_nodes_capacity_and_gets_so_many_jobs(
    client: Client, namespace: str, stub: VmafxControllerStub
) -> None:
    agent = Agent(stub, "box", capacity=1)
    await joined(client, namespace, agent)
    assert agent.node_capacity == 1
    await client.merge_patch(NODES, ObjectKey(namespace, "box"), {"spec": {"capacity": 3}})

    async def told() -> bool:
        return (await agent.beat()).capacity == 3

    await eventually(told, "the heartbeat tells it")
    again = Agent(stub, "box", capacity=1)
    await again.register()
    assert again.node_capacity == 3


async def test_an_agent_that_drains_gets_no_new_jobs(client: Client, namespace: str, stub: VmafxControllerStub) -> None:
    agent = Agent(stub, "box", capacity=2)
    await joined(client, namespace, agent)
    async with operating(client, namespace) as operator:
        assert (await agent.beat(draining=True)).ok
        assert (await client.get(NODES, ObjectKey(namespace, "box"))).status.draining
        await has_seen(operator, client, ObjectKey(namespace, "box"))
        await submitted(stub, "one")

        async def waits() -> bool:
            conditions = (await job_of(client, namespace, "one")).status.conditions
            return [(one.type, one.status) for one in conditions] == [("Scheduled", "False")]

        await eventually(waits, "it waits")
        assert not (await agent.pull(wait=0)).HasField("job")
        await agent.register()  # it is back
        assert (await agent.pull()).job.name == "one"


async def test_a_controller_that_cannot_write_heartbeats_does_not_call_itself_healthy(
    client: Client, namespace: str
) -> None:
    async with FaultyProxy(client.config) as proxy, Client(proxy.config) as through:
        cached = make_caches(through, namespace)
        nodes = AgentRegistry(through, cached, sessions := Sessions(b"k" * 32))
        session, _ = await nodes.register(ObjectKey(namespace, "box"), AgentDescription())
        assert sessions.read(sessions.token(session)) == session
        nodes._beaten.clear()  # as if it were a while ago
        proxy.faults.append(Refuse(500))
        with pytest.raises(ServerError):
            await nodes.beat(session, draining=False)
        assert "cannot be written" in (nodes.trouble() or "")
        await nodes.beat(session, draining=False)
        assert nodes.trouble() is None


async def test_nor_does_one_to_which_the_api_server_says_nothing(
    client: Client, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its agents give their calls up, and would be taken for silent."""
    monkeypatch.setattr(nodes_of_agents, "HEARTBEAT_TIMEOUT", 2.0)
    async with FaultyProxy(client.config) as proxy, Client(proxy.config) as through:
        nodes = AgentRegistry(through, make_caches(through, namespace), sessions := Sessions(b"k" * 32))
        other: Any = None
        calls = ControllerServicer(
            ServicerParts(InsecureAccess(), sessions, other, nodes, other, other, other, namespace)
        )
        session, _ = await nodes.register(ObjectKey(namespace, "box"), AgentDescription())
        proxy.faults.append(Stall())
        said = wire.HeartbeatRequest(node_id=f"{namespace}/box", session_token=sessions.token(session))
        with pytest.raises(CallRefused, match="gave no answer within 2 s"):
            await calls.Heartbeat(said, CallerCredentials())
        assert "heartbeats cannot be written: the Kubernetes API gave no answer" in (nodes.trouble() or "")


async def test_an_old_agent_that_comes_back_gets_its_jobs_again(
    client: Client, namespace: str, stub: VmafxControllerStub
) -> None:
    agent = Agent(stub, "box")
    await joined(client, namespace, agent)
    async with operating(client, namespace):
        await submitted(stub, "one")

        async def claimed() -> bool:
            return (await stub.PullWork(wire.PullWorkRequest(**agent.me))).HasField("job")

        await eventually(claimed, "it is placed and claimed")
        assert not await claimed()
        await agent.register()
        await eventually(claimed, "what it had before it was started anew is handed out again")
