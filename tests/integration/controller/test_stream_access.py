"""Streams over HTTP end with the access of their caller, and are limited per caller."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest

from tests.conftest import Kubectl
from tests.support.fleet import submit
from tests.support.inprocess_controller import controller_ports
from tests.support.project import ROOT
from tests.support.tokens import ACCOUNTS, create_account, service_account_token
from tests.support.waiting import PATIENCE, eventually
from vmafx.auth import access, streams
from vmafx.auth.access import TokenAccess
from vmafx.auth.reviews import AUDIENCE
from vmafx.controller import middleware
from vmafx.kube import Client, ObjectKey


class Clock:
    """The clock of cached reviews."""

    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


class Clients(NamedTuple):
    """Two accounts that may read jobs, and a controller for them."""

    http: aiohttp.ClientSession
    clock: Clock
    tokens: dict[str, str]

    async def open(self, account: str) -> aiohttp.ClientResponse:
        return await self.http.get("/v1/jobs", headers={"Authorization": f"Bearer {self.tokens[account]}"})

    async def last_line(self, response: aiohttp.ClientResponse) -> Any:
        """Read a stream to its end, while time passes for the caches."""

        async def pass_time() -> None:
            while True:
                self.clock.at += access.ALLOWED_TTL
                await asyncio.sleep(0.05)

        passing = asyncio.create_task(pass_time())
        try:
            async with asyncio.timeout(PATIENCE):
                return json.loads([line async for line in response.content][-1])
        finally:
            passing.cancel()


@pytest.fixture
async def clients(
    client: Client, namespace: str, kubectl: Kubectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Clients]:
    monkeypatch.setattr(streams, "INTERVAL", 0.1)
    monkeypatch.setattr(middleware, "MAX_STREAMS", 4)
    assert kubectl("apply", "-f", str(ROOT / "config/rbac/caller-roles.yaml")).returncode == 0
    tokens = {}
    for name in ("encoder", "viewer"):
        await create_account(client, ObjectKey(namespace, name))
        subject = f"--serviceaccount={namespace}:{name}"
        assert kubectl("create", "rolebinding", name, "--clusterrole=vmafx-client", subject).returncode == 0
        tokens[name] = await service_account_token(client, ObjectKey(namespace, name), AUDIENCE)
    await submit(client, namespace, "one", tmp_path)
    clock = Clock()
    async with (
        controller_ports(client, namespace, doors=TokenAccess(client, clock)) as (_, url),
        aiohttp.ClientSession(url) as http,
    ):
        made = Clients(http, clock, tokens)

        async def bound(account: str) -> bool:
            clock.at += access.ALLOWED_TTL
            async with await made.open(account) as response:
                return response.status == 200

        for name in tokens:
            await eventually(lambda name=name: bound(name), "the server has seen the binding")  # type: ignore[misc]
        yield made


async def test_a_stream_ends_when_its_caller_loses_the_permission(clients: Clients, kubectl: Kubectl) -> None:
    async with await clients.open("encoder") as stream, await clients.open("viewer") as other:
        assert json.loads(await stream.content.readline())["name"] == "one"
        assert kubectl("delete", "rolebinding", "encoder").returncode == 0
        last = await clients.last_line(stream)
        assert last["code"] == "PERMISSION_DENIED"
        assert "may not watch vmafxjobs" in last["message"]
        assert json.loads(await other.content.readline())["name"] == "one"
        assert not other.content.at_eof()


async def test_a_stream_ends_when_its_token_is_revoked(clients: Clients, client: Client, namespace: str) -> None:
    async with await clients.open("encoder") as stream:
        assert json.loads(await stream.content.readline())["name"] == "one"
        await client.delete(ACCOUNTS, ObjectKey(namespace, "encoder"))
        assert (await clients.last_line(stream))["code"] == "UNAUTHENTICATED"


async def test_a_caller_cannot_open_all_streams(clients: Clients) -> None:
    async with await clients.open("encoder") as first, await clients.open("encoder") as second:
        async with await clients.open("encoder") as third:
            assert third.status == 429
            reply = await third.json()
            assert reply["code"] == "RESOURCE_EXHAUSTED"
            assert reply["message"].startswith("too many streams at the same time")
        async with await clients.open("viewer") as other:
            assert other.status == 200
        assert {first.status, second.status} == {200}

    async def has_room() -> bool:
        async with await clients.open("encoder") as response:
            return response.status == 200

    await eventually(has_room, "the streams have ended")
