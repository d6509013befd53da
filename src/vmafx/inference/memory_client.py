"""A cluster in memory, for tests and for trying out the library: replicas are ready at once, unless told otherwise."""

from typing import Generic, TypeVar

import msgspec

from vmafx.inference.children import HPA, Deployment, Service
from vmafx.kube.errors import AlreadyExists, NotFound

T = TypeVar("T", Deployment, Service, HPA)


class MemoryKubeClient:
    """Implements KubeClient and DeletingKubeClient."""

    def __init__(self) -> None:
        self.deployments, self.services, self.hpas = _Objects[Deployment](), _Objects[Service](), _Objects[HPA]()
        self.ready: dict[str, int] = {}  # by the name of a Deployment: its ready replicas, if not all are

    async def get_deployment(self, namespace: str, name: str) -> Deployment:
        found = self.deployments.get(namespace, name)
        ready = min(self.ready.get(name, found.replicas), found.replicas)
        return msgspec.structs.replace(found, readyReplicas=ready)

    async def create_deployment(self, deployment: Deployment) -> None:
        self.deployments.create(deployment)

    async def update_deployment(self, deployment: Deployment) -> None:
        self.deployments.update(deployment)

    async def delete_deployment(self, namespace: str, name: str) -> None:
        self.deployments.delete(namespace, name)

    async def get_service(self, namespace: str, name: str) -> Service:
        return self.services.get(namespace, name)

    async def create_service(self, service: Service) -> None:
        self.services.create(service)

    async def update_service(self, service: Service) -> None:
        self.services.update(service)

    async def delete_service(self, namespace: str, name: str) -> None:
        self.services.delete(namespace, name)

    async def get_hpa(self, namespace: str, name: str) -> HPA:
        return self.hpas.get(namespace, name)

    async def create_hpa(self, hpa: HPA) -> None:
        self.hpas.create(hpa)

    async def update_hpa(self, hpa: HPA) -> None:
        self.hpas.update(hpa)

    async def delete_hpa(self, namespace: str, name: str) -> None:
        self.hpas.delete(namespace, name)


class _Objects(Generic[T]):
    """Objects of one kind, by namespace and name."""

    def __init__(self) -> None:
        self._objects: dict[tuple[str, str], T] = {}

    def names(self) -> list[str]:
        return sorted(name for _, name in self._objects)

    def get(self, namespace: str, name: str) -> T:
        if (namespace, name) not in self._objects:
            raise NotFound(f"{namespace}/{name} not found")
        return self._objects[namespace, name]

    def create(self, item: T) -> None:
        if (item.namespace, item.name) in self._objects:
            raise AlreadyExists(f"{item.namespace}/{item.name} already exists")
        self._objects[item.namespace, item.name] = item

    def update(self, item: T) -> None:
        self.get(item.namespace, item.name)
        self._objects[item.namespace, item.name] = item

    def delete(self, namespace: str, name: str) -> None:
        self.get(namespace, name)
        del self._objects[namespace, name]
