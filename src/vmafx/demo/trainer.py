"""The trainer's Pod as a process: this machine has no kubelet."""

import asyncio
import base64
from typing import Any

from vmafx.demo.cluster import NAMESPACE, DemoCluster
from vmafx.demo.progress import DemoError
from vmafx.kube import Client, ObjectKey, load_config
from vmafx.kube.core import DEPLOYMENTS, SECRETS
from vmafx.kube.errors import NotFound
from vmafx.training.config import FOLDER_VARIABLE, LISTEN_VARIABLE

TIMEOUT, POLL_INTERVAL = 60.0, 0.1  # seconds


async def start_trainer(cluster: DemoCluster, deployment: str) -> None:
    """Wait for the Deployment, start its container as the Pod template says, and report that it is ready."""
    key = ObjectKey(NAMESPACE, deployment)
    async with Client(load_config(cluster.kubeconfig)) as client:
        found = await _wait_for(client, key)
        (container,) = found["spec"]["template"]["spec"]["containers"]
        variables = {entry["name"]: await _value(client, entry) for entry in container["env"]}
        variables |= {FOLDER_VARIABLE: str(cluster.folder / "trainer"), LISTEN_VARIABLE: cluster.trainer}
        cluster.roles.start(*container["command"][1:], **variables)
        counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), 1)
        reasons = {"Available": "MinimumReplicasAvailable", "Progressing": "NewReplicaSetAvailable"}
        conditions = [{"type": name, "status": "True", "reason": reason} for name, reason in reasons.items()]
        status = {"observedGeneration": found["metadata"]["generation"], "conditions": conditions, **counts}
        await client.patch_status(DEPLOYMENTS, key, status)


async def _wait_for(client: Client, key: ObjectKey) -> dict[str, Any]:
    try:
        async with asyncio.timeout(TIMEOUT):
            while True:
                try:
                    return await client.get(DEPLOYMENTS, key)
                except NotFound:
                    await asyncio.sleep(POLL_INTERVAL)
    except TimeoutError:
        raise DemoError(f"the operator did not create the Deployment {key.name} within {TIMEOUT:.0f} s") from None


async def _value(client: Client, entry: dict[str, Any]) -> str:
    """The value of an environment variable, which may be in a Secret."""
    reference = entry.get("valueFrom", {}).get("secretKeyRef")
    if reference is None:
        return str(entry.get("value", "")).replace("$$", "$")
    secret = await client.get(SECRETS, ObjectKey(NAMESPACE, reference["name"]))
    return base64.b64decode(secret["data"][reference["key"]]).decode()
