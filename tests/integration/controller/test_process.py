"""`vmafx controller` as a process: gRPC and HTTP, tokens and certificates, probes, metrics, and shutdown."""

import asyncio
import json
import os
import re
import signal
import socket
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tests.conftest import Kubectl
from tests.support.fleet import add_node
from tests.support.project import ROOT
from tests.support.tokens import create_account, service_account_token
from tests.support.waiting import eventually
from vmafx.auth.reviews import AUDIENCE
from vmafx.devcluster import DevCluster
from vmafx.devcluster.cluster import free_port
from vmafx.devcluster.pki import Authority
from vmafx.kube import Client, ObjectKey
from vmafx.kube.fetch import fetch
from vmafx.kube.http1 import HttpResponse
from vmafx.wire import controller_pb2 as wire
from vmafx.wire.controller_pb2_grpc import VmafxControllerStub

VMAFX = str(Path(sys.executable).with_name("vmafx"))
CLIPS = wire.ScoringParams(reference="file:///a.mp4", distorted="file:///b.mp4")
HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"  # and empty settings
BODY = b'{"scoring": {"reference": "file:///a.mp4", "distorted": "file:///b.mp4"}}'


class Process(msgspec.Struct):
    process: asyncio.subprocess.Process
    grpc: int
    http: int
    log: Path

    def log_lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@asynccontextmanager
async def controller(
    cluster: DevCluster, folder: Path, *flags: str, scheme: str = "http", limits: str = ":"
) -> AsyncIterator[Process]:
    """`limits` is a shell command that sets limits of the process."""
    ports, log = (free_port(), free_port()), folder / "controller.log"
    addresses = ["--grpc-address", f"127.0.0.1:{ports[0]}", "--http-address", f"127.0.0.1:{ports[1]}"]
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    with log.open("w") as out:
        process = await asyncio.create_subprocess_exec(
            "sh", "-c", f'{limits}; exec "$0" "$@"', VMAFX, "controller", *addresses, *flags,
            env=environment, stdout=out, stderr=out,
        )  # fmt: skip
    running = Process(process, *ports, log)
    try:

        async def ready() -> bool:
            assert process.returncode is None, log.read_text()
            trust = ssl._create_unverified_context()  # noqa: S323 - only to wait until it is ready
            try:
                response = await fetch(f"{scheme}://127.0.0.1:{running.http}/readyz", trust=trust)
            except OSError:
                return False
            return response.status == 200

        await eventually(ready, "the controller is ready")
        yield running
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.fixture
async def token(client: Client, namespace: str, kubectl: Kubectl) -> str:
    """The token of a client that may submit jobs in the namespace."""
    assert kubectl("apply", "-f", str(ROOT / "config/rbac/caller-roles.yaml")).returncode == 0
    await create_account(client, ObjectKey(namespace, "encoder"))
    subject = f"--serviceaccount={namespace}:encoder"
    kubectl("create", "rolebinding", "encoder", "--clusterrole=vmafx-client", subject)
    return await service_account_token(client, ObjectKey(namespace, "encoder"), AUDIENCE)


async def test_a_token_is_accepted_over_http_and_grpc(
    cluster: DevCluster, namespace: str, token: str, tmp_path: Path
) -> None:
    async with controller(cluster, tmp_path, "--namespace", namespace) as running:
        url = f"http://127.0.0.1:{running.http}/v1/jobs"
        headers = {"Content-Type": "application/json"}
        assert (await fetch(url, method="POST", headers=headers, body=BODY)).status == 401
        headers["Authorization"] = f"Bearer {token}"

        responses: list[HttpResponse] = []

        async def authorized() -> bool:
            responses.append(await fetch(url, method="POST", headers=headers, body=BODY))
            return responses[-1].status != 403

        await eventually(authorized, "the API server has seen the binding")
        assert responses[-1].status == 201, responses[-1].body
        uid = json.loads(responses[-1].body)["jobId"]
        async with grpc.aio.insecure_channel(f"127.0.0.1:{running.grpc}") as channel:
            stub, request = VmafxControllerStub(channel), wire.GetJobRequest(job_id=uid)
            with pytest.raises(grpc.aio.AioRpcError, match="UNAUTHENTICATED"):
                await stub.GetJob(request)
            job = await stub.GetJob(request, metadata=(("authorization", f"Bearer {token}"),))
            assert (job.id, job.status, job.namespace) == (uid, wire.PENDING, namespace)
            with pytest.raises(grpc.aio.AioRpcError, match="PERMISSION_DENIED"):
                await stub.RegisterNode(
                    wire.RegisterNodeRequest(name="box"), metadata=(("authorization", f"Bearer {token}"),)
                )
            await check_health_and_reflection(channel, token)
        metrics = (await fetch(f"http://127.0.0.1:{running.http}/metrics")).body.decode()
        assert 'vmafx_controller_calls_total{code="OK",method="GetJob"} 1.0' in metrics
        assert 'vmafx_controller_calls_total{code="PERMISSION_DENIED",method="RegisterNode"} 1.0' in metrics
        page = (ROOT / "docs/controller.md").read_text()
        named = re.findall(r"`((?:vmafx|rest)_[a-z_]+)", page.partition("\n## Metrics\n")[2].partition("\n## ")[0])
        assert len(named) == 11
        assert [name for name in named if f"# HELP {name} " not in metrics] == []
        assert token not in running.log.read_text()
        lines = running.log_lines()
        rejected = [(line["caller"], line["peer"], line["call"]) for line in lines if line["msg"] == "call rejected"]
        account = f"system:serviceaccount:{namespace}:encoder"
        assert ("unknown", "127.0.0.1", "SubmitJob") in rejected
        assert (account, "127.0.0.1", "RegisterNode") in rejected or (account, "127.0.0.1", "SubmitJob") in rejected
        (serving,) = [line for line in lines if line["msg"] == "serving"]
        assert (serving["grpc"], serving["http"]) == (running.grpc, running.http)
        assert len([line for line in lines if "without TLS" in str(line["msg"])]) == 1
        running.process.send_signal(signal.SIGTERM)
        assert await running.process.wait() == 0
        assert running.log_lines()[-1]["msg"] == "stopped"


async def check_health_and_reflection(channel: grpc.aio.Channel, token: str) -> None:
    """The calls of load balancers and grpcurl."""
    health: Any = health_pb2_grpc.HealthStub(channel)
    healthy = await health.Check(health_pb2.HealthCheckRequest(service="vmafx.controller.v1.VmafxController"))
    assert healthy.status == health_pb2.HealthCheckResponse.SERVING
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)  # type: ignore[arg-type]
    assert await stub.ServerReflectionInfo(iter([request])).code() is grpc.StatusCode.UNAUTHENTICATED
    async for reply in stub.ServerReflectionInfo(iter([request]), metadata=(("authorization", f"Bearer {token}"),)):
        services = [service.name for service in reply.list_services_response.service]
        assert "vmafx.controller.v1.VmafxController" in services
        break


async def test_who_holds_all_connections_makes_the_controller_unhealthy(
    cluster: DevCluster, namespace: str, tmp_path: Path
) -> None:
    """Agents have to reconnect now and then: kept out, they must not count as silent."""
    limits, strangers = "ulimit -Sn 128; ulimit -Hn 512", list[asyncio.StreamWriter]()
    flags = ["--auth", "insecure", "--namespace", namespace]
    async with controller(cluster, tmp_path, *flags, limits=limits) as running:
        (serving,) = [line for line in running.log_lines() if line["msg"] == "serving"]
        assert serving["max_connections"] == 256  # half of what the hard limit allows

        async def health() -> HttpResponse:
            return await fetch(f"http://127.0.0.1:{running.http}/healthz")

        async def is_full() -> bool:
            for _ in range(20):
                _, writer = await asyncio.open_connection("127.0.0.1", running.grpc)
                writer.write(HTTP2_PREFACE)
                strangers.append(writer)
            return (await health()).status == 503

        assert (await health()).status == 200
        await eventually(is_full, "the controller is unhealthy")
        assert "the gRPC port closes new connections: there are too many" in (await health()).body.decode()
        assert len(strangers) > 240
        for stranger in strangers:
            stranger.transport.abort()

        async def is_healthy() -> bool:
            return (await health()).status == 200

        await eventually(is_healthy, "the controller is healthy again")


def server_certificate(port: int, protocol: str = "") -> bytes:
    """The certificate that the server presents to a new connection."""
    context = ssl._create_unverified_context()  # noqa: S323 - the certificate is only compared
    if protocol:
        context.set_alpn_protocols([protocol])
    with socket.create_connection(("127.0.0.1", port)) as plain, context.wrap_socket(plain) as connection:
        return connection.getpeercert(binary_form=True) or b""


async def test_a_renewed_certificate_is_used_for_the_next_connection(
    cluster: DevCluster, namespace: str, tmp_path: Path
) -> None:
    authority, files = Authority(), (tmp_path / "server.crt", tmp_path / "server.key")

    def renew(*only: Path) -> bytes:
        for path, content in zip(files, pair := authority.server(), strict=True):
            if path in only:
                path.with_suffix(".new").write_bytes(content)
                path.with_suffix(".new").replace(path)
        return ssl.PEM_cert_to_DER_cert(pair[0].decode())

    first = renew(*files)
    flags = ["--tls-cert", str(files[0]), "--tls-key", str(files[1]), "--auth", "insecure", "--namespace", namespace]
    async with controller(cluster, tmp_path, *flags, scheme="https") as running:

        async def presented() -> tuple[bytes, bytes]:
            ports = ((running.grpc, "h2"), (running.http, ""))
            by_grpc, by_http = [await asyncio.to_thread(server_certificate, *port) for port in ports]
            return by_grpc, by_http

        assert await presented() == (first, first)
        renew(files[0])  # without its key
        assert await presented() == (first, first)
        second = renew(*files)
        assert await presented() == (second, second)


async def test_a_client_certificate_is_required_and_accepted_over_grpc(
    cluster: DevCluster, client: Client, namespace: str, kubectl: Kubectl, tmp_path: Path
) -> None:
    authority = Authority()
    (tmp_path / "ca.pem").write_bytes(authority.certificate)
    certificate, key = authority.server()
    (tmp_path / "server.crt").write_bytes(certificate)
    (tmp_path / "server.key").write_bytes(key)
    assert kubectl("apply", "-f", str(ROOT / "config/rbac/caller-roles.yaml")).returncode == 0
    kubectl("create", "rolebinding", "agents", "--clusterrole=vmafx-agent", "--group=agents")
    await add_node(client, namespace, "box", runtime="Agent")  # the role does not allow agents to create nodes
    flags = ["--tls-cert", str(tmp_path / "server.crt"), "--tls-key", str(tmp_path / "server.key")]
    flags += ["--client-ca", str(tmp_path / "ca.pem"), "--namespace", namespace]
    async with controller(cluster, tmp_path, *flags, scheme="https") as running:
        assert not [line for line in running.log_lines() if "without TLS" in str(line["msg"])]
        client_certificate, client_key = authority.client("box", "agents")
        credentials = grpc.ssl_channel_credentials(authority.certificate, client_key, client_certificate)
        async with grpc.aio.secure_channel(f"127.0.0.1:{running.grpc}", credentials) as channel:
            stub = VmafxControllerStub(channel)

            async def registered() -> bool:
                try:
                    reply = await stub.RegisterNode(wire.RegisterNodeRequest(name="box"))
                except grpc.aio.AioRpcError as error:
                    if error.code() != grpc.StatusCode.PERMISSION_DENIED:
                        raise
                    return False
                return bool(reply.node_id == f"{namespace}/box")

            await eventually(registered, "the API server has seen the binding")
            with pytest.raises(grpc.aio.AioRpcError, match="PERMISSION_DENIED"):
                await stub.SubmitJob(wire.SubmitJobRequest(scoring=CLIPS))
        without = grpc.ssl_channel_credentials(authority.certificate)
        async with grpc.aio.secure_channel(f"127.0.0.1:{running.grpc}", without) as channel:
            with pytest.raises(grpc.aio.AioRpcError, match="UNAVAILABLE"):  # the TLS handshake fails
                await VmafxControllerStub(channel).RegisterNode(wire.RegisterNodeRequest(name="box"))
        assert running.log_lines()  # all lines are JSON: gRPC's own log is off


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--tls-cert", "nowhere.pem", "--tls-key", "nowhere.key"],
            "cannot use nowhere.pem, nowhere.key and no client CA",
        ),
        (["--client-ca", __file__], "needs TLS: set --tls-cert and --tls-key too"),
        (["--tls-cert", __file__], "must be set together"),
    ],
)
async def test_invalid_flags_end_the_process_with_an_error(cluster: DevCluster, flags: list[str], message: str) -> None:
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    process = await asyncio.create_subprocess_exec(
        VMAFX, "controller", *flags, env=environment, stderr=asyncio.subprocess.PIPE
    )
    _, stderr = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 1
    assert message in stderr.decode()


async def test_a_port_in_use_ends_the_process_with_an_error(
    cluster: DevCluster, namespace: str, tmp_path: Path
) -> None:
    async with controller(cluster, tmp_path, "--auth", "insecure", "--namespace", namespace) as running:
        environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
        flags = ["--grpc-address", f"127.0.0.1:{running.grpc}", "--http-address", "0", "--namespace", namespace]
        process = await asyncio.create_subprocess_exec(
            VMAFX, "controller", *flags, env=environment, stderr=asyncio.subprocess.PIPE
        )
        _, stderr = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 1
        assert "is the port in use?" in stderr.decode()
