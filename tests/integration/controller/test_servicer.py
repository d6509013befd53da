"""The controller's calls over gRPC, on a real API server and with the real operator; the tests play the agents."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass

from tests.conftest import Logged
from tests.support.fleet import add_node, has_seen, operating
from tests.support.floods import invalid_token
from tests.support.inprocess_controller import Agent, controller_stub, running_controller
from tests.support.waiting import eventually
from vmafx.api.job import JobProgress, VmafxJob, VmafxJobSpec
from vmafx.api.meta import ObjectMeta
from vmafx.auth.access import TokenAccess
from vmafx.clock import utc_now
from vmafx.controller import dispatch, registry, results
from vmafx.controller.caches import make_caches
from vmafx.controller.registry import AgentDescription, AgentRegistry
from vmafx.controller.results import ResultRecorder
from vmafx.controller.routes import SERVICE
from vmafx.controller.sessions import Session, Sessions
from vmafx.jobs.attempt import AttemptResult
from vmafx.kube import JOBS, NODES, Client, ObjectKey
from vmafx.kube.core import EVENTS
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


async def get_job(client: Client, namespace: str, name: str) -> VmafxJob:
    return await client.get(JOBS, ObjectKey(namespace, name))


async def submit(stub: VmafxControllerStub, name: str, spec: str = "") -> str:
    return (await stub.SubmitJob(wire.SubmitJobRequest(scoring=CLIPS, name=name, spec=spec))).job_id


async def join(client: Client, namespace: str, agent: Agent, **more: object) -> None:
    """Register the agent and mark its node as healthy, in place of the node reconciler."""
    await agent.register(**more)
    await client.patch_status(NODES, ObjectKey(namespace, agent.name), {"healthy": True})


async def rejection(call: Awaitable[object], code: grpc.StatusCode) -> str:
    """Assert that the call fails with the status code, and return its message."""
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    assert error.value.code() == code, error.value.details()
    return error.value.details() or ""


async def test_every_call_needs_credentials(client: Client, namespace: str) -> None:
    unknown = (("authorization", f"Bearer {invalid_token(1)}"),)
    async with (
        running_controller(client, namespace, TokenAccess(client)) as port,
        controller_stub(port) as stub,
    ):
        for method in SERVICE.methods:
            request: Any = GetMessageClass(method.input_type)()
            if method.name == "PushSamples":
                request.samples = b"samples"
            for metadata in ((), unknown):
                call = getattr(stub, method.name)(request, metadata=metadata)
                assert await call.code() is grpc.StatusCode.UNAUTHENTICATED, method.name


async def test_a_job_from_submission_to_score(client: Client, namespace: str, stub: VmafxControllerStub) -> None:
    agent = Agent(stub, "box", capacity=2)
    await join(client, namespace, agent, device="a fine machine", fps=123.456, labels={"zone": "a"})
    node = await client.get(NODES, ObjectKey(namespace, "box"))
    assert node.spec.runtime == "Agent"
    assert node.metadata.labels == {"zone": "a", "vmafx.dev/registered-by": "agent"}
    assert (node.status.detectedDevice, node.status.throughput) == ("a fine machine", 123.46)
    async with operating(client, namespace):
        uid = await submit(stub, "one", '{"priority": 3, "options": {"subsample": 2}}')
        pulled = await agent.pull()
        assert pulled.job.id == f"{uid}-0"
        assert '"subsample":2' in pulled.job.work
        assert (await stub.GetJob(wire.GetJobRequest(job_id=uid))).status == wire.RUNNING
        assert await agent.scored(pulled.job.id, 91.5)
    done = await stub.GetJob(wire.GetJobRequest(job_id=pulled.job.id))
    assert (done.id, done.status, done.final_score, done.name) == (pulled.job.id, wire.COMPLETED, 91.5, "one")
    late = await stub.CancelJob(wire.CancelJobRequest(job_id=uid))
    assert (late.ok, late.message) == (False, "the job has succeeded already; there is nothing to cancel")
    job = await get_job(client, namespace, "one")
    assert (job.status.phase, job.status.attempts, job.status.assignedNode) == ("Succeeded", 1, "box")
    assert job.status.claimedAt is None  # no progress was reported, which saves a write


async def test_a_long_poll_returns_a_job_as_soon_as_it_is_placed_on_the_node(
    client: Client, namespace: str, stub: VmafxControllerStub
) -> None:
    first, second = Agent(stub, "first"), Agent(stub, "second")
    await join(client, namespace, first)
    await join(client, namespace, second)
    waiting = [asyncio.create_task(agent.pull(wait=60)) for agent in (first, second)]
    async with operating(client, namespace):
        await submit(stub, "a")
        await submit(stub, "b")
        replies = await asyncio.gather(*waiting)
        assert {reply.job.name for reply in replies} == {"a", "b"}
        for agent in (first, second):
            [attempt] = agent.running
            assert (await get_job(client, namespace, agent.running[attempt])).status.assignedNode == agent.name
            assert not (await agent.pull(wait=0)).HasField("job")  # it is full
            assert await agent.scored(attempt)


@pytest.mark.parametrize("change", ["cancel", "suspend", "delete"])
async def test_an_agent_is_told_to_stop(client: Client, namespace: str, stub: VmafxControllerStub, change: str) -> None:
    agent = Agent(stub, "box")
    await join(client, namespace, agent)
    async with operating(client, namespace):
        await submit(stub, "one")
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


async def test_a_result_is_accepted_once_and_only_from_the_node_of_the_attempt(
    client: Client, namespace: str, stub: VmafxControllerStub
) -> None:
    agent, other = Agent(stub, "box"), Agent(stub, "other")
    await join(client, namespace, agent)
    async with operating(client, namespace):
        await submit(stub, "one")
        attempt = (await agent.pull()).job.id
        await join(client, namespace, other)
        assert not await other.report(attempt, final=True, score=10.0, name="one")
        next_attempt = attempt.removesuffix("-0") + "-1"
        assert not await agent.report(next_attempt, final=True, score=10.0, name="one")
        assert await agent.scored(attempt, 80.0)
        assert await agent.report(attempt, final=True, score=10.0, name="one")  # a repeated report is acknowledged
    assert (await get_job(client, namespace, "one")).status.score == 80.0


async def test_progress_is_written_and_marks_the_job_as_claimed(
    client: Client, namespace: str, stub: VmafxControllerStub
) -> None:
    agent = Agent(stub, "box")
    await join(client, namespace, agent)
    async with operating(client, namespace):
        uid = await submit(stub, "one")
        attempt = (await agent.pull()).job.id
        assert await agent.report(attempt, progress=wire.Progress(frames=5, total_frames=20, fps=2.5))
        job = await get_job(client, namespace, "one")
        assert job.status.claimedAt is not None
        assert job.status.progress is not None
        assert (job.status.progress.frames, job.status.progress.totalFrames) == (5, 20)
        progress = (await stub.GetJob(wire.GetJobRequest(job_id=uid))).progress
        assert (progress.frames, progress.fps) == (5, 2.5)
        assert await agent.report(attempt, progress=wire.Progress(frames=6))
        assert await agent.scored(attempt)

        async def is_rejected() -> bool:
            return not await agent.report(attempt, name="one", progress=wire.Progress(frames=7))

        await eventually(is_rejected, "progress of a finished job is rejected")


async def test_a_job_that_succeeds_has_full_progress_and_one_that_fails_none(
    client: Client, namespace: str, stub: VmafxControllerStub
) -> None:
    agent = Agent(stub, "box", capacity=2)
    await join(client, namespace, agent)
    async with operating(client, namespace):
        for name in ("good", "bad"):
            await submit(stub, name)
            attempt = (await agent.pull()).job.id
            assert await agent.report(attempt, progress=wire.Progress(frames=4, total_frames=7, fps=2.5))
        attempts = {name: one for one, name in agent.running.items()}
        fault = f'{{"id": "{attempts["bad"]}", "fault": "BadInput", "message": "so it is"}}'
        assert await agent.report(attempts["bad"], final=True, answer=fault)
        assert await agent.scored(attempts["good"])
    good, bad = [await get_job(client, namespace, name) for name in ("good", "bad")]
    assert (good.status.phase, good.status.frames, good.status.progress) == ("Succeeded", 6, JobProgress(6, 6, 2.5))
    assert (bad.status.phase, bad.status.progress) == ("Failed", None)


async def stale_recorder(client: Client, namespace: str, **status: object) -> tuple[ResultRecorder, Session, str]:
    """A recorder whose cache has the job `one` on the node `box` and no longer changes; a session, and the attempt."""
    await client.create(
        JOBS, VmafxJob(metadata=ObjectMeta(name="one"), spec=VmafxJobSpec("file:///a", "file:///b")), namespace
    )
    key = ObjectKey(namespace, "one")
    attempt = f"{(await client.get(JOBS, key)).metadata.uid}-0"
    running = {"phase": "Running", "assignedNode": "box", "controllerJobID": attempt, "attempts": 1}
    await client.patch_status(JOBS, key, running | status)
    cached = make_caches(client, namespace)
    informer = asyncio.create_task(cached.jobs.run())
    await cached.jobs.synced.wait()
    informer.cancel()
    await asyncio.gather(informer, return_exceptions=True)
    recorder = ResultRecorder(client, cached, EventRecorder(client, "vmafx-controller", "test"), Metrics())
    return recorder, Sessions(b"k" * 32).start(ObjectKey(namespace, "box")), attempt


def pass_write_interval(recorder: ResultRecorder) -> None:
    recorder._progress_written._entries.clear()


async def test_progress_after_the_result_is_rejected_even_with_a_stale_cache(client: Client, namespace: str) -> None:
    recorder, session, attempt = await stale_recorder(client, namespace, claimedAt=utc_now())
    assert await recorder.record_progress(session, attempt, "one", JobProgress(3, 6, 2.5))
    pass_write_interval(recorder)
    assert await recorder.record_result(session, attempt, "one", AttemptResult(attempt, 90.0, 6))
    assert not await recorder.record_progress(session, attempt, "one", JobProgress(4, 6, 2.5))
    assert (await client.get(JOBS, ObjectKey(namespace, "one"))).status.progress == JobProgress(6, 6, 2.5)


async def test_a_job_is_claimed_once_even_with_a_stale_cache(client: Client, namespace: str) -> None:
    """The cache shows no claim yet, as that of another replica, or while the API server is hard to reach."""
    key = ObjectKey(namespace, "one")
    recorder, session, attempt = await stale_recorder(client, namespace)
    assert await recorder.record_progress(session, attempt, "one", JobProgress(1, 6, 2.5))
    claimed = (await client.get(JOBS, key)).status.claimedAt
    assert claimed is not None
    pass_write_interval(recorder)
    assert await recorder.record_progress(session, attempt, "one", JobProgress(3, 6, 2.5))
    status = (await client.get(JOBS, key)).status
    assert (status.claimedAt, status.progress) == (claimed, JobProgress(3, 6, 2.5))


async def test_a_result_is_logged_and_recorded_as_an_event_once(
    client: Client, namespace: str, stub: VmafxControllerStub, logged: Logged
) -> None:
    agent = Agent(stub, "box", capacity=2)
    await join(client, namespace, agent)
    async with operating(client, namespace):
        for name in ("good", "broken"):
            await submit(stub, name)
            await agent.pull()
        attempts = {name: one for one, name in agent.running.items()}
        fault = f'{{"id": "{attempts["broken"]}", "fault": "NodeFault", "message": "the disk is full"}}'
        assert await agent.report(attempts["broken"], final=True, answer=fault)
        assert await agent.scored(attempts["good"])
        assert await agent.report(attempts["good"], final=True, score=90.0, name="good")  # repeated
        assert logged("job", f"{namespace}/good") == [
            ("job placed", {"node": "box", "attempt": 0}),
            ("job succeeded", {"node": "box", "attempt": 0, "score": 90.0, "frames": 6}),
        ]
        assert logged("job", f"{namespace}/broken")[:2] == [
            ("job placed", {"node": "box", "attempt": 0}),
            ("attempt failed, will retry", {"node": "box", "attempt": 0, "error": "NodeFault: the disk is full"}),
        ]

        async def has_events() -> bool:
            events = (await client.list(EVENTS, namespace)).items
            found = {(event["regarding"]["name"], event["type"], event["reason"], event["note"]) for event in events}
            return found == {
                ("good", "Normal", "Scored", "VMAF 90.000, 6 frames"),
                ("broken", "Warning", "Retrying", "NodeFault: the disk is full"),
            }

        await eventually(has_events, "there is an event for each job")


async def test_a_node_fault_is_retried_elsewhere_and_bad_input_fails_the_job(
    client: Client, namespace: str, stub: VmafxControllerStub
) -> None:
    agent = Agent(stub, "box", capacity=2)
    await join(client, namespace, agent)
    async with operating(client, namespace):
        await submit(stub, "broken")
        await submit(stub, "bad")
        for _ in range(2):
            await agent.pull()
        attempts = {name: one for one, name in agent.running.items()}
        fault = '{{"id": "{}", "fault": "{}", "message": "so it is"}}'
        assert await agent.report(attempts["broken"], final=True, answer=fault.format(attempts["broken"], "NodeFault"))
        assert await agent.report(attempts["bad"], final=True, answer=fault.format(attempts["bad"], "BadInput"))
    broken, bad = [await get_job(client, namespace, name) for name in ("broken", "bad")]
    assert (broken.status.phase, broken.status.failures, broken.status.excludedNodes) == ("Pending", 1, ("box",))
    assert (bad.status.phase, bad.status.message) == ("Failed", "so it is")
    reply = await stub.GetJob(wire.GetJobRequest(job_id=bad.metadata.uid))
    assert (reply.status, reply.error, reply.reason) == (wire.FAILED, "so it is", "BadInput")


async def test_a_new_registration_supersedes_the_previous_session(
    client: Client, namespace: str, stub: VmafxControllerStub
) -> None:
    old, new = Agent(stub, "box"), Agent(stub, "box")
    await join(client, namespace, old)
    waiting = asyncio.create_task(old.pull(wait=60))
    async with operating(client, namespace):
        await join(client, namespace, new)

        async def superseded() -> bool:
            reply = await old.beat()
            return (reply.ok, reply.superseded) == (False, True)

        await eventually(superseded, "the controller has seen the new session: its cache of jobs may be ahead of it")
        await submit(stub, "one")
        attempt = (await new.pull()).job.id
        await rejection(waiting, grpc.StatusCode.UNAUTHENTICATED)
        await rejection(old.report(attempt, final=True, score=1.0, name="one"), grpc.StatusCode.UNAUTHENTICATED)
        assert await new.scored(attempt)


async def test_sessions_work_with_every_replica_and_after_a_restart(client: Client, namespace: str) -> None:
    async with running_controller(client, namespace) as first, controller_stub(first) as one:
        agent = Agent(one, "box")
        await agent.register()
        async with running_controller(client, namespace) as second, controller_stub(second) as two:
            elsewhere = Agent(two, "box")
            elsewhere.me = agent.me
            assert (await elsewhere.beat()).ok
    async with running_controller(client, namespace) as third, controller_stub(third) as three:
        after = Agent(three, "box")
        after.me = agent.me
        assert (await after.beat()).ok
        payload, _, signature = agent.me["session_token"].rpartition(".")
        after.me = {**agent.me, "session_token": f"{payload}.{signature[::-1]}"}
        assert not (await after.beat()).ok
        await rejection(after.pull(), grpc.StatusCode.UNAUTHENTICATED)


async def test_frequent_heartbeats_are_not_all_written(
    client: Client, namespace: str, stub: VmafxControllerStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "HEARTBEAT_WRITE_INTERVAL", 3600.0)
    agent = Agent(stub, "box")
    await agent.register()

    async def is_cached() -> bool:
        return (await agent.beat()).capacity == 1

    await eventually(is_cached, "the controller has the node in its cache: without it, every heartbeat is written")
    before = await client.get(NODES, ObjectKey(namespace, "box"))
    for _ in range(20):
        assert (await agent.beat()).ok
    after = await client.get(NODES, ObjectKey(namespace, "box"))
    assert after.metadata.resourceVersion == before.metadata.resourceVersion


@pytest.mark.parametrize(
    ("name", "more", "code", "message"),
    [
        ("Not A Name", {}, grpc.StatusCode.INVALID_ARGUMENT, "not a valid node name"),
        ("../other", {}, grpc.StatusCode.INVALID_ARGUMENT, "not a valid node name"),
        ("box", {"namespace": "elsewhere"}, grpc.StatusCode.FAILED_PRECONDITION, "only"),
        ("box", {"labels": {"no good": "x"}}, grpc.StatusCode.INVALID_ARGUMENT, "label"),
        ("box", {"capability": wire.NodeCapability(concurrency=-1)}, grpc.StatusCode.INVALID_ARGUMENT, "at least 1"),
        ("box", {"fps": -1.0}, grpc.StatusCode.INVALID_ARGUMENT, "it must be 0 (not measured)"),
        ("box", {"fps": float("nan")}, grpc.StatusCode.INVALID_ARGUMENT, "it must be 0 (not measured)"),
    ],
)
async def test_an_invalid_registration_is_rejected(
    stub: VmafxControllerStub, name: str, more: dict[str, object], code: grpc.StatusCode, message: str
) -> None:
    assert message in await rejection(Agent(stub, name).register(**more), code)


async def test_an_agent_that_does_not_match_an_existing_node_is_rejected(
    client: Client, namespace: str, stub: VmafxControllerStub
) -> None:
    await add_node(client, namespace, "pods")
    assert "as Pods" in await rejection(Agent(stub, "pods").register(), grpc.StatusCode.FAILED_PRECONDITION)
    agent = Agent(stub, "box")
    await agent.register()
    assert "is for cpu" in await rejection(
        Agent(stub, "box", vendor="nvidia").register(), grpc.StatusCode.FAILED_PRECONDITION
    )
    assert "is unknown; use one of" in await rejection(
        Agent(stub, "new", vendor="acme").register(), grpc.StatusCode.INVALID_ARGUMENT
    )


@pytest.mark.parametrize(
    ("scoring", "spec", "message"),
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
async def test_an_invalid_submission_is_rejected(
    stub: VmafxControllerStub, scoring: wire.ScoringParams, spec: str, message: str
) -> None:
    call = stub.SubmitJob(wire.SubmitJobRequest(scoring=scoring, spec=spec))
    assert message in await rejection(call, grpc.StatusCode.INVALID_ARGUMENT)


async def test_a_cancelled_job_can_be_looked_up_also_after_a_restart(
    client: Client, namespace: str, stub: VmafxControllerStub
) -> None:
    async with operating(client, namespace):
        uid = await submit(stub, "one")
        first = await stub.CancelJob(wire.CancelJobRequest(job_id=uid))
        assert (first.ok, first.message) == (True, "")

        async def cancelled() -> bool:
            return (await stub.GetJob(wire.GetJobRequest(job_id=uid))).status == wire.CANCELLED

        await eventually(cancelled, "the job is cancelled")
        again = await stub.CancelJob(wire.CancelJobRequest(job_id=uid))
        assert (again.ok, again.message) == (True, "the job was cancelled already")
    async with (
        running_controller(client, namespace) as port,
        controller_stub(port) as other,
    ):  # started after the job ended
        assert (await other.GetJob(wire.GetJobRequest(job_id=uid))).status == wire.CANCELLED
        await rejection(other.GetJob(wire.GetJobRequest(job_id="unknown")), grpc.StatusCode.NOT_FOUND)
    await rejection(stub.SubmitJob(wire.SubmitJobRequest(scoring=CLIPS, name="one")), grpc.StatusCode.ALREADY_EXISTS)


async def test_a_missing_namespace_is_not_found(client: Client, namespace: str) -> None:
    async with running_controller(client, "", home=namespace) as port, controller_stub(port) as stub:
        for call in (
            stub.StreamJobs(wire.StreamJobsRequest(namespace="nosuch")).read(),
            stub.SubmitJob(wire.SubmitJobRequest(scoring=CLIPS, namespace="nosuch")),
            stub.RegisterNode(wire.RegisterNodeRequest(name="box", namespace="nosuch")),
        ):
            message = await rejection(call, grpc.StatusCode.NOT_FOUND)
            assert message == "the namespace 'nosuch' does not exist; create it, or name another one"


@pytest.mark.parametrize("name", ["..", "a/b", "Video", "-a", "a" * 64, "ü"])
async def test_an_invalid_namespace_is_rejected(client: Client, namespace: str, name: str) -> None:
    async with running_controller(client, "", home=namespace) as port, controller_stub(port) as stub:
        for call in (
            stub.StreamJobs(wire.StreamJobsRequest(namespace=name)).read(),
            stub.SubmitJob(wire.SubmitJobRequest(scoring=CLIPS, namespace=name)),
            stub.RegisterNode(wire.RegisterNodeRequest(name="box", namespace=name)),
        ):
            assert "is not a valid name" in await rejection(call, grpc.StatusCode.INVALID_ARGUMENT)


async def test_a_controller_for_one_namespace_rejects_others(namespace: str, stub: VmafxControllerStub) -> None:
    for call in (
        stub.StreamJobs(wire.StreamJobsRequest(namespace="default")).read(),
        stub.SubmitJob(wire.SubmitJobRequest(scoring=CLIPS, namespace="default")),
        stub.RegisterNode(wire.RegisterNodeRequest(name="box", namespace="default")),
    ):
        message = await rejection(call, grpc.StatusCode.FAILED_PRECONDITION)
        assert f"serves only the namespace '{namespace}', not 'default'" in message


async def test_a_stream_has_each_state_of_a_job_that_it_asks_for(
    client: Client, namespace: str, stub: VmafxControllerStub
) -> None:
    agent = Agent(stub, "box")
    await join(client, namespace, agent)
    async with operating(client, namespace):
        uid = await submit(stub, "one")
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


async def test_one_of_too_many_long_polls_of_a_node_ends(
    client: Client, namespace: str, stub: VmafxControllerStub
) -> None:
    agent, other = Agent(stub, "box"), Agent(stub, "other")
    await join(client, namespace, agent)
    await join(client, namespace, other)
    elsewhere = asyncio.create_task(other.pull())
    polls = [asyncio.create_task(agent.pull()) for _ in range(dispatch.MAX_POLLS + 1)]
    (ended,), waiting = await asyncio.wait(polls, timeout=20, return_when=asyncio.FIRST_COMPLETED)
    assert not ended.result().HasField("job")
    assert (await agent.beat()).ok
    assert len([poll for poll in waiting if not poll.done()]) == dispatch.MAX_POLLS
    assert not elsewhere.done()
    for poll in (elsewhere, *waiting):
        poll.cancel()
    await asyncio.gather(elsewhere, *waiting, return_exceptions=True)


async def test_a_node_of_the_same_name_in_another_namespace_cannot_report_results(
    client: Client, namespace: str, other_namespace: str
) -> None:
    async with (
        running_controller(client, "", home=namespace) as port,
        controller_stub(port) as stub,
        operating(client, namespace),
    ):
        agent, namesake = Agent(stub, "box"), Agent(stub, "box")
        await join(client, namespace, agent)  # in the default namespace
        await namesake.register(namespace=other_namespace)
        await stub.SubmitJob(wire.SubmitJobRequest(scoring=CLIPS, name="one", namespace=namespace))
        attempt = (await agent.pull()).job.id
        assert not await namesake.report(attempt, final=True, score=1.0, name="one")
        assert not await namesake.report(attempt, final=True, score=1.0)
        assert not await namesake.report(attempt, progress=wire.Progress(frames=1))
        namesake.running[attempt] = "one"
        assert list((await namesake.beat()).stop_job_ids) == [attempt]
        assert await agent.scored(attempt, 77.0)
    assert (await get_job(client, namespace, "one")).status.score == 77.0


async def test_an_agent_gets_the_capacity_of_its_node(
    client: Client, namespace: str, stub: VmafxControllerStub
) -> None:
    agent = Agent(stub, "box", capacity=1)
    await join(client, namespace, agent)
    assert agent.node_capacity == 1
    await client.merge_patch(NODES, ObjectKey(namespace, "box"), {"spec": {"capacity": 3}})

    async def has_new_capacity() -> bool:
        return (await agent.beat()).capacity == 3

    await eventually(has_new_capacity, "the reply to a heartbeat has the new capacity")
    again = Agent(stub, "box", capacity=1)
    await again.register()
    assert again.node_capacity == 3


async def test_a_draining_agent_gets_no_new_jobs(client: Client, namespace: str, stub: VmafxControllerStub) -> None:
    agent = Agent(stub, "box", capacity=2)
    await join(client, namespace, agent)
    async with operating(client, namespace) as operator:
        assert (await agent.beat(draining=True)).ok
        assert (await client.get(NODES, ObjectKey(namespace, "box"))).status.draining
        await has_seen(operator, client, ObjectKey(namespace, "box"))
        await submit(stub, "one")

        async def waits() -> bool:
            conditions = (await get_job(client, namespace, "one")).status.conditions
            return [(condition.type, condition.status) for condition in conditions] == [("Scheduled", "False")]

        await eventually(waits, "the job waits")
        assert not (await agent.pull(wait=0)).HasField("job")
        await agent.register()  # no longer draining
        assert (await agent.pull()).job.name == "one"


async def allowed() -> None:
    """An agent may create its node."""


async def test_a_controller_remembers_few_sessions_and_attempts_that_have_ended(
    client: Client, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its caches may not show that they end: here they never change."""
    monkeypatch.setattr(registry, "MAX_WRITTEN", 2)
    monkeypatch.setattr(results, "MAX_PROGRESS_JOBS", 2)
    cached = make_caches(client, namespace)
    nodes = AgentRegistry(client, cached, Sessions(b"k" * 32), max_capacity=1)
    recorder = ResultRecorder(client, cached, EventRecorder(client, "vmafx-controller", "test"), Metrics())
    new = VmafxJob(metadata=ObjectMeta(name="one"), spec=VmafxJobSpec("file:///a", "file:///b"))
    uid = (await client.create(JOBS, new, namespace)).metadata.uid
    for number in range(4):
        session = (await nodes.register(ObjectKey(namespace, "box"), AgentDescription(), allowed)).session
        attempt = {"phase": "Running", "assignedNode": "box", "controllerJobID": f"{uid}-{number}"}
        await client.patch_status(JOBS, ObjectKey(namespace, "one"), attempt)
        assert await recorder.record_progress(session, f"{uid}-{number}", "one", JobProgress(3, 6, 2.5))
    assert (len(nodes._written._entries), len(recorder._progress_written._entries)) == (2, 2)


async def test_an_old_agent_can_claim_its_jobs_again_after_registering(
    client: Client, namespace: str, stub: VmafxControllerStub
) -> None:
    agent = Agent(stub, "box")
    await join(client, namespace, agent)
    async with operating(client, namespace):
        await submit(stub, "one")

        async def claimed() -> bool:
            return (await stub.PullWork(wire.PullWorkRequest(**agent.me))).HasField("job")

        await eventually(claimed, "the job is placed and claimed")
        assert not await claimed()
        await agent.register()
        await eventually(claimed, "the job can be claimed again")
