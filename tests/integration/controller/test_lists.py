"""Lists of jobs, page by page, over HTTP and gRPC on a real API server: filters, tokens, permissions."""

import json
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import aiohttp
import grpc
import pytest

from tests.integration.kube.test_client import make
from tests.support.inprocess_controller import controller_ports, controller_stub
from tests.support.problems import checked_problem
from tests.support.proxy import FaultyProxy, Refuse
from tests.support.tokens import grant, service_account_token
from tests.support.waiting import eventually
from vmafx.auth import access
from vmafx.auth.access import TokenAccess
from vmafx.auth.reviews import AUDIENCE
from vmafx.kube import JOBS, Client, ObjectKey
from vmafx.wire import controller_pb2 as wire


class Lister(NamedTuple):
    """A client of a controller; `controller` is the gRPC port."""

    http: aiohttp.ClientSession
    controller: int

    async def page(self, **query: Any) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {query.pop('token')}"} if "token" in query else {}
        async with self.http.get("/v1/jobs", params={"watch": "false"} | query, headers=headers) as response:
            reply = json.loads(await response.read())
            return response.status, checked_problem(response, reply) if response.status >= 400 else reply

    async def names(self, **query: Any) -> list[list[str]]:
        """The names of the jobs on each page."""
        pages, token = [], ""
        while True:
            status, reply = await self.page(**query, **({"continue": token} if token else {}))
            assert status == 200, reply
            pages.append([job["name"] for job in reply["jobs"]])
            token = reply["continue"]
            if not token:
                return pages


@pytest.fixture
async def lister(client: Client, namespace: str) -> AsyncIterator[Lister]:
    async with (
        controller_ports(client, "", home=namespace) as (port, url),
        aiohttp.ClientSession(url) as http,
    ):
        yield Lister(http, port)


async def end(client: Client, key: ObjectKey, reason: str) -> None:
    """Fail a job with this reason."""
    failed = {"type": "Failed", "status": "True", "reason": reason, "lastTransitionTime": "2026-01-01T00:00:00Z"}
    await client.patch_status(JOBS, key, {"phase": "Failed", "conditions": [failed]})


async def test_a_list_is_read_page_by_page(
    client: Client, namespace: str, other_namespace: str, lister: Lister
) -> None:
    names = [(await make(client, namespace, f"job-{number}"))[0].name for number in range(5)]
    await make(client, other_namespace, "other")
    assert await lister.names() == [names]
    assert await lister.names(limit=2) == [names[:2], names[2:4], names[4:]]
    assert await lister.names(limit=5) == [names]
    assert await lister.names(namespace=other_namespace) == [["other"]]
    everywhere = [name for page in await lister.names(namespace="*", limit=3) for name in page]
    assert {"other", *names} <= set(everywhere)


async def test_a_page_shows_the_list_as_it_was_at_its_first_page(
    client: Client, namespace: str, lister: Lister
) -> None:
    for name in ("a", "b", "d"):
        await make(client, namespace, name)
    _, first = await lister.page(limit=2)
    await make(client, namespace, "c")
    _, second = await lister.page(limit=2, **{"continue": first["continue"]})
    assert [job["name"] for job in second["jobs"]] == ["d"]


async def test_a_list_has_only_the_states_that_it_asks_for(client: Client, namespace: str, lister: Lister) -> None:
    keys = {name: (await make(client, namespace, name))[0] for name in ("p", "r", "s", "f", "c1", "c2")}
    await client.patch_status(JOBS, keys["r"], {"phase": "Running"})
    await client.patch_status(JOBS, keys["s"], {"phase": "Succeeded", "score": 0.0})
    await end(client, keys["f"], "BadInput")
    for name in ("c1", "c2"):
        await end(client, keys[name], "Cancelled")
    for states, names in (
        ("PENDING", ["p"]),
        ("running,pending", ["p", "r"]),
        ("COMPLETED", ["s"]),
        ("FAILED", ["f"]),
        ("CANCELLED", ["c1", "c2"]),
        ("FAILED,CANCELLED", ["c1", "c2", "f"]),
    ):
        pages = await lister.names(status=states)
        assert [name for page in pages for name in page] == names
    pages = await lister.names(status="CANCELLED", limit=1)
    assert pages[:3] == [["c1"], ["c2"], []]  # of three that failed
    assert not any(pages[3:])  # the API server may send a token for an empty page
    _, reply = await lister.page(status="COMPLETED")
    (job,) = reply["jobs"]
    assert (job["finalScore"], job["createTime"][-1]) == (0.0, "Z")


async def test_an_expired_token_says_to_start_again(client: Client, namespace: str) -> None:
    for name in ("a", "b"):
        await make(client, namespace, name)
    async with (
        FaultyProxy(client.config) as proxy,
        Client(proxy.config) as through,
        controller_ports(through, namespace) as (port, url),
        aiohttp.ClientSession(url) as http,
    ):
        lister = Lister(http, port)
        _, first = await lister.page(limit=1)
        expired = '{"reason": "Expired", "message": "too old", "code": 410}'
        proxy.choose = lambda request: Refuse(410, body=expired) if "continue" in request.query else None
        status, problem = await lister.page(limit=1, **{"continue": first["continue"]})
        assert (status, problem["code"]) == (410, "ABORTED")
        assert "start again without continue" in problem["message"]


@pytest.mark.parametrize("start", ["../../../../", "/../other", ""])
async def test_a_forged_token_is_rejected(lister: Lister, start: str) -> None:
    forged = json.dumps({"v": "meta.k8s.io/v1", "rv": 1, "start": start}).encode()
    for token in (urlsafe_b64encode(forged).rstrip(b"=").decode(), "x", "%00", "ü"):
        status, problem = await lister.page(**{"continue": token})
        assert status in {400, 410}, problem
        assert "start again" in problem["message"]


async def test_the_token_of_another_list_leads_to_no_job_of_that_list(
    client: Client, namespace: str, other_namespace: str, lister: Lister
) -> None:
    for name in ("a", "b"):
        await make(client, other_namespace, name)
    _, first = await lister.page(namespace=other_namespace, limit=1)
    status, reply = await lister.page(**{"continue": first["continue"]})
    assert (status, reply["jobs"]) == (200, [])


async def test_a_missing_namespace_is_not_found(lister: Lister) -> None:
    status, problem = await lister.page(namespace="nosuch")
    assert (status, problem["code"]) == (404, "NOT_FOUND")


async def test_jobs_are_listed_over_grpc_too(client: Client, namespace: str, lister: Lister) -> None:
    names = [(await make(client, namespace, f"job-{number}"))[0].name for number in range(3)]
    async with controller_stub(lister.controller) as stub:
        first = await stub.ListJobs(wire.ListJobsRequest(limit=2))
        rest = await stub.ListJobs(wire.ListJobsRequest(limit=9999, continue_token=first.continue_token))
        assert [job.name for job in (*first.jobs, *rest.jobs)] == names
        assert rest.continue_token == ""
        with pytest.raises(grpc.aio.AioRpcError, match="must be from 1 to 500"):
            await stub.ListJobs(wire.ListJobsRequest(limit=-1))


async def test_listing_needs_the_permission_to_list(client: Client, namespace: str) -> None:
    tokens = {}
    for verb in ("list", "watch"):
        account = ObjectKey(namespace, f"may-{verb}")
        await grant(client, account, {"apiGroups": ["vmafx.dev"], "resources": ["vmafxjobs"], "verbs": [verb]})
        tokens[verb] = await service_account_token(client, account, AUDIENCE)
    await make(client, namespace, "one")
    now = 1000.0
    async with (
        controller_ports(client, "", home=namespace, doors=TokenAccess(client, lambda: now)) as (port, url),
        aiohttp.ClientSession(url) as http,
    ):
        lister = Lister(http, port)

        async def granted() -> bool:
            nonlocal now
            now += access.ALLOWED_TTL
            return (await lister.page(token=tokens["list"]))[0] == 200

        await eventually(granted, "the API server has seen the role bindings")
        assert (await lister.page())[0] == 401
        status, problem = await lister.page(token=tokens["watch"])
        assert (status, problem["code"]) == (403, "PERMISSION_DENIED")
        assert "may not list vmafxjobs" in problem["message"]
        assert (await lister.page(token=tokens["list"], namespace="*"))[0] == 403
        assert (await lister.page(token=tokens["list"], namespace="default"))[0] == 403
