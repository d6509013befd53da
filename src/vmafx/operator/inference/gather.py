"""Gathers what is live of a service: its Deployments, the weight of its canary, and whether a gateway routes to it."""

import msgspec

from vmafx.api.inference import InferenceView
from vmafx.inference.children import TRACKS, LiveDeployment, LiveState, ServiceRef, Track
from vmafx.inference.live import canary_weight, live_deployment
from vmafx.inference.status import Problem
from vmafx.kube import Client
from vmafx.kube.core import DEPLOYMENTS, ENDPOINT_SLICES, HTTP_ROUTES, SERVICES
from vmafx.operator.inference.gateway import ServingGateway, sends_to, weight_of
from vmafx.runtime.child import Child
from vmafx.runtime.children import Children
from vmafx.runtime.informer import OptionalInformer


class Gathered(msgspec.Struct, frozen=True):
    """What is live of a service."""

    live: LiveState
    route: Child | None = None
    uses_route: bool = False  # a gateway splits the requests
    has_endpoints: bool = True  # False if a track is ready but has no endpoints yet, so that it cannot join the route


class ServiceGatherer:
    """Reads from the caches and, where they are older, from the last sync."""

    def __init__(
        self,
        client: Client,
        children: Children[InferenceView],
        gateway: ServingGateway | None,
        routes: OptionalInformer[Child],
    ) -> None:
        self._client, self._children, self._gateway, self._routes = client, children, gateway, routes

    def gather(self, service: InferenceView, ref: ServiceRef) -> Gathered:
        primary, canary = (self._children.find(service, DEPLOYMENTS, ref.deployment(track)) for track in TRACKS)
        called = self._children.find(service, SERVICES, ref.service)
        route = self._children.find(service, HTTP_ROUTES, ref.name)
        # A route stays, even if the gateway is gone: it may come back, and nothing else has its host.
        uses_route = self._gateway is not None and (
            route is not None or (self._gateway.exists and self._routes.unavailable is None)
        )
        weight = canary_weight(called.metadata.annotations, ref.deployment("canary")) if called is not None else 0
        if uses_route:
            weight = weight_of(route, ref.track_service("canary")) if route is not None else 0
        live = LiveState(
            primary=_live(primary),
            canary=_live(canary),
            weight=weight,
            routed_to_canary=route is not None and sends_to(route, ref.track_service("canary")),
        )
        return Gathered(live, route, uses_route)

    async def gather_with_endpoints(self, service: InferenceView, ref: ServiceRef) -> Gathered:
        """Also look for endpoints of the tracks that are ready but not in the route yet.

        Ready replicas may not be endpoints yet, and a gateway that finds none may reject requests for a while.
        """
        gathered = self.gather(service, ref)
        if not gathered.uses_route:
            return gathered
        joining: list[Track] = ["primary"] if gathered.route is None else []
        if gathered.live.weight == 0 and service.spec.canary is not None and service.spec.canary.weight:
            joining.append("canary")
        ready = [track for track in joining if (found := gathered.live.track(track)) is not None and found.ready]
        missing = [track for track in ready if not await self._has_endpoint(ref, track)]
        live = msgspec.structs.replace(gathered.live, canary_reachable="canary" not in missing)
        return msgspec.structs.replace(gathered, live=live, has_endpoints=not missing)

    async def _has_endpoint(self, ref: ServiceRef, track: Track) -> bool:
        """Whether the Service of a track has an endpoint."""
        labels = f"kubernetes.io/service-name={ref.track_service(track)}"
        slices = await self._client.list(ENDPOINT_SLICES, ref.namespace, labels=labels)
        return any(
            endpoint.conditions.ready is not False for found in slices.items for endpoint in found.endpoints or ()
        )

    def gateway_problems(self) -> list[Problem]:
        if self._gateway is None or (self._gateway.exists and self._routes.unavailable is None):
            return []
        missing = "HTTPRoutes" if self._gateway.exists else f"Gateway {self._gateway.ref}"
        message = f"cannot find {missing}: a service without a route is reachable only in the cluster"
        return [Problem("GatewayNotFound", message)]


def _live(deployment: Child | None) -> LiveDeployment | None:
    if deployment is None:
        return None
    return live_deployment(deployment.metadata.generation, deployment["spec"], deployment["status"])
