"""Jobs by ID: who may look for one that the controller has not seen, and what that costs the API server."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import NamedTuple
from uuid import uuid4

import grpc
import pytest
from aiohttp import web

from tests.integration.kube.test_client import make
from tests.support.inprocess_controller import controller_stub, running_controller
from tests.support.proxy import FaultyProxy, Stall
from tests.support.tokens import grant, service_account_token
from tests.support.waiting import eventually
from vmafx.auth import access
from vmafx.auth.access import TokenAccess
from vmafx.auth.reviews import AUDIENCE
from vmafx.controller import jobs
from vmafx.controller.caches import make_caches
from vmafx.controller.jobs import ClientJobs
from vmafx.http.errors import StatusError
from vmafx.kube import JOBS, NAMESPACES, Client, ObjectKey
from vmafx.wire import controller_pb2 as wire
from vmafx.wire.controller_pb2_grpc import VmafxControllerStub

CLIPS = wire.ScoringParams(reference="file:///a.mp4", distorted="file:///b.mp4")
METADATA_ONLY = "as=PartialObjectMetadataList"


class Watched(NamedTuple):
    """A proxy in front of the API server that records lists of jobs, by the Accept header of the request."""

    proxy: FaultyProxy
    client: Client
    lists: list[str]


@pytest.fixture
async def watched(client: Client) -> AsyncIterator[Watched]:
    lists: list[str] = []

    def record(request: web.Request) -> None:
        if request.method == "GET" and request.path.endswith("/vmafxjobs") and "watch" not in request.query:
            lists.append(request.headers["Accept"])

    async with FaultyProxy(client.config) as proxy, Client(proxy.config) as through:
        proxy.choose = record
        yield Watched(proxy, through, lists)


async def finished_job(client: Client, namespace: str) -> str:
    key, job = await make(client, namespace)
    await client.patch_status(JOBS, key, {"phase": "Failed", "message": "so it is"})
    return job.metadata.uid


async def get(stub: VmafxControllerStub, job_id: str, namespace: str = "", token: str = "") -> wire.Job:
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    return await stub.GetJob(wire.GetJobRequest(job_id=job_id, namespace=namespace), metadata=metadata)


async def failure(call: Awaitable[object]) -> tuple[str, str]:
    """The code and the message of a call that fails."""
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    return error.value.code().name, error.value.details() or ""


async def test_a_finished_job_that_the_controller_has_not_seen_is_found_by_its_metadata(
    client: Client, watched: Watched, namespace: str
) -> None:
    uid = await finished_job(client, namespace)
    async with running_controller(watched.client, namespace) as port, controller_stub(port) as stub:
        watched.lists.clear()  # that of the cache
        for job_id in (uid, f"{uid}-0"):
            found = await get(stub, job_id)
            assert (found.id, found.status, found.error) == (job_id, wire.FAILED, "so it is")
        (accepted,) = watched.lists
        assert METADATA_ONLY in accepted


async def test_jobs_are_listed_neither_for_an_impossible_id_nor_twice_for_a_missing_job(
    watched: Watched, namespace: str
) -> None:
    async with running_controller(watched.client, namespace) as port, controller_stub(port) as stub:
        watched.lists.clear()
        for impossible in ("", "unknown", "unknown-0", f"{uuid4()}-x", f"{uuid4()}-0-0", "ü" * 36):
            assert (await failure(get(stub, impossible)))[0] == "NOT_FOUND"
        assert watched.lists == []
        missing = str(uuid4())
        for job_id in (missing, missing, f"{missing}-0"):
            assert (await failure(get(stub, job_id)))[0] == "NOT_FOUND"
        assert len(watched.lists) == 1


async def test_searches_at_the_same_time_share_a_list(
    client: Client, watched: Watched, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "SEARCH_INTERVAL", 0.0)
    searched = ClientJobs(watched.client, make_caches(watched.client, namespace))
    searches = [searched.search(str(uuid4()), namespace) for _ in range(20)]
    found = await asyncio.gather(*searches, return_exceptions=True)
    assert {type(one) for one in found} == {StatusError}
    assert len(watched.lists) == 2  # of the first call, and of all calls that came after it had started


async def test_searches_in_one_namespace_do_not_wait_for_those_in_another(
    watched: Watched, namespace: str, other_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "SEARCH_INTERVAL", 3600.0)
    searched = ClientJobs(watched.client, make_caches(watched.client, ""))
    with pytest.raises(StatusError):
        await searched.search(str(uuid4()), namespace)
    waiting = asyncio.create_task(searched.search(str(uuid4()), namespace))  # for the next list, in an hour
    async with asyncio.timeout(60):
        with pytest.raises(StatusError):
            await searched.search(str(uuid4()), other_namespace)
    assert not waiting.done()
    waiting.cancel()
    assert len(watched.lists) == 2


async def test_searches_in_many_namespaces_make_few_lists_at_a_time(watched: Watched, namespace: str) -> None:
    def stall(request: web.Request) -> Stall | None:
        return Stall() if request.path.endswith("/vmafxjobs") else None

    watched.proxy.choose = stall
    searched = ClientJobs(watched.client, make_caches(watched.client, ""))
    searches = [asyncio.create_task(searched.search(str(uuid4()), f"n-{number}")) for number in range(50)]
    await watched.proxy.saw(jobs.MAX_LISTS)
    await watched.client.get(NAMESPACES, ObjectKey("", namespace))  # a later request: others would have been seen
    assert len(watched.proxy.seen) == jobs.MAX_LISTS + 1
    for search in searches:
        search.cancel()
    await asyncio.gather(*searches, return_exceptions=True)


async def test_a_job_is_found_at_once_after_its_submission_even_if_the_cache_is_behind(
    watched: Watched, namespace: str
) -> None:
    async with running_controller(watched.client, namespace) as port, controller_stub(port) as stub:
        watched.proxy.streaming.clear()  # the cache does not see the job
        assert (await failure(get(stub, str(uuid4()))))[0] == "NOT_FOUND"
        watched.lists.clear()
        uid = (await stub.SubmitJob(wire.SubmitJobRequest(scoring=CLIPS))).job_id
        assert (await get(stub, uid)).status == wire.PENDING
        assert (await stub.CancelJob(wire.CancelJobRequest(job_id=uid))).ok
        assert watched.lists == []
        watched.proxy.streaming.set()


async def test_a_job_submitted_to_another_replica_is_found_even_if_the_cache_is_behind(
    client: Client, watched: Watched, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "SEARCH_INTERVAL", 1.0)
    async with running_controller(watched.client, namespace) as port, controller_stub(port) as stub:
        watched.proxy.streaming.clear()
        assert (await failure(get(stub, str(uuid4()))))[0] == "NOT_FOUND"
        _, job = await make(client, namespace)
        assert (await get(stub, job.metadata.uid)).status == wire.PENDING
        watched.proxy.streaming.set()


async def test_a_job_is_not_found_in_another_namespace_than_the_given_one(
    client: Client, namespace: str, other_namespace: str
) -> None:
    _, job = await make(client, namespace)
    async with running_controller(client, "", home=namespace) as port, controller_stub(port) as stub:
        assert (await get(stub, job.metadata.uid, namespace)).name == job.metadata.name
        assert (await failure(get(stub, job.metadata.uid, other_namespace)))[0] == "NOT_FOUND"
        cancel = stub.CancelJob(wire.CancelJobRequest(job_id=job.metadata.uid, namespace=other_namespace))
        assert (await failure(cancel))[0] == "NOT_FOUND"
        assert (await failure(get(stub, job.metadata.uid, "No")))[0] == "INVALID_ARGUMENT"


async def test_only_a_caller_who_may_read_all_jobs_of_a_namespace_can_search_it(
    client: Client, watched: Watched, namespace: str, other_namespace: str
) -> None:
    """The controller serves all namespaces; the account may read the jobs of another than the default one."""
    here, there = await finished_job(client, namespace), await finished_job(client, other_namespace)
    at = 0.0
    rule = {"apiGroups": ["vmafx.dev"], "resources": ["vmafxjobs"], "verbs": ["get"]}
    reader, nobody = ObjectKey(other_namespace, "reader"), ObjectKey(other_namespace, "nobody")
    await grant(client, reader, rule)
    await grant(client, nobody)
    token, useless = [await service_account_token(client, account, AUDIENCE) for account in (reader, nobody)]
    guard = TokenAccess(client, lambda: at)
    async with (
        running_controller(watched.client, "", guard, home=namespace) as port,
        controller_stub(port) as stub,
    ):
        watched.lists.clear()
        for job_id, where in ((str(uuid4()), ""), (here, ""), (there, ""), (there, other_namespace)):
            code, message = await failure(get(stub, job_id, where, useless))
            assert (code, "may not get vmafxjobs in namespace" in message) == ("PERMISSION_DENIED", True)
        assert (await failure(get(stub, there)))[0] == "UNAUTHENTICATED"
        assert watched.lists == []

        async def bound() -> bool:
            nonlocal at
            at += access.ALLOWED_TTL
            try:
                return (await get(stub, there, other_namespace, token)).status == wire.FAILED
            except grpc.aio.AioRpcError as error:
                if error.code() != grpc.StatusCode.PERMISSION_DENIED:
                    raise
                return False

        await eventually(bound, "the API server has seen the binding")
        assert (await get(stub, there, token=token)).namespace == other_namespace  # now the controller knows it
        code, message = await failure(get(stub, here, token=token))
        assert (code, message.rpartition("; ")[2]) == (
            "PERMISSION_DENIED",
            "if the job is in another namespace, give that one",
        )
        assert (await failure(get(stub, there, token=useless)))[0] == "PERMISSION_DENIED"
        cancel = stub.CancelJob(wire.CancelJobRequest(job_id=there), metadata=(("authorization", f"Bearer {token}"),))
        assert "may not patch vmafxjobs" in (await failure(cancel))[1]
