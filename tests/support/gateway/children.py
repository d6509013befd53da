"""The Deployments, Services and HTTPRoute of an inference service, created by hand."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from tests.support.gateway.backends import TRACK_LABEL
from tests.support.waiting import eventually
from vmafx.kube import Client, ObjectKey, Resource
from vmafx.kube.resources import UntypedObject

DEPLOYMENTS: Resource[UntypedObject] = Resource("apps", "v1", "deployments", "Deployment", dict)
SERVICES: Resource[UntypedObject] = Resource("", "v1", "services", "Service", dict)
HTTP_ROUTES: Resource[UntypedObject] = Resource("gateway.networking.k8s.io", "v1", "httproutes", "HTTPRoute", dict)
ENDPOINT_SLICES: Resource[UntypedObject] = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", dict)
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

    async def apply(self, client: Client, replicas: Mapping[Track, int]) -> None:
        """Apply all but the HTTPRoute, and wait until both tracks have endpoints.

        A route must not name a Service without endpoints: when they come, Envoy Gateway replaces the clusters of the
        whole route, and Envoy may respond 503 to all requests for 15 seconds.
        """
        for track in TRACKS:
            await self._apply(client, DEPLOYMENTS, deployment(self.name, track, replicas[track]))
            await self._apply(client, SERVICES, service(self.name, track))
        for track in TRACKS:
            key = ObjectKey(self.namespace, f"{self.name}-{track}")
            await eventually(lambda: ready_endpoints(client, key), f"{key} has endpoints")  # noqa: B023

    async def set_weight(self, client: Client, weight: int) -> None:
        """Apply the HTTPRoute; the canary receives `weight` percent of the requests."""
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


async def ready_endpoints(client: Client, service: ObjectKey) -> set[str]:
    """The addresses of the Pods to which a Service sends requests."""
    labels = f"kubernetes.io/service-name={service.name}"
    slices = (await client.list(ENDPOINT_SLICES, service.namespace, labels=labels)).items
    endpoints = [one for found in slices for one in found.get("endpoints") or ()]
    return {one["addresses"][0] for one in endpoints if one["conditions"]["ready"]}


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
