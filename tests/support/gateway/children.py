"""The Deployments, Services and HTTPRoute of an inference service, created by hand."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from tests.support.gateway.backends import TRACK_LABEL
from vmafx.kube import Client, ObjectKey, Resource
from vmafx.kube.resources import UntypedObject

DEPLOYMENTS: Resource[UntypedObject] = Resource("apps", "v1", "deployments", "Deployment", dict)
SERVICES: Resource[UntypedObject] = Resource("", "v1", "services", "Service", dict)
HTTP_ROUTES: Resource[UntypedObject] = Resource("gateway.networking.k8s.io", "v1", "httproutes", "HTTPRoute", dict)
SERVICE_LABEL = "vmafx.dev/service"
MANAGER = "gateway-trial"
PORT = 9000  # not 8080, on which Envoy Gateway serves metrics on all addresses
PRE_STOP_SECONDS = 5

Track = Literal["primary", "canary"]
TRACKS: tuple[Track, Track] = ("primary", "canary")


class ServiceChildren(NamedTuple):
    """The children of the inference service `name`; `gateway` is the Gateway of its HTTPRoute."""

    name: str
    namespace: str
    gateway: ObjectKey
    domain: str

    @property
    def host(self) -> str:
        return f"{self.name}.{self.namespace}.{self.domain}"

    async def apply(self, client: Client, replicas: Mapping[Track, int], weight: int) -> None:
        """Apply all children; the canary receives `weight` percent of the requests."""
        for track in TRACKS:
            await self._apply(client, DEPLOYMENTS, deployment(self.name, track, replicas[track]))
            await self._apply(client, SERVICES, service(self.name, track))
        await self.set_weight(client, weight)

    async def set_weight(self, client: Client, weight: int) -> None:
        weights = {"primary": 100 - weight, "canary": weight}
        backends = [{"name": f"{self.name}-{track}", "port": 80, "weight": weights[track]} for track in TRACKS]
        spec = {
            "parentRefs": [{"namespace": self.gateway.namespace, "name": self.gateway.name}],
            "hostnames": [self.host],
            "rules": [{"backendRefs": backends}],
        }
        await self._apply(client, HTTP_ROUTES, {"metadata": {"name": self.name}, "spec": spec})

    async def _apply(self, client: Client, resource: Resource[UntypedObject], body: dict[str, Any]) -> None:
        typed = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        await client.apply(resource, ObjectKey(self.namespace, body["metadata"]["name"]), typed, manager=MANAGER)


def deployment(name: str, track: Track, replicas: int) -> dict[str, Any]:
    labels = {SERVICE_LABEL: name, TRACK_LABEL: track}
    container = {
        "name": "server",
        "image": "model-server",
        "ports": [{"name": "http", "containerPort": PORT}],
        "lifecycle": {"preStop": {"sleep": {"seconds": PRE_STOP_SECONDS}}},
    }
    return {
        "metadata": {"name": f"{name}-{track}", "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def service(name: str, track: Track) -> dict[str, Any]:
    labels = {SERVICE_LABEL: name, TRACK_LABEL: track}
    ports = [{"name": "http", "port": 80, "targetPort": "http"}]
    return {"metadata": {"name": f"{name}-{track}", "labels": labels}, "spec": {"selector": labels, "ports": ports}}
