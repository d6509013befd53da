"""The kubelet for serving Pods: Deployments of a real controller manager become available, scale and roll."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.serving_kubelet import ServingKubelet
from tests.support.serving_manifests import deployment, ready_endpoints, service
from tests.support.waiting import eventually
from vmafx.kube import Client, ObjectKey
from vmafx.kube.core import DEPLOYMENTS, PODS, SERVICES
from vmafx.kube.resources import UntypedObject


@pytest.fixture
async def kubelet(client: Client, namespace: str) -> AsyncIterator[ServingKubelet]:
    async with ServingKubelet(client, namespace) as kubelet:
        yield kubelet


class Model:
    """The Deployment m-primary and its Service."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client, self.key = client, ObjectKey(namespace, "m-primary")

    async def create(self, replicas: int) -> None:
        await self.client.create(SERVICES, service("m", "primary"), self.key.namespace)
        await self.client.create(DEPLOYMENTS, deployment("m", "primary", replicas), self.key.namespace)

    async def patch(self, spec: dict[str, Any]) -> None:
        await self.client.merge_patch(DEPLOYMENTS, self.key, {"spec": spec})

    async def settled(self) -> tuple[int, int, int]:
        """The numbers of Pods, ready ones, and ones with the newest template; once the controller has seen the spec."""
        found = await self.client.get(DEPLOYMENTS, self.key)
        status = found.get("status", {})
        if status.get("observedGeneration") != found["metadata"]["generation"]:
            return -1, -1, -1
        return status.get("replicas", 0), status.get("readyReplicas", 0), status.get("updatedReplicas", 0)

    async def pods(self) -> list[UntypedObject]:
        return (await self.client.list(PODS, self.key.namespace)).items

    async def has_endpoints(self, addresses: set[str]) -> bool:
        return await ready_endpoints(self.client, self.key) == addresses


async def expect(model: Model, *counts: int) -> None:
    async def holds() -> bool:
        return await model.settled() == counts and len(await model.pods()) == counts[0]

    await eventually(holds, f"Pods, ready, updated: {counts}")


@pytest.mark.usefixtures("kubelet")
async def test_a_deployment_becomes_available_scales_and_rolls(client: Client, namespace: str) -> None:
    model = Model(client, namespace)
    await model.create(2)
    await expect(model, 2, 2, 2)
    first = {pod["status"]["podIP"] for pod in await model.pods()}
    await eventually(lambda: model.has_endpoints(first), "the Pods are endpoints of the Service")

    await model.patch({"replicas": 3})
    await expect(model, 3, 3, 3)
    await model.patch({"replicas": 1})
    await expect(model, 1, 1, 1)

    await model.patch({"template": {"metadata": {"annotations": {"model": "v2"}}}})
    await expect(model, 1, 1, 1)
    (pod,) = await model.pods()
    assert pod["metadata"]["annotations"] == {"model": "v2"}
    assert pod["status"]["podIP"] not in first
    await eventually(lambda: model.has_endpoints({pod["status"]["podIP"]}), "the new Pod is the only endpoint")


async def test_a_pod_is_ready_when_the_test_says_so(client: Client, namespace: str, kubelet: ServingKubelet) -> None:
    model = Model(client, namespace)
    await model.create(1)
    await expect(model, 1, 1, 1)
    (old,) = [pod["metadata"]["name"] for pod in await model.pods()]

    kubelet.ready = lambda name: name == old
    await model.patch({"template": {"metadata": {"annotations": {"model": "v2"}}}})
    await expect(model, 2, 1, 1)

    kubelet.ready = lambda _: True
    await kubelet.reevaluate()
    await expect(model, 1, 1, 1)
    assert old not in {pod["metadata"]["name"] for pod in await model.pods()}

    kubelet.ready = lambda _: False
    await kubelet.reevaluate()
    await expect(model, 1, 0, 1)
    await eventually(lambda: model.has_endpoints(set()), "an unready Pod is no ready endpoint")
