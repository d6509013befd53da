"""Inference services on a real control plane: the reconciler in this process, and a kubelet that reports Pods ready."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.support.operator_context import context
from tests.support.serving_kubelet import ServingKubelet
from tests.support.setting_defaults import defaults
from tests.support.waiting import eventually
from vmafx.api.kinds import ZerfooInferenceService
from vmafx.kube import INFERENCE_SERVICES, Client, ObjectKey, Resource
from vmafx.kube.core import DEPLOYMENTS
from vmafx.kube.errors import NotFound
from vmafx.kube.resources import UntypedObject
from vmafx.operator.inference.kind import set_up
from vmafx.operator.inference.settings import InferenceSettings

IMAGE = "registry.example.com/serving:1"


class Serving:
    """Creates, changes and reads services and their children through the API server."""

    def __init__(self, client: Client, namespace: str, kubelet: ServingKubelet) -> None:
        self.client, self.namespace, self.kubelet = client, namespace, kubelet

    async def create(self, name: str = "m", **spec: Any) -> ZerfooInferenceService:
        return await self.client.create(INFERENCE_SERVICES, service_body(name, **spec), self.namespace)

    async def change(self, name: str = "m", **spec: Any) -> None:
        await self.client.merge_patch(INFERENCE_SERVICES, ObjectKey(self.namespace, name), {"spec": spec})

    async def service(self, name: str = "m") -> ZerfooInferenceService:
        return await self.client.get(INFERENCE_SERVICES, ObjectKey(self.namespace, name))

    async def get(self, kind: Resource[UntypedObject], name: str) -> UntypedObject | None:
        try:
            return await self.client.get(kind, ObjectKey(self.namespace, name))
        except NotFound:
            return None

    async def names(self, kind: Resource[UntypedObject]) -> list[str]:
        return [one["metadata"]["name"] for one in (await self.client.list(kind, self.namespace)).items]

    async def replicas(self, deployment: str) -> int | None:
        found = await self.get(DEPLOYMENTS, deployment)
        return found["spec"]["replicas"] if found is not None else None

    async def scale(self, deployment: str, replicas: int) -> None:
        """Change a Deployment as an autoscaler does, through its scale subresource."""
        key = ObjectKey(self.namespace, deployment)
        await self.client.merge_patch(DEPLOYMENTS, key, {"spec": {"replicas": replicas}}, "scale")

    async def until(self, condition: str, status: str = "True", name: str = "m", reason: str = "") -> None:
        """Wait for a condition that is about the latest generation."""

        async def holds() -> bool:
            service = await self.service(name)
            current = service.status.observedGeneration == service.metadata.generation
            found = next((one for one in service.status.conditions if one.type == condition), None)
            return current and found is not None and found.status == status and reason in {"", found.reason}

        try:
            await eventually(holds, f"{condition} is {status} {reason}", within=60)
        except AssertionError as error:
            raise AssertionError(f"{error}; status: {(await self.service(name)).status}") from None

    async def eventually(self, condition: Any, what: str) -> None:
        await eventually(condition, what, within=60)

    def condition(self, service: ZerfooInferenceService, kind: str) -> tuple[str, str, str] | None:
        found = next((one for one in service.status.conditions if one.type == kind), None)
        return (found.status, found.reason, found.message) if found is not None else None


def service_body(name: str = "m", **spec: Any) -> UntypedObject:
    meta = {"name": name}
    spec = {"modelRef": "model:1", "image": IMAGE, **spec}
    return {
        "apiVersion": INFERENCE_SERVICES.api_version,
        "kind": INFERENCE_SERVICES.kind,
        "metadata": meta,
        "spec": spec,
    }


@asynccontextmanager
async def serving(
    client: Client, namespace: str, *, kubelet_client: Client | None = None, **settings: Any
) -> AsyncIterator[Serving]:
    """Run the reconciler of services, and a kubelet for their Pods."""
    made, stop = context(client, namespace), asyncio.Event()
    set_up(made, defaults(InferenceSettings, **settings))
    async with ServingKubelet(kubelet_client or client, namespace) as kubelet:
        running = asyncio.create_task(made.manager.run(stop))
        try:
            await eventually(lambda: made.manager.not_ready() is None, "the caches are synced", every=0.02)
            yield Serving(client, namespace, kubelet)
        finally:
            stop.set()
            await running
