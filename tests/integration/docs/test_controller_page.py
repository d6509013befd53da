"""The examples of docs/controller.md, run with bash, curl, kubectl and Python."""

import asyncio
import os
import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.support.project import ROOT
from tests.support.scripted_controller import ScriptedController
from tests.support.waiting import eventually
from vmafx.auth import access
from vmafx.auth.access import TokenAccess
from vmafx.auth.credentials import CallerCredentials
from vmafx.controller import http_server
from vmafx.devcluster import DevCluster
from vmafx.http import server
from vmafx.http.address import ListenAddress
from vmafx.http.errors import StatusError
from vmafx.kube import Client
from vmafx.wire import controller_pb2 as wire

SERVICE = wire.DESCRIPTOR.services_by_name["VmafxController"]


def block_with(language: str, text: str) -> str:
    """The code block of the page that contains this text."""
    blocks = re.findall(rf"```{language}\n(.*?)```", (ROOT / "docs/controller.md").read_text(), re.DOTALL)
    (block,) = [one for one in blocks if text in one]
    return str(block)


async def bash(script: str, **variables: str) -> str:
    process = await asyncio.create_subprocess_exec(
        "bash", "-euo", "pipefail", "-c", script, cwd=ROOT, env=os.environ | variables,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, out.decode() + err.decode()
    return out.decode()


async def test_the_service_accounts_of_the_page_are_authorized(
    client: Client, cluster: DevCluster, kubectl_path: Path
) -> None:
    path = f"{kubectl_path.parent}:{os.environ['PATH']}"
    agent = "kubectl create token gpu-1 --audience vmafx-controller"
    script = f'{block_with("sh", "create token")}\necho; echo "$TOKEN"; {agent}'
    *_, encoder, gpu = (await bash(script, KUBECONFIG=str(cluster.kubeconfig), PATH=path)).split()
    now = 0.0
    guard = TokenAccess(client, lambda: now)

    async def authorized() -> bool:
        nonlocal now
        now += access.ALLOWED_TTL
        try:
            await guard.authorize(CallerCredentials(encoder), "create", "vmafxjobs", "default")
            await guard.authorize(CallerCredentials(gpu), "patch", "vmafxnodes", "default", "gpu-1", "status")
            await guard.authorize(CallerCredentials(gpu), "create", "vmafxnodes", "default", "gpu-1")
        except StatusError:
            return False
        return True

    await eventually(authorized, "the API server has seen the role bindings")
    with pytest.raises(StatusError, match="may not patch"):
        await guard.authorize(CallerCredentials(gpu), "patch", "vmafxnodes", "default", "gpu-2", "status")


async def test_the_curl_example() -> None:
    calls = ScriptedController()
    async with server.serve_http(ListenAddress("127.0.0.1", 0), http_server.site(calls, {})) as port:  # type: ignore[arg-type]
        controller = f"http://127.0.0.1:{port}"
        out = await bash(block_with("sh", "curl"), CONTROLLER=controller, TOKEN="t", JOB="u-1")
    assert [one.call for one in calls.received] == [
        "SubmitJob", "GetJob", "ListJobs", "StreamJobs", "CancelJob",
    ]  # fmt: skip
    assert {one.presented.token for one in calls.received} == {"t"}
    assert calls.received[0].request.spec == '{"priority": 5}'
    assert '"finalScore":93.25' in out


async def test_the_python_example(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    calls, tokens = ScriptedController(), []

    async def submit(request: Any, context: Any) -> Any:
        tokens.append(dict(context.invocation_metadata())["authorization"])
        return await calls.SubmitJob(request, CallerCredentials())

    async def stream(request: Any, context: Any) -> AsyncGenerator[wire.Job]:
        tokens.append(dict(context.invocation_metadata())["authorization"])
        async for job in calls.StreamJobs(request, CallerCredentials()):
            yield job

    server, address = grpc.aio.server(), f"unix:{tmp_path}/socket"
    submitted, streamed = SERVICE.methods_by_name["SubmitJob"], SERVICE.methods_by_name["StreamJobs"]
    handlers: dict[str, Any] = {
        submitted.name: grpc.unary_unary_rpc_method_handler(
            submit, wire.SubmitJobRequest.FromString, wire.SubmitJobResponse.SerializeToString
        ),
        streamed.name: grpc.unary_stream_rpc_method_handler(
            stream, wire.StreamJobsRequest.FromString, wire.Job.SerializeToString
        ),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE.full_name, handlers),))
    server.add_insecure_port(address)
    await server.start()
    monkeypatch.setenv("CONTROLLER_GRPC", address)
    monkeypatch.setenv("TOKEN", "t")
    names: dict[str, Any] = {}
    try:
        exec(compile(block_with("python", "grpc"), "docs/controller.md", "exec"), names)  # noqa: S102 - from docs/
        await asyncio.wait_for(names["main"](), 20)
    finally:
        await server.stop(None)
    assert capsys.readouterr().out == "video vj-1\none PENDING 0.0\ntwo COMPLETED 93.25\n"
    assert tokens == ["Bearer t"] * 2
