"""Calls and watches through an HTTP proxy, against a real API server."""

import asyncio
import ssl
from pathlib import Path

import msgspec
import pytest
import uvloop

from tests.support.closed_port import closed_port
from tests.support.forward_proxy import Tunnel
from tests.support.proxy import FaultyProxy
from vmafx.api.meta import ObjectMeta
from vmafx.api.node import VmafxNode, VmafxNodeSpec
from vmafx.devcluster.pki import Authority
from vmafx.kube import NAMESPACES, NODES, Client, Config, ObjectKey
from vmafx.kube.credentials import basic
from vmafx.kube.errors import Unreachable, Untrusted
from vmafx.kube.watch import Added

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]
DEFAULT = ObjectKey("", "default")
NODE = VmafxNode(metadata=ObjectMeta(name="a"), spec=VmafxNodeSpec(gpuVendor="cpu"))


def through(config: Config, tunnel: Tunnel, scheme: str = "http", password: str = "") -> Config:
    credentials = basic("me", password) if password else config.proxy_credentials
    return msgspec.structs.replace(config, proxy=f"{scheme}://127.0.0.1:{tunnel.port}", proxy_credentials=credentials)


@pytest.mark.parametrize("loop", LOOPS)
def test_calls_and_watches_go_through_a_tunnel(client: Client, namespace: str, loop: type) -> None:
    async def run() -> list[str]:
        async with Tunnel() as tunnel, Client(through(client.config, tunnel)) as proxied:
            assert (await proxied.get(NAMESPACES, DEFAULT))["metadata"]["name"] == "default"
            await proxied.create(NODES, NODE, namespace)
            async for batch in proxied.watch(NODES, namespace):
                assert isinstance(batch[0], Added)
                break
            return tunnel.seen

    with asyncio.Runner(loop_factory=loop) as runner:
        seen = runner.run(run())
    where = client.config.server.removeprefix("https://")
    assert seen == [f"CONNECT {where} HTTP/1.1"] * 2  # one for the calls, one for the watch


async def test_a_proxy_with_a_password(client: Client) -> None:
    authorization = await basic("me", "hunter2").header() or ""
    async with Tunnel(authorization) as tunnel:
        async with Client(through(client.config, tunnel, password="hunter2")) as proxied:
            assert await proxied.get(NAMESPACES, DEFAULT)
        async with Client(through(client.config, tunnel, password="wrong")) as proxied:
            with pytest.raises(Unreachable, match="the proxy responded 407 Who Are You") as raised:
                await proxied.create(NODES, NODE, "default")
    assert "wrong" not in str(raised.value)
    assert not raised.value.sent


@pytest.mark.parametrize("loop", LOOPS)
def test_a_proxy_behind_tls(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loop: type) -> None:
    authority = Authority()
    (tmp_path / "ca.pem").write_bytes(authority.certificate)
    certificate, key = authority.server()
    (tmp_path / "server.pem").write_bytes(certificate + key)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(tmp_path / "server.pem")

    async def run() -> None:
        async with Tunnel(tls=tls) as tunnel:
            async with Client(through(client.config, tunnel, "https")) as proxied:
                with pytest.raises(Untrusted):
                    await proxied.get(NAMESPACES, DEFAULT)
            monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
            async with Client(through(client.config, tunnel, "https")) as proxied:
                assert await proxied.get(NAMESPACES, DEFAULT)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())


async def test_requests_to_a_server_without_tls_are_forwarded_by_url(client: Client) -> None:
    authorization = await basic("me", "hunter2").header() or ""
    async with FaultyProxy(client.config) as server, Tunnel(authorization) as tunnel:
        async with Client(through(server.config, tunnel, password="hunter2")) as proxied:
            assert await proxied.get(NAMESPACES, DEFAULT)
        assert tunnel.seen == [f"GET {server.config.server}/api/v1/namespaces/default HTTP/1.1"]


async def test_an_unreachable_proxy_is_reported(client: Client) -> None:
    with closed_port() as port:
        unreachable = msgspec.structs.replace(client.config, proxy=f"http://127.0.0.1:{port}")
        async with Client(unreachable) as proxied:
            with pytest.raises(Unreachable, match="cannot connect"):
                await proxied.create(NODES, NODE, "default")
