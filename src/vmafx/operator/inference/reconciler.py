"""The ZerfooInferenceService reconciler: gathers what is live, applies the children, writes the status."""

from collections.abc import Iterable
from functools import partial
from typing import Any

from vmafx.api.inference import InferenceView
from vmafx.api.meta import API_VERSION
from vmafx.inference import manifests
from vmafx.inference.children import DesiredChildren, ServiceRef, desired_children
from vmafx.inference.gpu import GpuDemand
from vmafx.inference.status import CONDITIONS, WAITING, Decision, Problem, ServiceState, decide_status
from vmafx.kube import INFERENCE_SERVICES, ObjectKey, key_of
from vmafx.kube.core import DEPLOYMENTS, HPAS, HTTP_ROUTES, POD_DISRUPTION_BUDGETS, SERVICES
from vmafx.kube.resources import UntypedObject
from vmafx.logs import log
from vmafx.operator.context import FIELD_MANAGER, OperatorContext
from vmafx.operator.inference.gateway import ServingGateway
from vmafx.operator.inference.gather import Gathered, ServiceGatherer
from vmafx.operator.inference.gpu_nodes import GpuNodes
from vmafx.operator.inference.settings import InferenceSettings
from vmafx.runtime.children import ChildName, Children, SyncResult
from vmafx.runtime.conditions import NewCondition, find_condition, with_conditions
from vmafx.runtime.events import EventSubject
from vmafx.runtime.informer import Informer
from vmafx.runtime.reconcile import ReconcileLoop, ReconcileResult
from vmafx.runtime.status import StatusWriter, changed_fields

ENDPOINTS_CHECK_INTERVAL = 0.5  # seconds
RETRY_INTERVAL = 5.0  # seconds, while a child is blocked or a status is refused
REFUSED_RETRY_INTERVAL = 10.0  # seconds, for a child that the server rejects


class InferenceReconciler:
    """Reconciles a service when it, one of its children, the gateway or, for GPUs, a Kubernetes node changes."""

    def __init__(self, context: OperatorContext, settings: InferenceSettings) -> None:
        self._context, self._events = context, context.events
        self._options = settings.options(context.intel_device)
        self.services: Informer[InferenceView] = Informer(
            context.client, INFERENCE_SERVICES.decoded_as(InferenceView), namespace=context.namespace
        )
        caches = [context.children(kind) for kind in (DEPLOYMENTS, SERVICES, HPAS, POD_DISRUPTION_BUDGETS)]
        self._routes = context.optional_children(HTTP_ROUTES)
        self._routes.on_available(self._requeue_services)
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
            services = self.services.store
            self.loop.watches(self.gateway.gateways, to=lambda _: services, when=self.gateway.is_changed)
        self._gatherer = ServiceGatherer(context.client, self._children, self.gateway, self._routes)

    async def reconcile(self, key: ObjectKey) -> ReconcileResult:
        service = self.services.store.get(key)
        if service is None or service.metadata.deletionTimestamp is not None or self._status.must_wait(key, service):
            return ReconcileResult.done()
        ref, spec = ServiceRef(*key), service.spec
        before = await self._gatherer.gather_with_endpoints(service, ref)
        desired = desired_children(ref, spec, before.live, "route" if before.uses_route else "replicas")
        synced, problems = SyncResult(), self._gatherer.gateway_problems()
        if self._options.lacks_engine(spec.image, spec.gpuVendor):
            why = f"the default image has no engine for {spec.gpuVendor}"
            problems.append(Problem("NoEngine", f"{why}; set spec.image to one that has, or use gpuVendor cpu"))
        else:
            bodies, initial = self._declare(service, ref, desired, before)
            synced = await self._children.sync(service, bodies, initial)
            problems += [Problem(failure.reason, failure.message) for failure in synced.failures]
        after = self._gatherer.gather(service, ref)
        state = ServiceState(
            ref=ref,
            spec=spec,
            desired=desired,
            live=after.live,
            route=self.gateway.route(ref, after.route) if self.gateway is not None and before.uses_route else None,
            problems=tuple(problems),
            pending=not synced.complete,
            schedulable=self.nodes.condition(_gpu_demand(service)),
        )
        written = await self._write_status(service, decide_status(state))
        if self._status.is_outdated(key) or synced.outdated:
            return ReconcileResult.retry()
        if not before.has_endpoints:
            return ReconcileResult.after(ENDPOINTS_CHECK_INTERVAL)
        if synced.failures:
            return ReconcileResult.after(REFUSED_RETRY_INTERVAL)
        if not written or not synced.complete:
            return ReconcileResult.after(RETRY_INTERVAL)
        return ReconcileResult.done()

    def _declare(
        self, service: InferenceView, ref: ServiceRef, desired: DesiredChildren, gathered: Gathered
    ) -> tuple[list[UntypedObject], dict[ChildName, UntypedObject]]:
        """The manifests of the children, and the initial replicas of those Deployments that an autoscaler owns.

        Requests leave a track before its replicas do: Services and the route come first, removals last.
        """
        bodies = [manifests.service_manifest(child, ref) for child in desired.services]
        primary = gathered.live.primary
        can_serve = primary is not None and primary.ready > 0 and gathered.has_endpoints
        if self.gateway is not None and gathered.uses_route and (gathered.route is not None or can_serve):
            bodies.append(self.gateway.route_manifest(ref, desired))
        initial: dict[ChildName, UntypedObject] = {}
        for deployment in desired.deployments:
            hpa, track = desired.hpa_of(deployment), ref.track_of(deployment.name)
            # An autoscaler that is no longer wanted owns the replicas until it is deleted.
            scaled = hpa is not None or self._children.find(service, HPAS, ref.hpa(track)) is not None
            bodies.append(manifests.deployment_manifest(deployment, ref, self._options, with_replicas=not scaled))
            if scaled:
                initial[DEPLOYMENTS.kind, deployment.name] = {"spec": {"replicas": deployment.replicas}}
            if hpa is not None or deployment.replicas > 1:
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

    def _requeue_services(self) -> None:
        for key in self.services.store:
            self.loop.queue.add(key)

    def _requeue_gpu_services(self) -> None:
        for service in self.services.store.values():
            if _gpu_demand(service) is not None:
                self.loop.queue.add(key_of(service))


def _gpu_demand(service: InferenceView) -> GpuDemand | None:
    resources = service.spec.resources
    return GpuDemand.of(service.spec.gpuVendor, resources.gpuMemory if resources is not None else None)
