"""The Gateway that splits the requests of services, and the HTTPRoute of each service.

A Gateway is used only if the operator is told its name: routes make services reachable from wherever it listens.
"""

import re
from typing import Any

import msgspec

from vmafx.api.meta import ApiModel, MetaView
from vmafx.inference.children import DesiredChildren, ServiceRef
from vmafx.inference.manifests import SERVICE_PORT, labels
from vmafx.inference.status import Route
from vmafx.kube import Client, ObjectKey
from vmafx.kube.core import GATEWAYS, HTTP_ROUTES
from vmafx.runtime.child import Child
from vmafx.runtime.informer import OptionalInformer
from vmafx.runtime.store import ObjectChange

MAX_DOMAIN = 253 - 105  # characters; names of services have 40 at most, names of namespaces 63
DEFAULT_PORTS = {"http": 80, "https": 443}


class GatewayRef(msgspec.Struct, frozen=True):
    """The name of a Gateway, and of one of its listeners or an empty string for all."""

    namespace: str
    name: str
    listener: str = ""

    @classmethod
    def parse(cls, text: str) -> "GatewayRef | None":
        if not text:
            return None
        parts = text.split("/")
        if len(parts) not in {2, 3} or not all(parts):
            raise ValueError(f"{text!r} is not NAMESPACE/NAME or NAMESPACE/NAME/LISTENER")
        return cls(*parts)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def parse_domain(text: str) -> str:
    """A domain for host names of services, which have up to 105 characters before it."""
    if len(text) > MAX_DOMAIN or not re.fullmatch(
        r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", text
    ):
        raise ValueError(f"{text!r} is not a domain of at most {MAX_DOMAIN} characters, such as models.example.com")
    return text


class Listener(ApiModel):
    name: str = ""
    port: int = 80
    protocol: str = "HTTP"


class GatewaySpecView(ApiModel):
    listeners: tuple[Listener, ...] = ()


class GatewayView(ApiModel):
    """The fields of a Gateway that the operator reads."""

    metadata: MetaView
    spec: GatewaySpecView = GatewaySpecView()


class ServingGateway:
    """The Gateway of the settings, if the cluster has it."""

    def __init__(self, client: Client, ref: GatewayRef, domain: str) -> None:
        self.ref, self._domain = ref, domain
        self.gateways: OptionalInformer[GatewayView] = OptionalInformer(
            client, GATEWAYS.decoded_as(GatewayView), namespace=ref.namespace
        )

    def is_changed(self, change: ObjectChange[GatewayView]) -> bool:
        """Whether the Gateway appeared, vanished or got other listeners: its status changes with every route."""
        old, new = change.old, change.new
        if change.key.name != self.ref.name:
            return False
        return old is None or new is None or old.spec != new.spec

    @property
    def exists(self) -> bool:
        return self._gateway is not None

    @property
    def _gateway(self) -> GatewayView | None:
        return self.gateways.store.get(ObjectKey(self.ref.namespace, self.ref.name))

    def url(self, service: ServiceRef) -> str:
        """The URL of a service, at the first listener that serves HTTP."""
        listeners = self._gateway.spec.listeners if self._gateway is not None else ()
        host = service.host(self._domain)
        for listener in listeners:
            scheme = listener.protocol.lower()
            if scheme in DEFAULT_PORTS and self.ref.listener in {"", listener.name}:
                port = "" if listener.port == DEFAULT_PORTS[scheme] else f":{listener.port}"
                return f"{scheme}://{host}{port}"
        return f"http://{host}"

    def route_manifest(self, service: ServiceRef, desired: DesiredChildren) -> dict[str, Any]:
        """The HTTPRoute that sends requests for the service's host to its tracks by weight.

        A canary without requests is left out: a gateway may reject all requests of a route with a backend that has no
        endpoints.
        """
        parent = {
            "group": GATEWAYS.group,
            "kind": GATEWAYS.kind,
            "namespace": self.ref.namespace,
            "name": self.ref.name,
        }
        if self.ref.listener:
            parent["sectionName"] = self.ref.listener
        shares = {service.track_service("primary"): 100 - desired.weight}
        if desired.weight:
            shares[service.track_service("canary")] = desired.weight
        backends = [
            {"group": "", "kind": "Service", "name": name, "port": SERVICE_PORT, "weight": share}
            for name, share in shares.items()
        ]
        return {
            "apiVersion": HTTP_ROUTES.api_version,
            "kind": HTTP_ROUTES.kind,
            "metadata": {"name": service.name, "labels": labels(service.selector())},
            "spec": {
                "parentRefs": [parent],
                "hostnames": [service.host(self._domain)],
                "rules": [{"backendRefs": backends}],
            },
        }

    def route(self, service: ServiceRef, child: Child | None) -> Route:
        """The route as the gateway's controller reports it."""
        url = self.url(service)
        if child is None or not is_settled(child):
            return Route(url)
        conditions = [condition for parent in _parents(child) for condition in parent.get("conditions", ())]
        refused = [
            condition.get("message") or condition.get("reason", "")
            for condition in conditions
            if condition["type"] in {"Accepted", "ResolvedRefs"} and condition["status"] == "False"
        ]
        accepted = any(condition["type"] == "Accepted" and condition["status"] == "True" for condition in conditions)
        return Route(url, accepted and not refused, "; ".join(refused) or "the gateway gives no reason")


def is_settled(route: Child) -> bool:
    """Whether a gateway's controller has seen the latest version of the route."""
    return any(
        condition["type"] == "Accepted" and condition.get("observedGeneration", 0) >= route.metadata.generation
        for parent in _parents(route)
        for condition in parent.get("conditions", ())
    )


def weight_of(route: Child, service: str) -> int:
    """The weight that the route gives to a Service; 0 if it is not a backend."""
    return next((backend.get("weight", 1) for backend in _backends(route) if backend["name"] == service), 0)


def sends_to(route: Child, service: str) -> bool:
    """Whether the route has a Service as a backend, or had one in the version that a gateway may still use."""
    return any(backend["name"] == service for backend in _backends(route)) or not is_settled(route)


def _backends(route: Child) -> list[dict[str, Any]]:
    return [backend for rule in route["spec"].get("rules", ()) for backend in rule.get("backendRefs", ())]


def _parents(route: Child) -> list[dict[str, Any]]:
    parents: list[dict[str, Any]] = (route["status"] or {}).get("parents") or []
    return parents
