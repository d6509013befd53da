"""The children of a ZerfooInferenceService, decided from its spec and what is live. Pure.

`desired_children` serves both the operator and the library's Reconciler.

    <name>-primary      Deployment of modelRef, and a Service that only it answers
    <name>-canary       the same for canary.modelRef
    <name>-svc          Service that people call
    <name>-primary-hpa  HorizontalPodAutoscaler of the primary; -canary-hpa of the canary
"""

from typing import Literal

import msgspec

from vmafx.api.hardware import Vendor
from vmafx.api.inference import HealthCheckSpec, ResourceSpec, ZerfooInferenceServiceSpec
from vmafx.api.meta import ApiModel
from vmafx.inference.traffic import canary_replicas, canary_share, weight_in_force

Track = Literal["primary", "canary"]
TRACKS: tuple[Track, ...] = ("primary", "canary")
Split = Literal["replicas", "route"]  # what splits the requests: the numbers of replicas, or a route with weights
SERVICE_LABEL, TRACK_LABEL = "vmafx.dev/service", "vmafx.dev/track"


class WeightedTarget(ApiModel):
    """A Deployment, and the percentage of requests that it receives."""

    deploymentName: str
    weight: int


class Deployment(ApiModel):
    """The replicas that serve one model. The last four fields are observed: None if they are not known."""

    name: str
    namespace: str
    replicas: int
    modelRef: str
    resources: ResourceSpec = ResourceSpec()
    healthCheck: HealthCheckSpec = HealthCheckSpec()
    image: str | None = None
    port: int = 8080
    gpuVendor: Vendor | None = None
    readyReplicas: int | None = None
    currentReplicas: int | None = None  # that exist, of any version
    updatedReplicas: int | None = None  # of the latest version
    problem: str = ""  # why it makes no progress

    @property
    def wanted(self) -> "Deployment":
        """The Deployment without what is observed."""
        return msgspec.structs.replace(self, readyReplicas=None, currentReplicas=None, updatedReplicas=None, problem="")


class Service(ApiModel):
    """A stable address of the Pods that `selector` selects; `weights` is the split that is in force."""

    name: str
    namespace: str
    selector: dict[str, str]
    weights: tuple[WeightedTarget, ...] = ()


class HPA(ApiModel):
    """A HorizontalPodAutoscaler of the Deployment `targetRef`."""

    name: str
    namespace: str
    targetRef: str
    minReplicas: int
    maxReplicas: int


class ServiceRef(msgspec.Struct, frozen=True):
    """The name of a service and of its children."""

    namespace: str
    name: str

    def deployment(self, track: Track) -> str:
        return f"{self.name}-{track}"

    @property
    def service(self) -> str:
        return f"{self.name}-svc"

    def host(self, domain: str) -> str:
        """Its host at a gateway, below the domain of all services."""
        return f"{self.name}.{self.namespace}.{domain}"

    def track_of(self, deployment: str) -> Track:
        return "canary" if deployment == self.deployment("canary") else "primary"

    def track_service(self, track: Track) -> str:
        return f"{self.name}-{track}"

    def hpa(self, track: Track) -> str:
        return f"{self.name}-{track}-hpa"

    def selector(self, track: Track | None = None) -> dict[str, str]:
        """The labels of its Pods, or of those of one track."""
        return {SERVICE_LABEL: self.name} | ({TRACK_LABEL: track} if track else {})


class LiveDeployment(msgspec.Struct, frozen=True):
    """A Deployment as observed."""

    modelRef: str
    replicas: int  # desired, whoever set it
    ready: int = 0
    current: int = 0  # replicas that exist, of any version
    updated: int = 0  # replicas of the latest version
    settled: bool = False  # the status is about the latest version
    problem: str = ""  # why it makes no progress

    @property
    def complete(self) -> bool:
        """Whether every desired replica is of the latest version and ready, and no other exists."""
        return self.settled and self.current == self.updated == self.ready == self.replicas


class LiveState(msgspec.Struct, frozen=True):
    """What is live of a service, as far as its children depend on it."""

    primary: LiveDeployment | None = None
    canary: LiveDeployment | None = None
    weight: int = 0  # of the canary, in force
    canary_reachable: bool = True  # False while a gateway would find no endpoints of the canary
    routed_to_canary: bool = False  # a gateway may still send requests to the canary

    def track(self, track: Track) -> LiveDeployment | None:
        return self.canary if track == "canary" else self.primary


CanaryPhase = Literal["none", "active", "promoting", "retiring"]


class DesiredChildren(msgspec.Struct, frozen=True):
    """The children that a service should have now. `weight` is the canary's, in force now.

    A canary is `promoting` while the primary is rolled out with its model: it serves until that is complete. It is
    `retiring` while a gateway may still send requests to it.
    """

    deployments: tuple[Deployment, ...]
    services: tuple[Service, ...]
    hpas: tuple[HPA, ...]
    canary: CanaryPhase
    weight: int

    def hpa_of(self, deployment: Deployment) -> HPA | None:
        return next((hpa for hpa in self.hpas if hpa.targetRef == deployment.name), None)


def desired_children(
    ref: ServiceRef, spec: ZerfooInferenceServiceSpec, live: LiveState, split: Split = "replicas"
) -> DesiredChildren:
    """The children of a service: pure, and the same for the operator and the library."""
    phase, model, wanted = _canary(spec, live)
    autoscaled = spec.minReplicas > 0
    primaries = _primary_replicas(spec, live.primary)
    deployments = [_deployment(ref, spec, "primary", spec.modelRef, primaries)]
    services = [Service(ref.track_service("primary"), ref.namespace, ref.selector("primary"))]
    hpas: list[HPA] = []
    if autoscaled:
        # Requests may come back from the canary at any time: until then the primary keeps its replicas.
        shared = phase != "none" and (wanted or live.weight)
        hpas.append(_hpa(ref, spec, "primary", primaries if shared else spec.minReplicas))
    weight = 0
    if phase != "none":
        count = canary_replicas(primaries, wanted) if split == "replicas" else canary_share(primaries, wanted)
        if phase == "retiring" and live.canary is not None:
            count = live.canary.replicas
        ready = live.canary.ready if live.canary is not None and live.canary_reachable else 0
        weight = weight_in_force(wanted, live.weight, ready, count, by_replicas=split == "replicas")
        if autoscaled and (split == "route" or weight == 100):
            hpas.append(_hpa(ref, spec, "canary", count))
            count = max(live.canary.replicas, count) if live.canary is not None else count
        deployments.append(_deployment(ref, spec, "canary", model, count))
        services.append(Service(ref.track_service("canary"), ref.namespace, ref.selector("canary")))
    return DesiredChildren(
        deployments=tuple(deployments),
        services=(_called_service(ref, phase, weight, split), *services),
        hpas=tuple(hpas),
        canary=phase,
        weight=weight,
    )


def _canary(spec: ZerfooInferenceServiceSpec, live: LiveState) -> tuple[CanaryPhase, str, int]:
    """The phase of the canary, its model and its weight."""
    if spec.canary is not None:
        return "active", spec.canary.modelRef, spec.canary.weight
    if live.canary is None:
        return "none", "", 0
    model, primary = live.canary.modelRef, live.primary
    rolled_out = primary is not None and primary.modelRef == spec.modelRef and primary.complete
    if model == spec.modelRef and live.weight and not rolled_out:
        return "promoting", model, live.weight
    return ("retiring" if live.routed_to_canary else "none"), model, 0


def _primary_replicas(spec: ZerfooInferenceServiceSpec, live: LiveDeployment | None) -> int:
    """With autoscaling, the live number: only a new Deployment gets `spec.replicas`, within the limits."""
    if spec.minReplicas == 0:
        return spec.replicas
    return live.replicas if live is not None else min(max(spec.replicas, spec.minReplicas), spec.maxReplicas)


def _deployment(
    ref: ServiceRef, spec: ZerfooInferenceServiceSpec, track: Track, model: str, replicas: int
) -> Deployment:
    return Deployment(
        name=ref.deployment(track),
        namespace=ref.namespace,
        replicas=replicas,
        modelRef=model,
        resources=spec.resources or ResourceSpec(),
        healthCheck=spec.healthCheck,
        image=spec.image,
        port=spec.port,
        gpuVendor=spec.gpuVendor,
    )


def _hpa(ref: ServiceRef, spec: ZerfooInferenceServiceSpec, track: Track, minimum: int) -> HPA:
    """An autoscaler that keeps at least `minimum` replicas, within the limits of the spec."""
    minimum = min(max(minimum, 1), spec.maxReplicas)
    return HPA(ref.hpa(track), ref.namespace, ref.deployment(track), minimum, spec.maxReplicas)


def _called_service(ref: ServiceRef, phase: CanaryPhase, weight: int, split: Split) -> Service:
    """The Service that people call.

    It selects both tracks only where the numbers of replicas make the split. With a route, its callers bypass the
    weights: they reach the primary, unless the canary has all of the traffic.
    """
    track: Track | None = "primary"
    if weight == 100:
        track = "canary"
    elif weight and split == "replicas":
        track = None
    weights: tuple[WeightedTarget, ...] = ()
    if phase in {"active", "promoting"}:
        shares: tuple[tuple[Track, int], ...] = (("primary", 100 - weight), ("canary", weight))
        weights = tuple(WeightedTarget(ref.deployment(name), share) for name, share in shares)
    return Service(ref.service, ref.namespace, ref.selector(track), weights)
