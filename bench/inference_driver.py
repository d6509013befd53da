"""Creates inference services, watches their children, and verifies them at the end."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, aclosing
from types import TracebackType
from typing import Any, Self

import msgspec
from bench.api_requests import RequestCounts
from bench.contest import NAMESPACE
from bench.driver import CREATORS
from prometheus_client import CollectorRegistry

from vmafx.api.inference import CanarySpec, ResourceSpec, ZerfooInferenceService, ZerfooInferenceServiceSpec
from vmafx.api.meta import ApiModel, MetaView, ObjectMeta
from vmafx.kube import INFERENCE_SERVICES, Client, Config, ObjectKey, Resource
from vmafx.kube.metrics import ClientMetrics
from vmafx.kube.resources import UntypedObject
from vmafx.kube.watch import Added, Modified

DEPLOYMENTS: Resource[UntypedObject] = Resource("apps", "v1", "deployments", "Deployment", dict)
SERVICES: Resource[UntypedObject] = Resource("", "v1", "services", "Service", dict)
AUTOSCALERS: Resource[UntypedObject] = Resource(
    "autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", dict
)
BUDGETS: Resource[UntypedObject] = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", dict)
CHILDREN = (DEPLOYMENTS, SERVICES, AUTOSCALERS, BUDGETS)
IMAGE = "vmafx-model-server:bench"
# With three replicas, a canary of one receives exactly this weight.
REPLICAS, CANARY_REPLICAS, WEIGHT = 3, 1, 25
MIN_REPLICAS, MAX_REPLICAS = 3, 6  # of autoscaled services
SERVICE_LABEL, TRACK_LABEL = "vmafx.dev/service", "vmafx.dev/track"
TOUCHED_LABEL = "bench.vmafx.dev/touched"

ChildName = tuple[str, str]  # resource and name


class _Child(msgspec.Struct):
    metadata: ObjectMeta


class _Status(ApiModel):
    observedGeneration: int = 0


class _Service(ApiModel):
    """The fields of a service that show that its status is up to date."""

    metadata: MetaView
    status: _Status = _Status()


_SERVICE = INFERENCE_SERVICES.decoded_as(_Service)


class Times(msgspec.Struct):
    """Times of one service, on the driver's clock."""

    missing: set[ChildName]
    created: float = 0.0  # when it was sent
    applied: float = 0.0  # all children exist
    status: float = 0.0  # the status is that of the current generation


class InferenceDriver:
    """Drives one run of `count` services. Use as an async context manager, which opens its watches."""

    def __init__(self, config: Config, count: int, *, autoscaled: bool) -> None:
        self._autoscaled = autoscaled
        self.times = {
            name: Times(set(expected_children(name, autoscaled=autoscaled))) for name in map(service_name, range(count))
        }
        self._registry = CollectorRegistry()
        self._creating, self._watching = Client(config, ClientMetrics(self._registry)), Client(config)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        for client in (self._creating, self._watching):
            await self._stack.enter_async_context(client)
        group = await self._stack.enter_async_context(asyncio.TaskGroup())
        services = await self._watching.list(_SERVICE, NAMESPACE)
        self._watches = [group.create_task(self._follow_services(services.metadata.resourceVersion))]
        for resource in CHILDREN:
            found = await self._watching.list(resource, NAMESPACE)
            self._watches.append(group.create_task(self._follow(resource, found.metadata.resourceVersion)))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for watch in self._watches:
            watch.cancel()
        await self._stack.__aexit__(kind, error, trace)

    async def create(self) -> None:
        """Create all services, as fast as CREATORS tasks can."""
        await self._for_all(self._create)

    async def touch(self) -> None:
        """Set a label of all services, so that the operator has to reconcile them."""
        await self._for_all(self._touch)

    async def _for_all(self, act: Callable[[str], Awaitable[None]]) -> None:
        names = iter(self.times)
        await asyncio.gather(*(_each(names, act) for _ in range(CREATORS)))

    async def _create(self, name: str) -> None:
        self.times[name].created = time.perf_counter()
        body = make_service(name, autoscaled=self._autoscaled)
        await self._creating.create(INFERENCE_SERVICES, body, NAMESPACE)

    async def _touch(self, name: str) -> None:
        patch = {"metadata": {"labels": {TOUCHED_LABEL: "true"}}}
        await self._creating.merge_patch(_SERVICE, ObjectKey(NAMESPACE, name), patch)

    async def _follow(self, resource: Resource[Any], version: str) -> None:
        watch = self._watching.watch(resource.decoded_as(_Child), NAMESPACE, version=version)
        async with aclosing(aiter(watch)) as batches:
            async for batch in batches:
                now = time.perf_counter()
                for event in batch:
                    if isinstance(event, Added):
                        self._record_child(resource, event.object.metadata, now)

    def _record_child(self, resource: Resource[Any], child: ObjectMeta, now: float) -> None:
        for owner in child.ownerReferences:
            times = self.times[owner.name]
            times.missing.discard((resource.plural, child.name))
            if not times.missing and not times.applied:
                times.applied = now

    async def _follow_services(self, version: str) -> None:
        watch = self._watching.watch(_SERVICE, NAMESPACE, version=version)
        async with aclosing(aiter(watch)) as batches:
            async for batch in batches:
                now = time.perf_counter()
                for event in batch:
                    if isinstance(event, Modified):
                        service, times = event.object, self.times[event.object.metadata.name]
                        if service.status.observedGeneration == service.metadata.generation and not times.status:
                            times.status = now

    async def all_done(self) -> bool:
        return all(one.applied and one.status for one in self.times.values())

    def sent(self) -> RequestCounts:
        """The driver's own writes so far."""
        counts: RequestCounts = RequestCounts()
        for family in self._registry.collect():
            for sample in family.samples:
                if sample.name == "rest_client_requests_total":
                    counts[sample.labels["method"], INFERENCE_SERVICES.plural] += int(sample.value)
        return counts


async def _each(names: Iterator[str], act: Callable[[str], Awaitable[None]]) -> None:
    for name in names:
        await act(name)


def service_name(number: int) -> str:
    return f"model-{number:04}"


def make_service(name: str, *, autoscaled: bool) -> ZerfooInferenceService:
    """A service with models of its own, so that a mix-up is detected."""
    spec = ZerfooInferenceServiceSpec(
        modelRef=f"{name}-v1",
        replicas=REPLICAS,
        minReplicas=MIN_REPLICAS if autoscaled else 0,
        maxReplicas=MAX_REPLICAS if autoscaled else 0,
        resources=ResourceSpec(cpu="2", memory="4Gi"),
        canary=CanarySpec(modelRef=f"{name}-v2", weight=WEIGHT),
        image=IMAGE,
    )
    return ZerfooInferenceService(metadata=ObjectMeta(name=name), spec=spec)


def expected_children(name: str, *, autoscaled: bool) -> dict[ChildName, UntypedObject]:
    """The children of a service, as `summary` describes them."""
    everything = {SERVICE_LABEL: name}
    primary, canary = ({**everything, TRACK_LABEL: track} for track in ("primary", "canary"))

    def deployment(replicas: int | None, model: str, selector: dict[str, str]) -> UntypedObject:
        return {"replicas": replicas, "image": IMAGE, "model": model, "selector": selector, "labels": selector}

    children = {
        ("deployments", f"{name}-primary"): deployment(None if autoscaled else REPLICAS, f"{name}-v1", primary),
        ("deployments", f"{name}-canary"): deployment(CANARY_REPLICAS, f"{name}-v2", canary),
        ("services", f"{name}-svc"): {"ports": [("http", 80, "http")], "selector": everything},
        ("services", f"{name}-primary"): {"ports": [("http", 80, "http")], "selector": primary},
        ("services", f"{name}-canary"): {"ports": [("http", 80, "http")], "selector": canary},
        ("poddisruptionbudgets", f"{name}-primary"): {"maxUnavailable": 1, "selector": primary},
    }
    if autoscaled:
        target = {"target": f"{name}-primary", "replicas": (MIN_REPLICAS, MAX_REPLICAS), "cpu": [80]}
        children["horizontalpodautoscalers", f"{name}-primary-hpa"] = target
    return children


def summary(resource: Resource[Any], child: UntypedObject, *, autoscaled: bool) -> UntypedObject:
    """The fields of a child that are verified."""
    spec = child["spec"]
    if resource is DEPLOYMENTS:
        container, labels = spec["template"]["spec"]["containers"][0], spec["template"]["metadata"]["labels"]
        return {
            # Where an autoscaler is to decide, ours starts with the replicas of the service, Go's with 1.
            "replicas": spec["replicas"] if not autoscaled or "primary" not in labels.values() else None,
            "image": container["image"],
            "model": next((one.get("value") for one in container["env"] if one["name"] == "MODEL_REF"), None),
            "selector": spec["selector"]["matchLabels"],
            "labels": {label: labels.get(label) for label in (SERVICE_LABEL, TRACK_LABEL)},
        }
    if resource is SERVICES:
        ports = [(port["name"], port["port"], port["targetPort"]) for port in spec["ports"]]
        selector = dict(spec["selector"])
        if child["metadata"]["name"].endswith("-svc"):
            # The canary never becomes ready here: ours selects the primary until it is, Go's both at once.
            selector.pop(TRACK_LABEL, None)
        return {"ports": ports, "selector": selector}
    if resource is BUDGETS:
        return {"maxUnavailable": spec.get("maxUnavailable"), "selector": spec["selector"]["matchLabels"]}
    return {
        "target": spec["scaleTargetRef"]["name"],
        "replicas": (spec["minReplicas"], spec["maxReplicas"]),
        "cpu": [metric["resource"]["target"].get("averageUtilization") for metric in spec["metrics"]],
    }


def _right_status(service: ZerfooInferenceService) -> bool:
    name, status = service.metadata.name, service.status
    return (
        status.observedGeneration == service.metadata.generation
        and status.canaryWeight in {0, WEIGHT}  # 0 is the achieved one: the canary never becomes ready here
        and f"{name}-svc" in (status.url or "")
        and f"{SERVICE_LABEL}={name}" in (status.selector or "")
        and bool(status.conditions)
        and not (status.ready or status.replicas)  # nothing runs Pods here
    )


async def problems(client: Client, names: list[str], *, autoscaled: bool) -> list[str]:
    """Read everything back: each service must have its status and exactly its children, all of them as expected."""
    services = {service.metadata.name: service for service in (await client.list(INFERENCE_SERVICES, NAMESPACE)).items}
    children: dict[str, dict[ChildName, UntypedObject]] = {}
    for resource in CHILDREN:
        for child in (await client.list(resource, NAMESPACE)).items:
            for owner in child["metadata"].get("ownerReferences", ()):
                own = children.setdefault(owner["uid"], {})
                own[resource.plural, child["metadata"]["name"]] = summary(resource, child, autoscaled=autoscaled)
    found = []
    for name in names:
        service = services.pop(name, None)
        if service is None:
            found.append(f"{name} does not exist")
            continue
        own, wanted = children.pop(service.metadata.uid, {}), expected_children(name, autoscaled=autoscaled)
        found += [
            f"{'/'.join(child)} is {own.get(child)}, not {wanted.get(child)}"
            for child in own.keys() | wanted.keys()
            if own.get(child) != wanted.get(child)
        ]
        if not _right_status(service):
            found.append(f"{name} has the status {service.status}")
    found += [f"{name} was not created by the driver" for name in services]
    return found + [f"{'/'.join(child)} belongs to an unknown service" for own in children.values() for child in own]
