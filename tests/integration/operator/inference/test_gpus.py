"""Services on GPUs: what their Pods request, and whether a node has it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.conftest import Kubectl
from tests.support.serving import Serving, service_body, serving
from tests.support.tokens import bearing, service_account_token
from tests.support.waiting import eventually
from vmafx.kube import INFERENCE_SERVICES, Client, ObjectKey
from vmafx.kube.core import DEPLOYMENTS, KUBERNETES_NODES
from vmafx.kube.errors import Forbidden


@pytest.fixture
async def add_node(client: Client, namespace: str) -> AsyncIterator[Any]:
    """Add Kubernetes nodes with these labels and resources; they are removed after the test."""
    added: list[ObjectKey] = []

    async def add(labels: dict[str, str], resources: dict[str, str]) -> None:
        key = ObjectKey("", f"gpu-{namespace}-{len(added)}")
        added.append(key)
        await client.create(KUBERNETES_NODES, {"metadata": {"name": key.name, "labels": labels}})
        await client.patch_status(KUBERNETES_NODES, key, {"capacity": resources, "allocatable": resources})

    yield add
    for key in added:
        await client.delete(KUBERNETES_NODES, key)


async def pod_spec(services: Serving) -> dict[str, Any]:
    found = await services.get(DEPLOYMENTS, "m-primary")
    assert found is not None
    spec: dict[str, Any] = found["spec"]["template"]["spec"]
    return spec


async def test_a_vendor_is_a_resource_and_a_preference(services: Serving) -> None:
    await services.create(gpuVendor="nvidia")
    await services.until("Ready")
    spec = await pod_spec(services)
    (container,) = spec["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert {"name": "VMAFX_BACKEND", "value": "cuda"} in container["env"]
    assert [one["key"] for one in spec["tolerations"]] == ["nvidia.com/gpu"]
    assert list(spec["affinity"]["nodeAffinity"]) == ["preferredDuringSchedulingIgnoredDuringExecution"]


async def test_no_node_has_the_gpu_until_one_does(services: Serving, add_node: Any) -> None:
    await add_node({"nvidia.com/gpu.memory": "23034"}, {"nvidia.com/gpu": "1"})
    await services.create(gpuVendor="nvidia", resources={"gpuMemory": "24Gi"})
    await services.until("Schedulable", "False", reason="NoMatchingNode")
    await services.until("Degraded", reason="NoMatchingNode")
    assert "an NVIDIA GPU with 24Gi of memory" in ((await services.service()).status.message or "")
    await add_node({"nvidia.com/gpu.memory": "81559"}, {"nvidia.com/gpu": "8"})
    await services.until("Schedulable")
    await services.until("Degraded", "False")


async def test_memory_without_a_vendor_fits_any_vendor(services: Serving, add_node: Any) -> None:
    await add_node({"amd.com/gpu.vram": "64G"}, {})
    await services.create(resources={"gpuMemory": "48Gi"})
    await services.until("Schedulable")
    spec = await pod_spec(services)
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert [term["matchExpressions"][0]["key"] for term in terms] == [
        "nvidia.com/gpu.memory", "amd.com/gpu.vram", "gpu.intel.com/memory.max",
    ]  # fmt: skip
    assert spec["containers"][0]["resources"] == {}


async def test_a_service_without_a_gpu_has_no_such_condition(services: Serving) -> None:
    await services.create(gpuVendor="cpu")
    await services.until("Ready")
    assert services.condition(await services.service(), "Schedulable") is None


async def test_an_operator_that_may_not_list_nodes_says_so(client: Client, namespace: str, kubectl: Kubectl) -> None:
    """In one namespace only: a Role has no power over nodes."""
    kubectl("create", "serviceaccount", "operator")
    kubectl("create", "rolebinding", "operator", "--clusterrole=admin", f"--serviceaccount={namespace}:operator")
    rules = ["--verb=*", "--resource=zerfooinferenceservices.vmafx.dev", "--resource=*.vmafx.dev"]
    kubectl("create", "role", "kinds", *rules)
    kubectl("create", "rolebinding", "kinds", "--role=kinds", f"--serviceaccount={namespace}:operator")
    token = await service_account_token(client, ObjectKey(namespace, "operator"))
    async with Client(bearing(token, client.config)) as operator:

        async def may() -> bool:
            try:
                await operator.list(INFERENCE_SERVICES, namespace)
            except Forbidden:
                return False
            return True

        await eventually(may, "the server has read the roles")
        await client.create(INFERENCE_SERVICES, service_body(gpuVendor="nvidia"), namespace)
        async with serving(operator, namespace, kubelet_client=client) as services:
            await services.until("Schedulable", "Unknown", reason="NodesForbidden")
