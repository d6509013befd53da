"""examples/embed_inference.py, run as a user runs it."""

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from tests.support.project import ROOT
from tests.support.serving_kubelet import ServingKubelet
from tests.support.waiting import eventually
from vmafx.devcluster import DevCluster
from vmafx.kube import Client
from vmafx.kube.core import DEPLOYMENTS, SERVICES

EXAMPLE = ROOT / "examples" / "embed_inference.py"


async def start(kubeconfig: Path, *arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, str(EXAMPLE), "--image", "registry.example.com/vmafx:1", *arguments,
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def run(kubeconfig: Path, *arguments: str) -> tuple[int | None, str, str]:
    process = await start(kubeconfig, *arguments)
    output, errors = await process.communicate()
    return process.returncode, output.decode(), errors.decode()


async def children(client: Client, namespace: str) -> list[str]:
    lists = [await client.list(kind, namespace) for kind in (DEPLOYMENTS, SERVICES)]
    return [one["metadata"]["name"] for found in lists for one in found.items]


async def test_the_example_serves_promotes_and_deletes(client: Client, cluster: DevCluster, namespace: str) -> None:
    async with ServingKubelet(client, namespace):
        code, output, errors = await run(cluster.kubeconfig, "--namespace", namespace)
    assert (code, errors) == (0, ""), output
    steps = re.findall(r"^(\S.*)\n((?: .*\n)*)", output, re.MULTILINE)
    assert [step for step, _ in steps] == [
        "serving vmaf_v0.6.1, with vmaf_v0.6.1neg as a canary",
        "raising the weight of the canary to 50 %",
        "promoting the canary",
        "deleting the service",
    ]
    ready = f"  ready at http://demo-svc.{namespace}.svc: "
    assert [lines.splitlines()[-1] for _, lines in steps[:3]] == [
        f"{ready}4 replicas, 1 of them canary with 25 %",
        f"{ready}6 replicas, 3 of them canary with 50 %",
        f"{ready}3 replicas",
    ]
    assert await children(client, namespace) == []


async def test_the_example_gives_up_after_its_timeout(client: Client, cluster: DevCluster, namespace: str) -> None:
    code, output, errors = await run(cluster.kubeconfig, "--namespace", namespace, "--timeout", "2")
    assert code == 1
    assert errors.startswith("error: not ready within 2 s: ")
    assert "primary: 0 of 3 replicas are ready" in errors
    assert output.endswith("deleting the service\n")
    assert await children(client, namespace) == []


async def test_the_example_cleans_up_when_interrupted(client: Client, cluster: DevCluster, namespace: str) -> None:
    process = await start(cluster.kubeconfig, "--namespace", namespace)

    async def has_children() -> bool:
        return "demo-canary" in await children(client, namespace)

    await eventually(has_children, "the children exist")
    process.send_signal(signal.SIGINT)
    output, errors = await process.communicate()
    assert (process.returncode, errors.decode()) == (130, ""), output
    assert await children(client, namespace) == []


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--namespace", "missing"), 'error: namespaces "missing" not found'),
        (("--image", ""), "error: spec.image: must be set, because no default image is configured"),
    ],
)
async def test_errors_are_plain(client: Client, cluster: DevCluster, arguments: tuple[str, ...], error: str) -> None:
    code, _, errors = await run(cluster.kubeconfig, *arguments)
    assert (code, errors) == (1, f"{error}\n")
    assert await children(client, "default") == ["kubernetes"]


async def test_a_missing_cluster_is_a_plain_error(tmp_path: Path) -> None:
    code, output, errors = await run(tmp_path / "kubeconfig")
    assert (code, output) == (1, "")
    assert errors.startswith("error: ")
    assert "Traceback" not in errors
