"""The trainer's Pod as a process: this machine has no kubelet."""

import asyncio
import base64
import sys
from pathlib import Path
from typing import Any

from vmafx.demo.cluster import NAMESPACE
from vmafx.devcluster.cluster import free_port
from vmafx.devcluster.process import ComponentProcess, start_component
from vmafx.kube import Client, ObjectKey, load_config
from vmafx.kube.core import DEPLOYMENTS, SECRETS
from vmafx.kube.errors import NotFound

DATA_VARIABLE, LISTEN_VARIABLE = "VMAFX_TRAINER_DIR", "VMAFX_TRAINER_LISTEN"
POLL_INTERVAL = 0.1  # seconds


class TrainerPod:
    """Runs the container of a trainer's Deployment as its Pod template says, on a port of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self._process: ComponentProcess | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self, kubeconfig: Path, deployment: str) -> None:
        """Wait for the Deployment, start its container, and report that it is ready."""
        asyncio.run(self._start(kubeconfig, ObjectKey(NAMESPACE, deployment)))

    async def _start(self, kubeconfig: Path, key: ObjectKey) -> None:
        async with Client(load_config(kubeconfig)) as client:
            deployment = await _wait_for(client, key)
            (container,) = deployment["spec"]["template"]["spec"]["containers"]
            variables = {entry["name"]: await _value(client, entry) for entry in container["env"]}
            data = self._folder / "trainer"
            data.mkdir()
            variables |= {DATA_VARIABLE: str(data), LISTEN_VARIABLE: f"127.0.0.1:{self._port}"}
            command = [sys.executable, "-c", "from vmafx.cli.main import main; main()", *container["command"][1:]]
            self._process = start_component("trainer", command, self._folder, tethered=True, variables=variables)
            counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), 1)
            reasons = {"Available": "MinimumReplicasAvailable", "Progressing": "NewReplicaSetAvailable"}
            conditions = [{"type": name, "status": "True", "reason": reason} for name, reason in reasons.items()]
            status = {"observedGeneration": deployment["metadata"]["generation"], "conditions": conditions, **counts}
            await client.patch_status(DEPLOYMENTS, key, status)

    def alive(self) -> bool:
        return self._process is None or self._process.alive()

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()


async def _wait_for(client: Client, key: ObjectKey) -> dict[str, Any]:
    while True:
        try:
            return await client.get(DEPLOYMENTS, key)
        except NotFound:
            await asyncio.sleep(POLL_INTERVAL)


async def _value(client: Client, entry: dict[str, Any]) -> str:
    """The value of an environment variable, which may be in a Secret."""
    reference = entry.get("valueFrom", {}).get("secretKeyRef")
    if reference is None:
        return str(entry.get("value", "")).replace("$$", "$")
    secret = await client.get(SECRETS, ObjectKey(NAMESPACE, reference["name"]))
    return base64.b64decode(secret["data"][reference["key"]]).decode()
