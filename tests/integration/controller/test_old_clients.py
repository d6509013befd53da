"""Clients and agents of the original service, without the fields that vmafx added, on a real API server."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest

from tests.support.fleet import operating
from tests.support.inprocess_controller import LOCAL, Agent, controller_ports, controller_stub, running_controller
from tests.support.old_client import OldClient, compile_old_protocol
from vmafx.clock import loop_time, utc_now
from vmafx.controller.dispatch import LOST_AFTER
from vmafx.kube import JOBS, NODES, Client, ObjectKey
from vmafx.scoring.media.uri import locate
from vmafx.wire import controller_pb2 as wire


class Clock:
    """The controller's clock, which tests advance."""

    def __init__(self) -> None:
        self.ahead, self.set_back = 0.0, 0.0  # seconds; only the wall clock is set back

    def __call__(self) -> float:
        return loop_time() + self.ahead

    def now(self) -> datetime:
        return utc_now() + timedelta(seconds=self.ahead - self.set_back)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def old(client: Client, namespace: str, tmp_path: Path, clock: Clock) -> AsyncIterator[OldClient]:
    async with (
        running_controller(client, namespace, now=clock.now, clock=clock) as port,
        grpc.aio.insecure_channel(f"{LOCAL}:{port}") as channel,
        operating(client, namespace),
    ):
        yield OldClient(compile_old_protocol(tmp_path), channel)


async def join(old: OldClient, client: Client, namespace: str) -> dict[str, str]:
    registered = await old.call("RegisterNode", name="old-box", capability={"gpu_vendor": "cpu", "concurrency": 2})
    await client.patch_status(NODES, ObjectKey(namespace, "old-box"), {"healthy": True})
    return {"node_id": registered.node_id, "session_token": registered.session_token}


async def pull(old: OldClient, me: dict[str, str]) -> Any:
    """Old agents poll: a reply without a job means that there is none."""
    while True:
        reply = await old.call("PullWork", **me, capability={"gpu_vendor": "cpu", "concurrency": 2})
        if reply.HasField("job"):
            return reply.job


async def test_an_old_agent_scores_the_jobs_of_an_old_client(old: OldClient, client: Client, namespace: str) -> None:
    me = await join(old, client, namespace)
    scoring = {"reference": "file:///a.mp4", "distorted": "file:///b.mp4"}
    submitted = [(await old.call("SubmitJob", scoring=scoring)).job_id for _ in range(2)]
    assert (await old.call("Heartbeat", **me, jobs_running=0)).ok
    first, second = await pull(old, me), await pull(old, me)
    assert {first.id, second.id} == {f"{uid}-0" for uid in submitted}  # each once
    assert (first.scoring.reference, first.scoring.model) == ("/a.mp4", "vmaf_v0.6.1")
    assert not (await old.call("PullWork", **me)).HasField("job")
    assert (await old.call("ReportResult", **me, job_id=first.id, partial_scores=[90.0, 91.0])).ok
    jobs = {job.metadata.uid: job for job in (await client.list(JOBS, namespace)).items}
    assert all(job.status.claimedAt is not None for job in jobs.values())
    features = {"vmaf": 90.5, "psnr_y": 40.25}
    report = {"final": True, "score": 90.5, "features": features}
    assert (await old.call("ReportResult", **me, job_id=first.id, **report)).ok
    assert (await old.call("ReportResult", **me, job_id=second.id, final=True, error="the disk is full")).ok
    done = await old.call("GetJob", job_id=first.id)
    assert (done.id, done.status, done.final_score, done.assigned_node) == (first.id, 2, 90.5, "old-box")
    job = await client.get(JOBS, ObjectKey(namespace, jobs[first.id[:-2]].metadata.name))
    assert {name: pooled.mean for name, pooled in job.status.metrics.items()} == features
    retried = await client.get(JOBS, ObjectKey(namespace, jobs[second.id[:-2]].metadata.name))
    assert (retried.status.phase, retried.status.failures) == ("Pending", 1)
    assert "the disk is full" in (retried.status.message or "")
    assert (await old.call("CancelJob", job_id=second.id[:-2])).ok


async def test_an_old_agent_with_an_invalid_session_has_to_register_again(
    old: OldClient, client: Client, namespace: str
) -> None:
    me = await join(old, client, namespace)
    assert not (await old.call("Heartbeat", **{**me, "session_token": "nonsense"})).ok
    assert not (await old.call("Heartbeat", **{**me, "node_id": "another"})).ok


async def test_a_job_whose_reply_an_old_agent_never_got_can_be_claimed_again(
    old: OldClient, client: Client, namespace: str, clock: Clock
) -> None:
    """The agent then reports that it runs no job."""
    me = await join(old, client, namespace)
    await old.call("SubmitJob", scoring={"reference": "file:///a.mp4", "distorted": "file:///b.mp4"})
    lost = await pull(old, me)
    assert (await old.call("Heartbeat", **me, jobs_running=1)).ok
    clock.ahead += LOST_AFTER
    assert not (await old.call("PullWork", **me)).HasField("job")  # it reports a running job
    assert (await old.call("Heartbeat", **me, jobs_running=0)).ok
    assert not (await old.call("PullWork", **me)).HasField("job")  # it may not have started the job yet
    clock.ahead += LOST_AFTER
    async with asyncio.timeout(60):
        assert (await pull(old, me)).id == lost.id


async def test_a_lost_reply_does_not_hold_up_its_job_while_the_old_agent_is_busy_with_others(
    old: OldClient, client: Client, namespace: str, clock: Clock
) -> None:
    """The agent is never idle: it runs one job after another in its other slot."""
    me, scoring = await join(old, client, namespace), {"reference": "file:///a.mp4", "distorted": "file:///b.mp4"}
    await old.call("SubmitJob", scoring=scoring)
    lost = await pull(old, me)
    await old.call("SubmitJob", scoring=scoring)
    running = await pull(old, me)
    for _ in range(3):
        assert (await old.call("Heartbeat", **me, jobs_running=1)).ok
        assert (await old.call("ReportResult", **me, job_id=running.id, final=True, score=90.0)).ok
        await old.call("SubmitJob", scoring=scoring)
        async with asyncio.timeout(60):
            running = await pull(old, me)
        assert running.id != lost.id
        clock.ahead += LOST_AFTER / 3
    assert (await old.call("Heartbeat", **me, jobs_running=1)).ok
    async with asyncio.timeout(60):
        assert (await pull(old, me)).id == lost.id
    assert (await old.call("Heartbeat", **me, jobs_running=2)).ok
    clock.ahead += LOST_AFTER
    assert not (await old.call("PullWork", **me)).HasField("job")  # it runs all that it has claimed


async def test_the_clock_of_the_controller_set_back_lets_no_old_agent_claim_a_job_twice(
    old: OldClient, client: Client, namespace: str, clock: Clock
) -> None:
    me = await join(old, client, namespace)
    clock.set_back = 3600.0
    await old.call("SubmitJob", scoring={"reference": "file:///a.mp4", "distorted": "file:///b.mp4"})
    job = await pull(old, me)
    (claimed,) = (await client.list(JOBS, namespace)).items
    assert claimed.status.controllerJobID == job.id
    assert claimed.status.claimedAt is not None
    for _ in range(20):
        assert not (await old.call("PullWork", **me)).HasField("job")
        assert (await old.call("Heartbeat", **me, jobs_running=1)).ok


async def test_an_old_client_streams_jobs(old: OldClient) -> None:
    submitted = await old.call("SubmitJob", scoring={"reference": "file:///a.mp4", "distorted": "file:///b.mp4"})
    async for job in old.stream("StreamJobs", status_filter=[wire.PENDING]):
        assert job.id == submitted.job_id
        break


PATHS = ("/corpus/a.mp4", "/one two.mp4", "/100%.mp4", "/a%20b.mp4", "/a#1.mp4", "/really?.mp4", "//a//ü 東京.mp4")


@pytest.mark.parametrize("path", PATHS)
async def test_an_old_client_and_an_old_agent_exchange_paths(
    old: OldClient, client: Client, namespace: str, path: str
) -> None:
    me = await join(old, client, namespace)
    submitted = await old.call("SubmitJob", scoring={"reference": path, "distorted": path, "model": "/m o.json"})
    (job,) = (await client.list(JOBS, namespace)).items
    assert locate(job.spec.reference, "reference").target == path
    assert job.spec.reference.startswith("file:///")
    for scoring in (
        (await old.call("GetJob", job_id=submitted.job_id)).scoring,
        (await anext(aiter(old.stream("StreamJobs")))).scoring,
        (await pull(old, me)).scoring,
    ):
        assert (scoring.reference, scoring.distorted, scoring.model) == (path, path, "/m o.json")


async def test_an_old_agent_gets_the_path_of_a_file_uri_and_other_uris_as_they_are(
    old: OldClient, client: Client, namespace: str
) -> None:
    me = await join(old, client, namespace)
    scoring = {"reference": "file:///a%20b.mp4", "distorted": "https://host/a%20b.mp4"}
    submitted = await old.call("SubmitJob", scoring=scoring)
    work = await pull(old, me)
    assert (work.scoring.reference, work.scoring.distorted) == ("/a b.mp4", "https://host/a%20b.mp4")
    answer = (await old.call("GetJob", job_id=submitted.job_id)).scoring
    assert (answer.reference, answer.distorted) == (scoring["reference"], scoring["distorted"])


async def test_a_path_is_accepted_over_http_and_handed_to_a_new_agent_as_a_uri(client: Client, namespace: str) -> None:
    async with (
        controller_ports(client, namespace) as (port, url),
        controller_stub(port) as stub,
        aiohttp.ClientSession(url) as http,
        operating(client, namespace),
    ):
        agent = Agent(stub, "box")
        await agent.register()
        await client.patch_status(NODES, ObjectKey(namespace, "box"), {"healthy": True})
        body = {"scoring": {"reference": "/a b.mp4"}, "spec": '{"distorted": "/ü.mp4"}'}
        async with http.post("/v1/jobs", json=body) as response:
            assert response.status == 201, await response.text()
            uid = (await response.json())["jobId"]
        async with http.get(f"/v1/jobs/{uid}") as response:
            scoring = (await response.json())["scoring"]
        assert (scoring["reference"], scoring["distorted"]) == ("/a b.mp4", "/ü.mp4")
        work = (await agent.pull()).job
        assert (work.scoring.reference, work.scoring.distorted) == ("file:///a%20b.mp4", "file:///%C3%BC.mp4")
        assert '"reference":"file:///a%20b.mp4"' in work.work


@pytest.mark.parametrize(
    ("path", "message"), [("/a\0b.mp4", "NUL"), ("/", "no path"), ("/" + "ü" * 400, "the path has 2,408 characters")]
)
async def test_a_path_that_no_worker_could_open_is_rejected(old: OldClient, path: str, message: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match=message) as error:
        await old.call("SubmitJob", scoring={"reference": "/a.mp4", "distorted": path})
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
