"""HTTP: who may call, what is refused, sessions with their limits, and streams that are lost."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from tests.conftest import Kubectl
from tests.support.mcp_server import HANDSHAKE, STATELESS, HttpServer, call, failed, text
from tests.support.relay import Relay
from tests.support.tokens import create_account, service_account_token
from tests.support.tune import HALF_THEN_HANG, FaultyFfmpeg, encodes
from tests.support.waiting import eventually
from vmafx.auth.reviews import AUDIENCE
from vmafx.devcluster import DevCluster
from vmafx.kube import Client, ObjectKey
from vmafx.mcp.server import MAX_CALLS_OF_CALLER
from vmafx.mcp.sessions import MAX_OF_CALLER

ANN, BOB = "ann-has-a-long-key-1", "bob-has-a-long-key-2"
ACCEPTED = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory, clips: Path) -> AsyncIterator[HttpServer]:
    """A server for tests that leave nothing behind."""
    async with HttpServer(tmp_path_factory.mktemp("mcp"), roots=clips) as server:
        yield server


@pytest.fixture
async def keyed(tmp_path: Path, clips: Path) -> AsyncIterator[HttpServer]:
    (tmp_path / "keys").write_text(f"ann {ANN}\nbob {BOB}\n")
    async with HttpServer(tmp_path, "--auth", "keys", "--keys", str(tmp_path / "keys"), roots=clips) as server:
        yield server


async def open_session(server: HttpServer, **headers: str) -> tuple[int, str]:
    """The status, and the ID of a new session."""
    status, found, _ = await server.call("POST", headers={**ACCEPTED, **headers}, body=json.dumps(INITIALIZE).encode())
    return status, found.get("Mcp-Session-Id", "")


@pytest.mark.parametrize("mode", [HANDSHAKE, STATELESS])
async def test_a_key_is_required_and_jobs_of_others_are_invisible(keyed: HttpServer, mode: str, clips: Path) -> None:
    for key, status in (("", 401), ("wrong-but-long-enough", 401)):
        headers = {**ACCEPTED, **({"Authorization": f"Bearer {key}"} if key else {})}
        assert (await keyed.call("POST", headers=headers, body=b"{}"))[0] == status
        with pytest.raises(BaseExceptionGroup) as caught:
            async with keyed.client(mode, key) as client:
                await client.list_tools()
        assert caught.group_contains(MCPError)
    for path in ("/healthz", "/readyz", "/metrics"):
        assert (await keyed.call("GET", path))[0] == 200
    async with keyed.client(mode, ANN) as ann, keyed.client(mode, BOB) as bob:
        names = {"reference": str(clips / "reference.mkv"), "distorted": str(clips / "distorted.mp4")}
        job = await call(ann, "score", **names, wait=150)
        assert (await call(bob, "list_jobs"))["jobs"] == []
        for tool in ("get_job", "cancel_job"):
            assert "you have no job" in await failed(bob, tool, id=job["id"])
        assert "you have no job" in await failed(bob, "explain_score", job=job["id"])
        assert (await bob.list_resources()).resources == []
        with pytest.raises(MCPError, match="there is no such report"):
            await bob.read_resource(job["reports"][0])
        assert len((await ann.list_resources()).resources) == 5
    log = keyed.log.read_text()
    assert [key for key in (ANN, BOB, "wrong-but-long-enough") if key in log] == []


async def test_a_session_belongs_to_its_caller(keyed: HttpServer) -> None:
    status, session = await open_session(keyed, Authorization=f"Bearer {ANN}")
    assert (status, bool(session)) == (200, True)
    ping = json.dumps({"jsonrpc": "2.0", "id": 2, "method": "ping"}).encode()
    for key, expected in ((BOB, 404), (ANN, 200)):
        headers = {**ACCEPTED, "Authorization": f"Bearer {key}", "Mcp-Session-Id": session}
        assert (await keyed.call("POST", headers=headers, body=ping))[0] == expected
    assert (
        await keyed.call("DELETE", headers={**ACCEPTED, "Authorization": f"Bearer {ANN}", "Mcp-Session-Id": session})
    )[0] == 200
    assert (
        await keyed.call(
            "POST", headers={**ACCEPTED, "Authorization": f"Bearer {ANN}", "Mcp-Session-Id": session}, body=ping
        )
    )[0] == 404


async def test_with_tokens_callers_must_be_allowed_to_create_jobs(
    tmp_path: Path, clips: Path, client: Client, namespace: str, cluster: DevCluster, kubectl: Kubectl
) -> None:
    tokens = {}
    for name in ("scorer", "stranger"):
        await create_account(client, ObjectKey(namespace, name))
        tokens[name] = await service_account_token(client, ObjectKey(namespace, name), AUDIENCE)
    role = ("create", "role", "scoring", "--verb=create", "--resource=vmafxjobs.vmafx.dev")
    assert kubectl(*role).returncode == 0
    assert (
        kubectl("create", "rolebinding", "s", "--role=scoring", f"--serviceaccount={namespace}:scorer").returncode == 0
    )
    flags = ("--auth", "token", "--kubeconfig", str(cluster.kubeconfig), "--namespace", namespace)
    async with HttpServer(tmp_path, *flags, roots=clips) as server:
        for name, expected in (("scorer", 200), ("stranger", 403)):
            assert (await open_session(server, Authorization=f"Bearer {tokens[name]}"))[0] == expected


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "https://attacker.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Host": "attacker.example"}, 421),
        ({"Content-Type": "text/plain"}, 415),
        ({"Accept": "application/json"}, 406),
    ],
)
async def test_requests_of_other_sites_and_names_are_refused(
    server: HttpServer, headers: dict[str, str], status: int
) -> None:
    for version in ({}, {"MCP-Protocol-Version": STATELESS}):
        sent = {**ACCEPTED, **version, **headers}
        assert (await server.call("POST", headers=sent, body=json.dumps(INITIALIZE).encode()))[0] == status


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"x" * (2 << 20), 413),
        (b"not json", 400),
        (b"[]", 400),
        (b"[" * 100_000, 400),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}', 400),
    ],
)
async def test_bodies_that_are_too_large_or_no_messages_are_refused(
    server: HttpServer, body: bytes, status: int
) -> None:
    for version in ({}, {"MCP-Protocol-Version": STATELESS}):
        assert (await server.call("POST", headers={**ACCEPTED, **version}, body=body))[0] == status
    assert (await server.call("GET", headers=ACCEPTED))[0] == 400
    assert (await server.call("GET", "/other"))[0] == 404
    assert (await server.call("PUT"))[0] == 405


async def test_sessions_are_bounded_and_the_least_recently_used_one_ends(server: HttpServer) -> None:
    opened = [await open_session(server) for _ in range(MAX_OF_CALLER + 1)]
    assert {status for status, _ in opened} == {200}
    ping = json.dumps({"jsonrpc": "2.0", "id": 2, "method": "ping"}).encode()

    async def status(session: str) -> int:
        return (await server.call("POST", headers={**ACCEPTED, "Mcp-Session-Id": session}, body=ping))[0]

    assert await status(opened[0][1]) == 404
    assert await status(opened[1][1]) == 200
    assert f'vmafx_mcp_sessions{{kind="http"}} {float(MAX_OF_CALLER)}' in (await server.call("GET", "/metrics"))[2]
    for _, session in opened:
        await server.call("DELETE", headers={**ACCEPTED, "Mcp-Session-Id": session})
    assert 'vmafx_mcp_sessions{kind="http"} 0.0' in (await server.call("GET", "/metrics"))[2]


async def test_a_client_that_lost_its_stream_resumes_it(tmp_path: Path, clips: Path, faulty: FaultyFfmpeg) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    faulty.fault(f"while [ -e {hold} ]; do sleep 0.05; done")
    async with (
        HttpServer(tmp_path, roots=clips, **faulty.environment) as server,
        Relay(server.port) as relay,
        server.client(HANDSHAKE, url=f"http://127.0.0.1:{relay.port}/mcp") as client,
    ):
        encoders = ["libx264:ultrafast", "libx265:ultrafast"]
        arguments = {"source": str(clips / "reference.mkv"), "encoders": encoders, "qualities": [30], "wait": 150}
        calling = asyncio.create_task(client.call_tool("compare", arguments))
        await eventually(server.finished, "the first encode is finished")
        before = relay.connections
        relay.cut()
        await eventually(lambda: relay.connections > before, "the client comes back")
        hold.unlink()
        result = await calling
        assert not result.is_error
        assert len(encodes(result.structured_content["compare"])) == 2
        (job,) = (await call(client, "list_jobs"))["jobs"]
        assert job["phase"] == "Succeeded", "the lost connection has cancelled nothing"


async def test_without_a_session_a_lost_connection_cancels_the_request(
    tmp_path: Path, clips: Path, faulty: FaultyFfmpeg
) -> None:
    """As the protocol has it since 2026-07-28."""
    hold = tmp_path / "hold"
    hold.touch()
    faulty.fault(f"while [ -e {hold} ]; do sleep 0.05; done")
    arguments = {"source": str(clips / "reference.mkv"), "encoders": ["libx265"], "qualities": [30], "wait": 150}
    async with (
        HttpServer(tmp_path, roots=clips, **faulty.environment) as server,
        Relay(server.port) as relay,
        server.client(STATELESS) as other,
    ):

        async def compare() -> None:
            async with server.client(STATELESS, url=f"http://127.0.0.1:{relay.port}/mcp") as client:
                await client.call_tool("compare", arguments)

        async def is_cancelled() -> bool:
            return [job["phase"] for job in (await call(other, "list_jobs"))["jobs"]] == ["Cancelled"]

        calling = asyncio.create_task(compare())
        await eventually(lambda: _unfinished(server), "the job runs")
        relay.cut()
        (outcome,) = await asyncio.gather(calling, return_exceptions=True)
        assert isinstance(outcome, BaseException), "the client has lost its connection"
        await eventually(is_cancelled, "the job is cancelled")


async def _unfinished(server: HttpServer) -> bool:
    return 'vmafx_mcp_unfinished_jobs{phase="Running"} 1.0' in (await server.call("GET", "/metrics"))[2]


async def test_a_caller_has_a_limited_number_of_calls_also_without_connections(
    tmp_path: Path, clips: Path, faulty: FaultyFfmpeg
) -> None:
    """Requests of a session outlive their connections, so those do not limit them."""
    faulty.fault(HALF_THEN_HANG)
    (tmp_path / "keys").write_text(f"ann {ANN}\nbob {BOB}\n")
    flags = ("--auth", "keys", "--keys", str(tmp_path / "keys"))
    async with (
        HttpServer(tmp_path, *flags, roots=clips, **faulty.environment) as server,
        server.client(HANDSHAKE, ANN) as ann,
        server.client(HANDSHAKE, BOB) as bob,
    ):
        arguments = {"source": str(clips / "reference.mkv"), "encoders": ["libx265"], "qualities": [30], "wait": 0}
        job = await call(ann, "compare", **arguments)
        get = {"id": job["id"], "wait": 150}
        waiting = [asyncio.create_task(ann.call_tool("get_job", get)) for _ in range(MAX_CALLS_OF_CALLER + 1)]
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert ["too many calls" in text(one.result()) for one in done] == [True]
        assert (await call(bob, "list_jobs"))["jobs"] == []
        for one in waiting:
            one.cancel()
        await asyncio.wait(waiting)
        assert (await call(ann, "cancel_job", id=job["id"]))["phase"] == "Cancelled"
