"""The ZerfooInferenceService reconciler: gathers what is live, applies the children, writes the status."""

from collections.abc import Iterable
from functools import partial
from typing import Any

import msgspec

from vmafx.api.inference import InferenceView
from vmafx.api.meta import API_VERSION
from vmafx.inference import manifests
from vmafx.inference.children import DesiredChildren, LiveDeployment, LiveState, ServiceRef, Track, desired_children
from vmafx.inference.gpu import GpuDemand
from vmafx.inference.live import canary_weight, live_deployment
from vmafx.inference.status import CONDITIONS, WAITING, Decision, Problem, ServiceState, decide_status
from vmafx.kube import INFERENCE_SERVICES, ObjectKey, key_of
from vmafx.kube.core import DEPLOYMENTS, ENDPOINT_SLICES, HPAS, HTTP_ROUTES, POD_DISRUPTION_BUDGETS, SERVICES
from vmafx.kube.resources import UntypedObject
from vmafx.logs import log
from vmafx.operator.context import FIELD_MANAGER, OperatorContext
from vmafx.operator.inference.gateway import ServingGateway, sends_to
from vmafx.operator.inference.gpu_nodes import GpuNodes
from vmafx.operator.inference.settings import InferenceSettings
from vmafx.runtime.children import Child, ChildName, Children, SyncResult
from vmafx.runtime.conditions import NewCondition, find_condition, with_conditions
from vmafx.runtime.events import EventSubject
from vmafx.runtime.informer import Informer, OptionalInformer
from vmafx.runtime.reconcile import ReconcileLoop, ReconcileResult
from vmafx.runtime.status import StatusWriter, changed_fields

ENDPOINTS_CHECK_INTERVAL = 0.5  # seconds
RETRY_AFTER = 5.0  # seconds, while a child is blocked, a kind of the Gateway API is missing or a status is refused


class Gathered(msgspec.Struct, frozen=True):
    """What is live of a service before it is reconciled."""

    live: LiveState
    route: Child | None = None
    routed: bool = False  # a gateway splits the requests
    routed_now: bool = False  # the primary has endpoints: the route can be created
    reachable: bool = True  # no ready track lacks endpoints


class InferenceReconciler:
    """Reconciles a service when it, one of its children, the gateway or, for GPUs, a Kubernetes node changes."""

    def __init__(self, context: OperatorContext, settings: InferenceSettings) -> None:
        self._context, self._events = context, context.events
        self._options = settings.options(context.intel_device)
        self.services: Informer[InferenceView] = Informer(
            context.client, INFERENCE_SERVICES.decoded_as(InferenceView), namespace=context.namespace
        )
        caches = [context.children(kind) for kind in (DEPLOYMENTS, SERVICES, HPAS, POD_DISRUPTION_BUDGETS)]
        self._routes = context.children(HTTP_ROUTES, optional=True)
        self._children = Children(context.client, FIELD_MANAGER, self.services, [*caches, self._routes])
        self._status = StatusWriter(context.client, self.services)
        self.nodes = GpuNodes(context.client, self._options.gpu, self._requeue_gpu_services)
        self.loop = ReconcileLoop(
            "zerfooinferenceservice", self.reconcile, context.metrics, max_concurrent=context.max_concurrent
        )
        self.loop.watches(self.services, when=self._status.needs_reconcile)
        for cache in (*caches, self._routes):
            changed = partial(self._children.needs_reconcile, cache.resource)
            self.loop.owns(cache, INFERENCE_SERVICES.kind, when=changed)
        self.gateway: ServingGateway | None = None
        if settings.gateway is not None:
            self.gateway = ServingGateway(context.client, settings.gateway, settings.domain)
            self.loop.watches(self.gateway.gateways, to=lambda _: self.services.store)

    async def reconcile(self, key: ObjectKey) -> ReconcileResult:
        service = self.services.store.get(key)
        if service is None or service.metadata.deletionTimestamp is not None or self._status.must_wait(key, service):
            return ReconcileResult.done()
        ref, spec = ServiceRef(*key), service.spec
        before = await self._with_endpoints(ref, self._gather(service, ref))
        desired = desired_children(ref, spec, before.live, "route" if before.routed else "replicas")
        synced, problems = SyncResult(), self._gateway_problems(before)
        if spec.image or self._options.image:
            bodies, initial = self._declare(service, ref, desired, before)
            synced = await self._children.sync(service, bodies, initial)
            problems += [Problem(failure.reason, failure.message) for failure in synced.failures]
        else:
            problems.append(
                Problem("NoImage", "there is no image: set spec.image, or VMAFX_SERVING_IMAGE of the operator")
            )
        after = self._gather(service, ref)
        state = ServiceState(
            ref=ref,
            spec=spec,
            desired=desired,
            live=after.live,
            route=self.gateway.route(ref, after.route) if self.gateway is not None and before.routed else None,
            problems=tuple(problems),
            pending=not synced.complete,
            schedulable=self.nodes.condition(_gpu_demand(service)),
        )
        written = await self._write_status(service, decide_status(state))
        if self._status.is_outdated(key) or synced.outdated:
            return ReconcileResult.retry()
        if not before.reachable:
            return ReconcileResult.after(ENDPOINTS_CHECK_INTERVAL)
        if not written or not synced.complete or (self._has_gateway and not before.routed):
            return ReconcileResult.after(RETRY_AFTER)
        return ReconcileResult.done()

    @property
    def _has_gateway(self) -> bool:
        return self.gateway is not None and self.gateway.exists

    def _gather(self, service: InferenceView, ref: ServiceRef) -> Gathered:
        """What is live, from the caches and, where they are older, from the last sync."""
        tracks: tuple[Track, ...] = ("primary", "canary")
        primary, canary = (self._children.find(service, DEPLOYMENTS, ref.deployment(track)) for track in tracks)
        called = self._children.find(service, SERVICES, ref.service)
        route = self._children.find(service, HTTP_ROUTES, ref.name)
        live = LiveState(
            primary=_live(primary),
            canary=_live(canary),
            weight=canary_weight(called.metadata.annotations, ref.deployment("canary")) if called is not None else 0,
            routed_to_canary=route is not None and sends_to(route, ref.track_service("canary")),
        )
        routable = isinstance(self._routes, OptionalInformer) and self._routes.unavailable is None
        return Gathered(live, route, self._has_gateway and routable)

    async def _with_endpoints(self, ref: ServiceRef, gathered: Gathered) -> Gathered:
        """Look for endpoints of a track that is ready but not in the route yet.

        Ready replicas may not be endpoints yet, and a gateway that finds none may reject requests for a while.
        """
        live = gathered.live
        if not gathered.routed:
            return gathered
        if gathered.route is None and live.primary is not None and live.primary.ready:
            reachable = await self._endpoints(ref, "primary")
            return msgspec.structs.replace(gathered, routed_now=reachable, reachable=reachable)
        if live.weight == 0 and live.canary is not None and live.canary.ready:
            reachable = await self._endpoints(ref, "canary")
            live = msgspec.structs.replace(live, canary_reachable=reachable)
            return msgspec.structs.replace(gathered, live=live, reachable=reachable)
        return gathered

    async def _endpoints(self, ref: ServiceRef, track: Track) -> bool:
        """Whether the Service of a track has an endpoint."""
        labels = f"kubernetes.io/service-name={ref.track_service(track)}"
        slices = await self._context.client.list(ENDPOINT_SLICES, ref.namespace, labels=labels)
        return any(endpoint.conditions.ready for found in slices.items for endpoint in found.endpoints or ())

    def _gateway_problems(self, gathered: Gathered) -> list[Problem]:
        if self.gateway is None or gathered.routed:
            return []
        what = f"Gateway {self.gateway.ref}" if not self.gateway.exists else "HTTPRoutes"
        message = f"cannot find {what}: requests are split by the number of replicas"
        return [Problem("GatewayNotFound", message, blocking=False)]

    def _declare(
        self, service: InferenceView, ref: ServiceRef, desired: DesiredChildren, gathered: Gathered
    ) -> tuple[list[UntypedObject], dict[ChildName, UntypedObject]]:
        """The manifests of the children, and the initial replicas of those Deployments that an autoscaler owns.

        Requests leave a track before its replicas do: Services and the route come first, removals last.
        """
        bodies = [manifests.service_manifest(child, ref) for child in desired.services]
        if self.gateway is not None and gathered.routed and (gathered.route is not None or gathered.routed_now):
            bodies.append(self.gateway.route_manifest(ref, desired))
        initial: dict[ChildName, UntypedObject] = {}
        for deployment in desired.deployments:
            hpa, track = desired.hpa_of(deployment), _track_of(deployment.name, ref)
            # An autoscaler that is no longer wanted owns the replicas until it is deleted.
            scaled = hpa is not None or self._children.find(service, HPAS, ref.hpa(track)) is not None
            bodies.append(manifests.deployment_manifest(deployment, ref, self._options, owned=not scaled))
            if scaled:
                initial[DEPLOYMENTS.kind, deployment.name] = {"spec": {"replicas": deployment.replicas}}
            if (hpa.minReplicas if hpa is not None else deployment.replicas) > 1:
                bodies.append(manifests.budget_manifest(deployment, ref))
        bodies += [manifests.hpa_manifest(hpa, ref) for hpa in desired.hpas]
        return bodies, initial

    async def _write_status(self, service: InferenceView, decision: Decision) -> bool:
        """Whether the status is as decided; not if the service was changed or deleted since it was read."""
        conditions = with_conditions(service, decision.conditions, CONDITIONS, self._context.now())
        wanted: dict[str, Any] = {
            **decision.fields,
            "observedGeneration": service.metadata.generation,
            "conditions": conditions,
        }
        # The first status has all fields: `kubectl get` shows nothing for one that is absent.
        changes = changed_fields(service.status, wanted) if service.status.observedGeneration else wanted
        if await self._status.write_last(service, changes) is None:
            return False
        self._report(service, decision.conditions)
        return True

    def _report(self, service: InferenceView, conditions: Iterable[NewCondition]) -> None:
        """Log and emit an event when the service becomes ready or stops being so, or a problem appears."""
        meta = service.metadata
        subject = EventSubject(API_VERSION, INFERENCE_SERVICES.kind, meta.namespace, meta.name, meta.uid)
        for new in conditions:
            old = find_condition(service.status.conditions, new.type)
            if old is not None and (old.status, old.reason) == (new.status, new.reason):
                continue
            bad = {"Degraded": "True", "CanaryHonoured": "False"}.get(new.type) == new.status
            if bad and new.reason not in WAITING:
                log.warn("service degraded", service=str(key_of(service)), reason=new.reason, error=new.message)
                self._events.emit(subject, "Warning", new.reason, "Reconcile", new.message)
            elif new.type == "Ready" and new.status == "True":
                log.info("service ready", service=str(key_of(service)))
                self._events.emit(subject, "Normal", "Ready", "Reconcile", new.message)

    def _requeue_gpu_services(self) -> None:
        for service in self.services.store.values():
            if _gpu_demand(service) is not None:
                self.loop.queue.add(key_of(service))


def _live(deployment: Child | None) -> LiveDeployment | None:
    if deployment is None:
        return None
    return live_deployment(deployment.metadata.generation, deployment["spec"], deployment["status"])


def _gpu_demand(service: InferenceView) -> GpuDemand | None:
    resources = service.spec.resources
    return GpuDemand.of(service.spec.gpuVendor, resources.gpuMemory if resources is not None else None)


def _track_of(deployment: str, ref: ServiceRef) -> Track:
    return "canary" if deployment == ref.deployment("canary") else "primary"
