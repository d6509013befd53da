"""The Kubernetes manifests of a service's children. Pure.

Values have the form in which the server stores them, so that an applied child equals its manifest.
"""

from typing import Any

import msgspec

from vmafx.api.fields import INT32_MAX
from vmafx.api.hardware import BACKEND_VARIABLE, HARDWARE, Vendor
from vmafx.api.inference import (
    DEFAULT_HEALTH_PATH,
    GATEWAY_HOST_VARIABLE,
    GRPC_VARIABLE,
    MODEL_VARIABLE,
    PORT_VARIABLE,
    HealthCheckSpec,
    ResourceSpec,
)
from vmafx.api.restricted import (
    SCRATCH_ENVIRONMENT,
    env_entries,
    restricted_container,
    restricted_pod,
    scratch_mount,
    scratch_volume,
)
from vmafx.api.units import nanoseconds
from vmafx.inference.children import (
    HPA,
    SERVICE_LABEL,
    TRACK_LABEL,
    Deployment,
    Service,
    ServiceRef,
    WeightedTarget,
)
from vmafx.inference.gpu import GpuDemand, GpuOptions

CONTAINER, PORT_NAME, SERVICE_PORT = "server", "http", 80
SCORED_VENDORS: tuple[Vendor, ...] = ("cpu",)  # that the scoring server has an engine for
WEIGHTS_ANNOTATION = "vmafx.dev/weights"
TARGET_CPU_UTILIZATION = 80  # percent of the CPU request
STARTUP_SECONDS = 600  # for loading a model, before the liveness probe counts
PROGRESS_DEADLINE = 2 * STARTUP_SECONDS  # for a rollout to make progress: images of models are large
DRAIN_SECONDS = 5  # between the deletion of a Pod and SIGTERM: proxies stop sending requests to it meanwhile
TERMINATION_GRACE = 60  # seconds
SCORING_SERVER = ("vmafx", "serve")  # the command in vmafx's own image
READY_PATH = "/readyz"  # of the scoring server: it answers once the model is loaded
Manifest = dict[str, Any]


class ServingOptions(msgspec.Struct, frozen=True):
    """What all services have in common: the default images, the names of GPU resources and labels, the domain.

    A service without an image has `image`, which runs with its own entrypoint; if that is empty, it has `vmafx_image`,
    which runs the scoring server.
    """

    image: str = ""
    gpu: GpuOptions = GpuOptions()
    vmafx_image: str = ""
    domain: str = ""  # of services at their gateway; empty without one
    pull_secrets: tuple[str, ...] = ()

    def image_of(self, given: str | None) -> str:
        """The image of replicas whose service has the image `given`; empty if there is none."""
        return given or self.image or self.vmafx_image

    def runs_vmafx(self, given: str | None) -> bool:
        """Whether these replicas run vmafx's own image."""
        return not (given or self.image)

    def lacks_engine(self, given: str | None, vendor: Vendor | None) -> bool:
        """Whether replicas would end at once, since vmafx's own image has no engine for the device."""
        return self.runs_vmafx(given) and vendor not in {None, *SCORED_VENDORS}


def labels(selector: dict[str, str]) -> dict[str, str]:
    """The labels of a child, whose Pods have the labels of `selector`."""
    return {"app.kubernetes.io/name": "vmafx-inference", **selector}


def deployment_manifest(
    deployment: Deployment, ref: ServiceRef, options: ServingOptions, *, with_replicas: bool
) -> Manifest:
    """Without replicas if they belong to an autoscaler."""
    selector = ref.selector(ref.track_of(deployment.name))
    spec: Manifest = {
        "selector": {"matchLabels": selector},
        "progressDeadlineSeconds": PROGRESS_DEADLINE,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": "25%"}},
        "template": {"metadata": {"labels": labels(selector)}, "spec": _pod_spec(deployment, ref, options)},
    }
    if with_replicas:
        spec["replicas"] = deployment.replicas
    return _manifest("apps/v1", "Deployment", deployment.name, selector, spec)


def service_manifest(service: Service, ref: ServiceRef) -> Manifest:
    ports = [{"name": PORT_NAME, "port": SERVICE_PORT, "protocol": "TCP", "targetPort": PORT_NAME}]
    # The Service that people call keeps its labels when its selector moves from track to track.
    own = ref.selector() if service.name == ref.service else service.selector
    manifest = _manifest("v1", "Service", service.name, own, {"selector": service.selector, "ports": ports})
    if service.weights:
        manifest["metadata"]["annotations"] = {WEIGHTS_ANNOTATION: weights_text(service.weights)}
    return manifest


def hpa_manifest(hpa: HPA, ref: ServiceRef) -> Manifest:
    utilization = {"type": "Utilization", "averageUtilization": TARGET_CPU_UTILIZATION}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": hpa.targetRef},
        "minReplicas": hpa.minReplicas,
        "maxReplicas": hpa.maxReplicas,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": utilization}}],
    }
    return _manifest("autoscaling/v2", "HorizontalPodAutoscaler", hpa.name, ref.selector(), spec)


def budget_manifest(deployment: Deployment, ref: ServiceRef) -> Manifest:
    """A PodDisruptionBudget, so that draining nodes takes one replica at a time."""
    selector = ref.selector(ref.track_of(deployment.name))
    # Replicas that are not ready do not protect anything: they may be evicted.
    spec = {
        "maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow", "selector": {"matchLabels": selector},
    }  # fmt: skip
    return _manifest("policy/v1", "PodDisruptionBudget", deployment.name, selector, spec)


def weights_text(weights: tuple[WeightedTarget, ...]) -> str:
    """Weights as text, such as model-primary=90,model-canary=10."""
    return ",".join(f"{target.deploymentName}={target.weight}" for target in weights)


def parse_weights(text: str) -> tuple[WeightedTarget, ...]:
    """The weights of a Service's annotation; none if it is not valid."""
    try:
        pairs = [part.split("=") for part in text.split(",") if part]
        return tuple(WeightedTarget(name, int(weight)) for name, weight in pairs)
    except ValueError:
        return ()


def whole_seconds(duration: int | str) -> int:
    """A duration in seconds, rounded up: probes take no fractions, and 68 years at most."""
    return min(-(-nanoseconds(duration) // 10**9), INT32_MAX)


def rounding_notes(health: HealthCheckSpec) -> list[str]:
    """What a user should know about durations that were rounded up."""
    return [
        f"healthCheck.{name} {value}{'' if isinstance(value, str) else 'ns'} is rounded up to {whole_seconds(value)}s"
        for name, value in (("interval", health.interval), ("timeout", health.timeout))
        if nanoseconds(value) % 10**9
    ]


def _pod_spec(deployment: Deployment, ref: ServiceRef, options: ServingOptions) -> Manifest:
    spec: Manifest = {
        **restricted_pod(options.pull_secrets),
        "terminationGracePeriodSeconds": TERMINATION_GRACE,
        "volumes": [scratch_volume()],
        "containers": [_container(deployment, ref, options)],
    }
    if (demand := GpuDemand.of(deployment.gpuVendor, deployment.resources.gpuMemory)) is not None:
        spec["affinity"] = {"nodeAffinity": demand.affinity(options.gpu)}
        # By convention, the taint that keeps other Pods off GPU nodes has the name of their resource.
        spec["tolerations"] = [
            {"key": device, "operator": "Exists", "effect": "NoSchedule"} for device in demand.devices(options.gpu)
        ]
    return spec


def _container(deployment: Deployment, ref: ServiceRef, options: ServingOptions) -> Manifest:
    env = {PORT_VARIABLE: str(deployment.port), MODEL_VARIABLE: deployment.modelRef, **SCRATCH_ENVIRONMENT}
    if deployment.gpuVendor is not None:
        env[BACKEND_VARIABLE] = HARDWARE[deployment.gpuVendor].backend
    own: Manifest = {}
    ready_path = deployment.healthCheck.path
    if options.runs_vmafx(deployment.image):
        env |= _scoring_server_environment(ref, options)
        # A server that ends says why in its log: a model that it does not know, or a backend without an engine.
        own = {"command": list(SCORING_SERVER), "terminationMessagePolicy": "FallbackToLogsOnError"}
        if ready_path == DEFAULT_HEALTH_PATH:
            ready_path = READY_PATH  # the default says that the process is alive, with or without its model
    return {
        "name": CONTAINER,
        "image": options.image_of(deployment.image),
        **own,
        "env": env_entries(env),
        "ports": [{"name": PORT_NAME, "containerPort": deployment.port, "protocol": "TCP"}],
        "resources": _resources(deployment, options.gpu),
        "volumeMounts": [scratch_mount()],
        "lifecycle": {"preStop": {"sleep": {"seconds": DRAIN_SECONDS}}},
        **_probes(deployment.healthCheck, ready_path),
        **restricted_container(),
    }


def _scoring_server_environment(ref: ServiceRef, options: ServingOptions) -> dict[str, str]:
    """Settings of `vmafx serve`, which refuses requests for names that are not its own."""
    env = {GRPC_VARIABLE: "0"}  # the Service has no port for gRPC, whose default could be the port of the service
    return env | ({GATEWAY_HOST_VARIABLE: ref.host(options.domain)} if options.domain else {})


def _resources(deployment: Deployment, gpu: GpuOptions) -> Manifest:
    """Requests equal limits."""
    wanted: ResourceSpec = deployment.resources
    amounts = {name: str(value) for name, value in (("cpu", wanted.cpu), ("memory", wanted.memory)) if value}
    if (device := gpu.resource(deployment.gpuVendor)) is not None:
        amounts[device] = "1"
    return {"limits": amounts, "requests": amounts} if amounts else {}


def _probes(health: HealthCheckSpec, ready_path: str) -> Manifest:
    """Readiness, liveness and startup probes: alike but for the path of the first and the time that the last has."""
    alive, ready = (
        {
            "httpGet": {"path": path, "port": PORT_NAME, "scheme": "HTTP"},
            "periodSeconds": whole_seconds(health.interval),
            "timeoutSeconds": whole_seconds(health.timeout),
        }
        for path in (health.path, ready_path)
    )
    tries = max(STARTUP_SECONDS // whole_seconds(health.interval), 3)
    return {"readinessProbe": ready, "livenessProbe": alive, "startupProbe": {**alive, "failureThreshold": tries}}


def _manifest(api_version: str, kind: str, name: str, selector: dict[str, str], spec: Manifest) -> Manifest:
    own = {label: selector[label] for label in (SERVICE_LABEL, TRACK_LABEL) if label in selector}
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name, "labels": labels(own)},
        "spec": spec,
    }
