"""The Secret with a job's credentials: which of its keys reach the worker, and what they can change there."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.fleet import add_node, allow_pods, operating, phase, reaches
from tests.support.hostile_python import hostile_variables
from tests.support.kubelet import SECRETS, Kubelet
from tests.support.webserver import WebServer, says
from vmafx.api.pod import EnvFrom, EnvVar, OptionalRef, PodOverlay
from vmafx.kube import JOBS, Client, ObjectKey

DENIED = says(403)
NEAR = EnvVar("VMAFX_MEDIA_ALLOW_PRIVATE", "true")  # the stores of these tests are on this machine


async def create_secret(client: Client, namespace: str, name: str, **keys: str) -> None:
    await client.create(SECRETS, {"metadata": {"name": name}, "stringData": keys}, namespace)


async def submit(client: Client, namespace: str) -> ObjectKey:
    spec: dict[str, Any] = {
        "reference": "s3://clips/a.mp4",
        "distorted": "s3://clips/a.mp4",
        "credentialsSecretRef": {"name": "keys"},
    }
    body = {"apiVersion": "vmafx.dev/v1", "kind": "VmafxJob", "metadata": {"name": "job"}, "spec": spec}
    await client.create(JOBS.decoded_as(dict), body, namespace)
    return ObjectKey(namespace, "job")


def used_keys(server: WebServer) -> set[str]:
    """The access keys of all requests to the store."""
    headers = [value or "none" for value in server.asked("Authorization")]
    return {value.partition("Credential=")[2].partition("/")[0] for value in headers}


async def test_only_credentials_reach_the_worker(client: Client, namespace: str, tmp_path: Path) -> None:
    hostile, proof = hostile_variables(tmp_path)
    await allow_pods(client, namespace)
    await add_node(client, namespace, "pool", podTemplate=PodOverlay(env=(NEAR,)))
    async with WebServer() as store, Kubelet(client, namespace, tmp_path), operating(client, namespace):
        store.serve("/clips/a.mp4", DENIED)
        store.serve("/clips", DENIED)
        keys = {"AWS_ACCESS_KEY_ID": "mine", "AWS_SECRET_ACCESS_KEY": "s3cr3t", "AWS_DEFAULT_REGION": "us-east-1"}
        settings = {"VMAFX_MEDIA_SCHEMES": "file", "VMAFX_FFMPEG_BIN": "/bin/false", "AWS_CONFIG_FILE": "/dev/zero"}
        endpoint = f"http://127.0.0.1:{store.port}"
        await create_secret(client, namespace, "keys", AWS_ENDPOINT_URL=endpoint, **keys, **settings, **hostile)
        job = await reaches(client, await submit(client, namespace), phase("Failed"), "the store denies access")
        assert "permission denied" in (job.status.message or "")
        assert used_keys(store) == {"mine"}
    assert not proof.exists()


@pytest.mark.parametrize("given_as", ["env", "envFrom"])
async def test_the_credentials_of_the_node_win_and_go_to_its_own_store(
    client: Client, namespace: str, tmp_path: Path, given_as: str
) -> None:
    await allow_pods(client, namespace)
    async with WebServer() as store, WebServer() as other, Kubelet(client, namespace, tmp_path):
        for server in (store, other):
            server.serve("/clips/a.mp4", DENIED)
            server.serve("/clips", DENIED)
        own = {"AWS_ACCESS_KEY_ID": "node", "AWS_SECRET_ACCESS_KEY": "s3cr3t", "AWS_DEFAULT_REGION": "us-east-1"}
        own["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{store.port}"
        if given_as == "env":
            overlay = PodOverlay(env=tuple(EnvVar(name, value) for name, value in own.items()))
        else:
            await create_secret(client, namespace, "node", **own)
            overlay = PodOverlay(envFrom=(EnvFrom(secretRef=OptionalRef("node")),))
        await add_node(client, namespace, "pool", podTemplate=overlay)
        elsewhere = f"http://127.0.0.1:{other.port}"
        keys = {"AWS_ENDPOINT_URL": elsewhere, "AWS_ENDPOINT_URL_S3": elsewhere}
        await create_secret(client, namespace, "keys", AWS_ACCESS_KEY_ID="mine", AWS_SECRET_ACCESS_KEY="x", **keys)
        async with operating(client, namespace):
            await reaches(client, await submit(client, namespace), phase("Failed"), "the store denies access")
        assert used_keys(store) == {"node"}
        assert other.requests == []
