"""The commands, tables and examples of docs/inference.md."""

import json
import os
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.support.project import ROOT
from tests.support.serving import Serving, serving
from tests.support.serving_container import ServingContainer
from tests.support.shell import run_shell, write_kubeconfig
from vmafx import inference
from vmafx.api.hardware import HARDWARE, Vendor
from vmafx.devcluster import DevCluster
from vmafx.devcluster.cluster import free_port
from vmafx.inference.gpu import MEMORY_LABELS
from vmafx.inference.traffic import MAX_MISS, achieved_weight, canary_replicas
from vmafx.kube import Client
from vmafx.kube.core import DEPLOYMENTS, HPAS
from vmafx.kube.resources import UntypedObject
from vmafx.operator.inference.gateway import GatewayRef
from vmafx.operator.inference.kind import REASONS
from vmafx.scoring.engines.ffmpeg import BUILT_IN_MODELS

PAGE = (ROOT / "docs/inference.md").read_text()
COMMANDS = re.findall(r"^ {4}(\S.*)$", re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL), re.MULTILINE)
NAME = "house-model"
pytestmark = pytest.mark.timeout(400)


class Shell(NamedTuple):
    """Runs commands of the page in a namespace with the reconciler and a kubelet, in a folder with examples/."""

    folder: Path
    environment: dict[str, str]
    services: Serving

    async def run(self, command: str) -> str:
        """The output of a command, which must succeed."""
        output = await run_shell(command, self.folder, self.environment)
        return output.replace(f".{self.services.namespace}.", ".default.")

    async def until_ready(self) -> None:
        await self.services.until("Ready", name=NAME)

    async def model(self) -> str:
        return (await self.services.service(NAME)).spec.modelRef


@pytest.fixture
async def shell(
    client: Client, cluster: DevCluster, namespace: str, kubectl_path: Path, tmp_path: Path
) -> AsyncIterator[Shell]:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    write_kubeconfig(cluster, namespace, tmp_path / "kubeconfig")
    path = f"{kubectl_path.parent}:{os.environ['PATH']}"
    environment = {"PATH": path, "HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "kubeconfig")}
    async with serving(client, namespace) as services:
        yield Shell(tmp_path, environment, services)


async def test_the_commands_of_the_page(shell: Shell) -> None:
    apply, wait, get, _forward, _curl, set_variable, children, patch, scale, autoscale, fixed, *others = COMMANDS
    canary, wait_canary, get_canary, weight, promote, abort, delete, pods, describe, _logs = others
    services, (plain, with_canary) = shell.services, outputs()

    assert await shell.run(apply) == f"zerfooinferenceservice.vmafx.dev/{NAME} created\n"
    assert "condition met" in await shell.run(wait)
    assert without_age(await shell.run(get)) == plain
    await shell.run(set_variable)
    shown = await shell.run(children)
    for child in ("deployment.apps", "poddisruptionbudget.policy", "service"):
        assert f"{child}/{NAME}-primary" in shown
    assert f"service/{NAME}-svc" in shown
    await shell.run(patch)
    await shell.until_ready()

    await shell.run(scale)
    await shell.until_ready()
    assert await services.replicas(f"{NAME}-primary") == 5
    await shell.run(autoscale)
    await shell.until_ready()
    assert await services.names(HPAS) == [f"{NAME}-primary-hpa"]
    await shell.run(fixed)
    await services.eventually(lambda: has(services, HPAS, []), "the autoscaler is deleted")

    await shell.run(canary)
    assert "condition met" in await shell.run(wait_canary)
    await shell.until_ready()
    assert without_age(await shell.run(get_canary)) == with_canary
    await shell.run(weight)
    await services.until("CanaryHonoured", name=NAME)
    assert (await services.service(NAME)).status.canaryWeight == 50
    await shell.run(promote)
    await shell.until_ready()
    assert await services.names(DEPLOYMENTS) == [f"{NAME}-primary"]
    assert await shell.model() == "vmaf_v0.6.1neg"
    pod = await pod_spec(services)  # as changed above
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert {"name": "VMAFX_MEDIA_ALLOW_PRIVATE", "value": "true"} in pod["containers"][0]["env"]

    await shell.run(canary)
    await services.until("CanaryHonoured", name=NAME)
    await shell.run(abort)
    await services.eventually(lambda: has(services, DEPLOYMENTS, [f"{NAME}-primary"]), "the canary is removed")
    assert await shell.model() == "vmaf_v0.6.1"

    assert re.search(rf"{NAME}-primary-\S+ .* primary\n", await shell.run(pods))
    assert "MODEL_REF:" in await shell.run(describe)
    await shell.run(delete)
    await services.eventually(lambda: has(services, DEPLOYMENTS, []), "the children are deleted")


async def pod_spec(services: Serving) -> UntypedObject:
    primary = await services.get(DEPLOYMENTS, f"{NAME}-primary")
    assert primary is not None
    spec: UntypedObject = primary["spec"]["template"]["spec"]
    return spec


async def test_the_request_of_the_page(shell: Shell, clips: Path) -> None:
    """Scored by a process that runs as the Pods of the page describe."""
    apply, (_, request) = COMMANDS[0], COMMANDS[3:5]
    await shell.run(apply)
    await shell.services.change(NAME, port=(port := free_port()))
    await shell.until_ready()
    shutil.copy(clips / "reference.mkv", shell.folder / "reference.mkv")
    shutil.copy(clips / "distorted.mp4", shell.folder / "encode.mp4")
    async with ServingContainer({"spec": await pod_spec(shell.services)}, shell.folder):
        result = json.loads(await shell.run(request.replace("localhost:8080", f"localhost:{port}")))
    assert (result["model"], result["frames"] > 0) == ("vmaf_v0.6.1", True)


def test_the_models_of_the_page_are_those_that_are_built_in() -> None:
    (listed,) = re.findall(r"built-in model \((.*?)\)", PAGE)
    assert tuple(re.findall(r"`(.*?)`", listed)) == BUILT_IN_MODELS


def outputs() -> list[list[list[str]]]:
    """The tables of `kubectl get` on the page, without the age."""
    return [without_age(one) for one in re.findall(r"```\n(NAME .*?)```", PAGE, re.DOTALL)]


def without_age(table: str) -> list[list[str]]:
    return [line.split()[:-1] for line in table.splitlines()]


async def has(services: Serving, kind: Any, expected: list[str]) -> bool:
    return await services.names(kind) == expected


def rows(first_head: str) -> list[list[str]]:
    """The rows of the table whose first heading is this one, with the heading."""
    (table,) = re.findall(rf"(?:^|\n)(\| {first_head} \|.*?)\n(?!\|)", PAGE, re.DOTALL)
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return [line for line in lines if not set("".join(line)) <= set("-")]


def test_the_table_of_canary_replicas() -> None:
    head, *table = rows("Primary replicas")
    weights = [int(re.sub(r"\D", "", one)) for one in head[1:]]
    assert len(table) * len(weights) == 30
    for primary, *cells in table:
        for weight, cell in zip(weights, cells, strict=True):
            count = canary_replicas(int(primary), weight)
            achieved = achieved_weight(weight, int(primary), count)
            text = f"{count} → {achieved} %"
            assert cell == (f"**{text}**" if abs(achieved - weight) > MAX_MISS else text), (primary, weight)


def test_every_reason_that_needs_attention_is_explained() -> None:
    explained = {row[0].split(", ")[1] for row in rows("Condition, reason")[1:]}
    good = {"Ready", "ReplicasReady", "Complete", "AsExpected", "NodeFound", "Honoured"}
    assert explained == {one.reason for one in REASONS} - good


def test_the_table_of_gpus() -> None:
    table = {row[0]: row[1:] for row in rows("`gpuVendor`")[1:]}
    assert table.keys() == HARDWARE.keys()
    vendors: tuple[Vendor, ...] = ("nvidia", "amd", "intel")
    units = {"Mi": "MiB", "G": "text such as `64G`", "1": "bytes"}
    for vendor in vendors:
        requests, label, unit, _ = table[vendor]
        assert f"`{HARDWARE[vendor].resource}`" in requests
        assert (label, unit) == (f"`{MEMORY_LABELS[vendor].key}`", units[MEMORY_LABELS[vendor].unit])


def test_the_gateway_of_the_page_is_the_one_of_the_settings() -> None:
    gateway, policy = map(yaml.safe_load, re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL))
    (target,) = policy["spec"]["targetRefs"]
    assert (policy["metadata"]["namespace"], target["kind"], target["name"]) == (
        gateway["metadata"]["namespace"], gateway["kind"], gateway["metadata"]["name"],
    )  # fmt: skip
    (setting,) = [row[2] for row in rows("Variable") if row[0] == "`VMAFX_SERVING_GATEWAY`"]
    expected = GatewayRef(gateway["metadata"]["namespace"], gateway["metadata"]["name"])
    assert GatewayRef.parse(setting.strip("`")) == expected


async def test_the_example_of_the_library(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (printed,) = re.findall(r"It prints `(.*?)`", PAGE)
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(code, "docs/inference.md", "exec"), names)  # noqa: S102 - from docs/
    await names["main"]()
    assert capsys.readouterr().out == f"{printed}\n"


def test_every_name_of_the_library_exists() -> None:
    names = [one for row in rows("Go")[1:] for one in re.findall(r"`([\w.]+)`", row[1])]
    assert "Reconciler.reconcile" in names
    for name in names:
        found: Any = inference
        for part in name.split("."):
            found = getattr(found, part)
    assert {name.split(".")[0] for name in names} <= set(inference.__all__)
