"""The library's Reconciler with a real API server and a real kube-controller-manager: the life of a service."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from tests.support.serving_kubelet import ServingKubelet
from tests.support.waiting import eventually
from vmafx.inference import (
    AlreadyExists,
    CanarySpec,
    ClusterKubeClient,
    DeletingKubeClient,
    Deployment,
    HealthCheckSpec,
    InvalidSpec,
    NotFound,
    ObjectMeta,
    Reconciler,
    ResourceSpec,
    Service,
    ServingOptions,
    ZerfooInferenceService,
    ZerfooInferenceServiceSpec,
    ZerfooInferenceServiceStatus,
)
from vmafx.inference.gpu import PREFERRED, REQUIRED
from vmafx.kube import Client, ObjectKey
from vmafx.kube.core import DEPLOYMENTS, HPAS, PODS, SERVICES
from vmafx.kube.resources import UntypedObject

OLD, NEW = "model:1", "model:2"
IMAGE = "registry.example.com/serving:1"
KINDS = (DEPLOYMENTS, SERVICES, HPAS)
CPU = ResourceSpec(cpu="100m")


class Embedding:
    """A program that embeds the library, and reads what `kubectl get` shows."""

    def __init__(self, client: Client, namespace: str, kubelet: ServingKubelet) -> None:
        self.client, self.namespace, self.kubelet = client, namespace, kubelet
        self.adapter = ClusterKubeClient(client, ServingOptions(IMAGE))

    def service(self, **spec: Any) -> ZerfooInferenceService:
        wanted = ZerfooInferenceServiceSpec(**{"modelRef": OLD, "replicas": 2, **spec})
        return ZerfooInferenceService(metadata=ObjectMeta(name="m", namespace=self.namespace), spec=wanted)

    async def reconcile(self, **spec: Any) -> ZerfooInferenceServiceStatus:
        return await Reconciler(self.adapter).reconcile(self.service(**spec))

    async def settle(self, **spec: Any) -> ZerfooInferenceServiceStatus:
        """Reconcile until the service is ready."""
        status = ZerfooInferenceServiceStatus()

        async def ready() -> bool:
            nonlocal status
            status = await self.reconcile(**spec)
            return status.ready

        await eventually(ready, "the service is ready", within=60)
        return status

    async def get(self, name: str) -> UntypedObject:
        return await self.client.get(DEPLOYMENTS, ObjectKey(self.namespace, name))

    async def replicas(self) -> dict[str, int]:
        found = (await self.client.list(DEPLOYMENTS, self.namespace)).items
        return {one["metadata"]["name"]: one["spec"]["replicas"] for one in found}

    async def names(self) -> list[str]:
        """The names of all children, with their kinds."""
        lists = [(kind, (await self.client.list(kind, self.namespace)).items) for kind in KINDS]
        return sorted(f"{kind.kind} {one['metadata']['name']}" for kind, found in lists for one in found)

    async def versions(self) -> dict[str, str]:
        """The generation of each child, which changes if somebody writes its spec, and its annotations."""
        lists = [(kind, (await self.client.list(kind, self.namespace)).items) for kind in KINDS]
        return {
            f"{kind.kind} {one['metadata']['name']}": f"{one['metadata'].get('generation')} {one['spec']} "
            f"{one['metadata'].get('annotations', {}).get('vmafx.dev/weights')}"
            for kind, found in lists
            for one in found
        }

    async def called(self) -> Service:
        return await self.adapter.get_service(self.namespace, "m-svc")


@pytest.fixture
async def library(client: Client, namespace: str) -> AsyncIterator[Embedding]:
    async with ServingKubelet(client, namespace) as kubelet:
        yield Embedding(client, namespace, kubelet)


async def test_the_life_of_a_service(library: Embedding) -> None:
    assert isinstance(library.adapter, DeletingKubeClient)
    first = await library.reconcile()
    assert (first.ready, first.replicas) == (False, 0)
    status = await library.settle()
    assert (status.replicas, status.url) == (2, f"http://m-svc.{library.namespace}.svc")
    assert await library.names() == ["Deployment m-primary", "Service m-primary", "Service m-svc"]

    await library.settle(replicas=3)
    assert await library.replicas() == {"m-primary": 3}

    canary = CanarySpec(NEW, 25)
    status = await library.settle(replicas=3, canary=canary)
    assert (status.replicas, status.canaryReplicas, status.canaryWeight) == (4, 1, 25)
    called = await library.called()
    assert [target.weight for target in called.weights] == [75, 25]
    assert called.selector == {"vmafx.dev/service": "m"}

    status = await library.settle(replicas=3, canary=CanarySpec(NEW, 100))
    assert status.canaryWeight == 100
    assert (await library.called()).selector == {"vmafx.dev/service": "m", "vmafx.dev/track": "canary"}

    status = await library.reconcile(replicas=3, modelRef=NEW)
    assert not status.ready
    assert (await library.called()).selector["vmafx.dev/track"] == "canary"  # until the primary is rolled out
    status = await library.settle(replicas=3, modelRef=NEW)
    assert (status.replicas, status.canaryReplicas, status.canaryWeight) == (3, 0, None)
    called = await library.called()
    assert (called.selector["vmafx.dev/track"], called.weights) == ("primary", ())

    await library.settle(replicas=3, modelRef=NEW, canary=CanarySpec("model:3", 25))
    await library.settle(replicas=3, modelRef=NEW)
    assert await library.replicas() == {"m-primary": 3}

    assert await Reconciler(library.adapter).delete(library.service()) == []
    assert await library.names() == []


async def test_a_service_that_is_ready_is_not_written_again(library: Embedding) -> None:
    spec: dict[str, Any] = {
        "canary": CanarySpec(NEW, 50),
        "resources": ResourceSpec("0.5", 1 << 20, "24Gi"),
        "gpuVendor": "nvidia",
        "healthCheck": HealthCheckSpec("/ready", "1500ms", 1_000_000_000),
        "image": "registry.example.com/mine:2",
        "port": 9000,
    }
    status = await library.settle(**spec)
    before = await library.versions()
    assert await library.reconcile(**spec) == status
    assert await library.versions() == before


async def test_an_autoscaler_keeps_its_decision(library: Embedding) -> None:
    scaled: dict[str, Any] = {"minReplicas": 2, "maxReplicas": 5, "resources": CPU}
    await library.settle(**scaled)
    assert "HorizontalPodAutoscaler m-primary-hpa" in await library.names()

    key = ObjectKey(library.namespace, "m-primary")
    await library.client.merge_patch(DEPLOYMENTS, key, {"spec": {"replicas": 4}}, "scale")
    status = await library.settle(**scaled, port=9000)  # also writes the Deployment
    assert (status.replicas, await library.replicas()) == (4, {"m-primary": 4})

    await library.settle(minReplicas=3, maxReplicas=6, resources=CPU)
    hpa = await library.adapter.get_hpa(library.namespace, "m-primary-hpa")
    assert (hpa.targetRef, hpa.minReplicas, hpa.maxReplicas) == ("m-primary", 3, 6)

    await library.settle(resources=CPU)
    assert await library.names() == ["Deployment m-primary", "Service m-primary", "Service m-svc"]
    assert await library.replicas() == {"m-primary": 2}


async def test_a_rollout_does_not_take_requests_away_from_the_canary(library: Embedding) -> None:
    await library.settle(canary=CanarySpec(NEW, 50))
    old = {pod for pod in await pods(library) if "canary" in pod}
    library.kubelet.ready = lambda pod: pod in old or "primary" in pod
    changed: dict[str, Any] = {"canary": CanarySpec(NEW, 50), "port": 9000}
    for _ in range(3):
        status = await library.reconcile(**changed)
        assert [target.weight for target in (await library.called()).weights] == [50, 50]
        assert not status.ready
    library.kubelet.ready = lambda _: True
    await library.kubelet.reevaluate()
    await library.settle(**changed)


async def pods(library: Embedding) -> list[str]:
    return [pod["metadata"]["name"] for pod in (await library.client.list(PODS, library.namespace)).items]


async def test_a_deployment_is_read_as_written(library: Embedding) -> None:
    wanted = Deployment(
        "m-primary",
        library.namespace,
        2,
        "registry.example.com/$(model):1",
        ResourceSpec("500m", "1Gi", "24Gi"),
        HealthCheckSpec("/ready", "5s", 1),
        "registry.example.com/mine:2",
        9000,
        "nvidia",
    )
    await library.adapter.create_deployment(wanted)
    read = await library.adapter.get_deployment(library.namespace, "m-primary")
    assert read.wanted == wanted
    assert read.readyReplicas is not None
    with pytest.raises(AlreadyExists):
        await library.adapter.create_deployment(wanted)

    changed = msgspec.structs.replace(wanted, image=None, gpuVendor=None, resources=ResourceSpec(), port=8080)
    await library.adapter.update_deployment(changed)
    assert (await library.adapter.get_deployment(library.namespace, "m-primary")).wanted == changed
    pod = (await library.get("m-primary"))["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == IMAGE
    assert pod["containers"][0]["resources"] == {}
    assert "affinity" not in pod


async def test_gpu_memory_that_is_no_longer_asked_for_is_no_longer_required(library: Embedding) -> None:
    async def affinity() -> set[str]:
        return set((await library.get("m-primary"))["spec"]["template"]["spec"]["affinity"]["nodeAffinity"])

    await library.reconcile(gpuVendor="nvidia", resources=ResourceSpec(gpuMemory="24Gi"))
    assert await affinity() == {REQUIRED}
    await library.reconcile(gpuVendor="nvidia")
    assert await affinity() == {PREFERRED}


@pytest.mark.parametrize("vendor", [None, "nvidia", "amd", "intel"])
async def test_the_server_accepts_any_amount_of_gpu_memory(library: Embedding, vendor: Any) -> None:
    for memory in ("1", "24Gi", "2Ti", "100Pi"):
        await library.reconcile(gpuVendor=vendor, resources=ResourceSpec(gpuMemory=memory))


async def test_a_deployment_that_was_changed_by_hand_is_restored(library: Embedding) -> None:
    await library.settle()
    key = ObjectKey(library.namespace, "m-primary")
    container = (await library.get("m-primary"))["spec"]["template"]["spec"]["containers"][0]
    other = {**container, "image": "registry.example.com/other:1", "env": [{"name": "MODEL_REF", "value": "model:9"}]}
    change = {"spec": {"replicas": 5, "template": {"spec": {"containers": [other]}}}}
    await library.client.merge_patch(DEPLOYMENTS, key, change)
    await library.settle()
    restored = (await library.get("m-primary"))["spec"]
    assert (restored["replicas"], restored["template"]["spec"]["containers"][0]) == (2, container)


async def test_a_deployment_without_the_annotation_is_taken_over(library: Embedding) -> None:
    await library.settle(resources=CPU)
    key = ObjectKey(library.namespace, "m-primary")
    await library.client.merge_patch(DEPLOYMENTS, key, {"metadata": {"annotations": {"vmafx.dev/deployment": None}}})
    read = await library.adapter.get_deployment(library.namespace, "m-primary")
    assert read.wanted == Deployment("m-primary", library.namespace, 2, OLD)  # what a manifest tells
    await library.settle(resources=CPU)
    assert (await library.adapter.get_deployment(library.namespace, "m-primary")).resources == CPU


async def test_an_image_is_required(library: Embedding) -> None:
    adapter = ClusterKubeClient(library.client)
    with pytest.raises(InvalidSpec, match=r"spec\.image: must be set, because no default image is configured"):
        await adapter.create_deployment(Deployment("m-primary", library.namespace, 1, OLD))


async def test_the_scoring_server_serves_services_without_an_image(library: Embedding) -> None:
    library.adapter = ClusterKubeClient(library.client, ServingOptions(vmafx_image=IMAGE))
    await library.settle()
    container = (await library.get("m-primary"))["spec"]["template"]["spec"]["containers"][0]
    assert (container["image"], container["command"]) == (IMAGE, ["vmafx", "serve"])
    before = await library.versions()
    await library.reconcile()
    assert await library.versions() == before

    library.adapter = ClusterKubeClient(library.client, ServingOptions(IMAGE))  # the same, with its own entrypoint
    await library.settle()
    container = (await library.get("m-primary"))["spec"]["template"]["spec"]["containers"][0]
    assert (container["image"], "command" in container) == (IMAGE, False)
    added = {"spec": {"template": {"spec": {"containers": [{**container, "command": ["serve-mine"]}]}}}}
    await library.client.merge_patch(DEPLOYMENTS, ObjectKey(library.namespace, "m-primary"), added)
    before = await library.versions()
    await library.reconcile()
    assert await library.versions() == before  # what somebody adds to an image of their own stays


async def test_what_does_not_exist_is_not_found(library: Embedding) -> None:
    adapter, namespace = library.adapter, library.namespace
    for call in (
        adapter.get_deployment, adapter.get_service, adapter.get_hpa,
        adapter.delete_deployment, adapter.delete_service, adapter.delete_hpa,
    ):  # fmt: skip
        with pytest.raises(NotFound):
            await call(namespace, "m-primary")
    with pytest.raises(NotFound):
        await adapter.update_deployment(Deployment("m-primary", namespace, 1, OLD))


async def test_an_object_of_somebody_else_is_neither_changed_nor_deleted(library: Embedding) -> None:
    body = {"metadata": {"name": "m-svc"}, "spec": {"selector": {"app": "billing"}, "ports": [{"port": 443}]}}
    theirs = await library.client.create(SERVICES, body, library.namespace)
    with pytest.raises(AlreadyExists, match="Service m-svc already exists and does not belong to an inference service"):
        await library.reconcile()
    with pytest.raises(AlreadyExists):
        await Reconciler(library.adapter).delete(library.service())
    assert await library.client.get(SERVICES, ObjectKey(library.namespace, "m-svc")) == theirs
