"""ZerfooInferenceService: serves a model over HTTP, with an optional canary."""

from itertools import pairwise
from typing import Annotated, ClassVar

from msgspec import Meta

from vmafx.api.fields import (
    Count,
    DurationOrNanoseconds,
    Generation,
    Image,
    Message,
    PositiveQuantityOrNone,
    Ratio,
    SmallCount,
    Url,
    doc,
    pattern,
    schema,
)
from vmafx.api.hardware import Vendor
from vmafx.api.meta import (
    AGE,
    SERVICE_NAME_RULE,
    ApiModel,
    Column,
    Condition,
    Conditions,
    CustomObject,
    MetaView,
    Names,
    Rule,
    Scale,
)
from vmafx.api.units import nanoseconds

# The environment of replicas, whatever their image; and what else vmafx's own image reads, the scoring server.
PORT_VARIABLE, MODEL_VARIABLE = "PORT", "MODEL_REF"
GATEWAY_HOST_VARIABLE, GRPC_VARIABLE = "VMAFX_SERVE_GATEWAY_HOST", "VMAFX_SERVE_GRPC_LISTEN"
DEFAULT_HEALTH_PATH = "/healthz"

Replicas = Annotated[int, Meta(ge=0, le=1000), schema(format="int32")]
Correlation = Annotated[float, Meta(ge=-1, le=1)]
Percent = Annotated[int, Meta(ge=0, le=100), schema(format="int32")]
ModelRef = Annotated[
    str,
    pattern(
        r"^[A-Za-z0-9][^\x00-\x20\x7f]*\Z",
        "must be a model name or reference without spaces, such as vmaf_v0.6.1 or registry.example.com/vmaf:3",
        max_length=512,
    ),
]


class ResourceSpec(ApiModel):
    """Resource requests and limits of each replica."""

    cpu: Annotated[PositiveQuantityOrNone | None, doc("CPUs, such as 4 or 500m. If unset, no limit.")] = None
    memory: Annotated[PositiveQuantityOrNone | None, doc("Memory, such as 16Gi. If unset, no limit.")] = None
    gpuMemory: Annotated[
        PositiveQuantityOrNone | None,
        doc(
            "GPU memory that a Kubernetes node must have, by its label, to run a replica, such as 22Gi. If unset, any."
        ),
    ] = None


def _as_duration(field: str) -> str:
    """A CEL expression for a field that is a duration or a number of nanoseconds."""
    return f"(type({field}) == int ? duration(string({field}) + 'ns') : duration({field}))"


class HealthCheckSpec(ApiModel):
    """Readiness, liveness and startup probes of each replica."""

    path: Annotated[
        str, pattern(r"^/[^\x00-\x20\x7f]*\Z", "must be a path that starts with /, such as /healthz", max_length=1024),
        doc(
            "HTTP path of the probes. Defaults to /healthz. With the default, replicas of the scoring server are ready "
            "when /readyz answers."
        ),
    ] = DEFAULT_HEALTH_PATH  # fmt: skip
    interval: Annotated[
        DurationOrNanoseconds,
        doc("Time between probes, as a duration or integer nanoseconds; rounded up to whole seconds. Defaults to 10s."),
    ] = "10s"
    timeout: Annotated[
        DurationOrNanoseconds,
        doc("Timeout of a probe, as a duration or integer nanoseconds; rounded up to whole seconds. Defaults to 2s."),
    ] = "2s"

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            # The server also checks the default, before it has the defaults of the fields.
            check="!has(self.timeout) || !has(self.interval) || "
            f"{_as_duration('self.timeout')} <= {_as_duration('self.interval')}",
            message="timeout must be less than or equal to interval",
            holds=lambda health: nanoseconds(health.timeout) <= nanoseconds(health.interval),
        ),
    )


class CanaryStep(ApiModel):
    """One step of a gradual rollout."""

    weight: Annotated[Percent, doc("Percentage of requests that the canary receives during this step.")]
    pause: Annotated[DurationOrNanoseconds, doc("Duration of the step, such as 10m.")]


class CanaryGates(ApiModel):
    """Conditions that the canary must meet for the rollout to continue."""

    minRequests: Annotated[
        Count, doc("Number of requests before the gates are evaluated. Until then, no gate fails. Defaults to 100.")
    ] = 100
    maxErrorRate: Annotated[Ratio | None, doc("Maximum ratio of failed requests. If unset, not checked.")] = None
    maxLatencyP99: Annotated[
        DurationOrNanoseconds | None, doc("Maximum 99th percentile of the request latency. If unset, not checked.")
    ] = None
    minCorrelation: Annotated[
        Correlation | None, doc("Minimum correlation with the scores of the primary model. If unset, not checked.")
    ] = None


class CanarySpec(ApiModel):
    """Canary: a second model that receives a part of the requests."""

    modelRef: Annotated[ModelRef, doc("Model of the canary.")]
    weight: Annotated[
        Percent, doc("Percentage of requests that the canary receives. With 0, it runs without receiving any.")
    ] = 0
    steps: Annotated[
        tuple[CanaryStep, ...],
        Meta(max_length=16),
        doc("Steps of the rollout, in order. Not supported yet: the canary receives weight at once."),
    ] = ()
    gates: Annotated[
        CanaryGates | None,
        doc("Conditions that the canary must meet for the rollout to continue. Not supported yet: none is checked."),
    ] = None

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            check="!has(self.steps) || (self.steps.map(s, s.weight).isSorted() && "
            "self.steps.all(a, self.steps.exists_one(b, b.weight == a.weight)))",
            message="steps must have strictly increasing weights, such as 5, 25, 50",
            holds=lambda canary: all(a.weight < b.weight for a, b in pairwise(canary.steps)),
        ),
        Rule(
            check="!has(self.steps) || self.steps.all(s, s.weight <= self.weight)",
            message="steps must have weights less than or equal to the weight of the canary",
            holds=lambda canary: all(step.weight <= canary.weight for step in canary.steps),
        ),
    )


class ZerfooInferenceServiceSpec(ApiModel):
    """Desired state of a ZerfooInferenceService: the model, its replicas and their resources."""

    modelRef: Annotated[
        ModelRef,
        doc("Model to serve, such as vmaf_v0.6.1. The image decides what it can be: it reads this text as MODEL_REF."),
    ]
    replicas: Annotated[
        int,
        Meta(ge=1, le=1000),
        schema(format="int32"),
        doc("Number of replicas. With autoscaling, the number to start with. Defaults to 1."),
    ] = 1
    minReplicas: Annotated[
        Replicas, doc("Minimum number of replicas for autoscaling. Defaults to 0, which disables autoscaling.")
    ] = 0
    maxReplicas: Annotated[
        Replicas, doc("Maximum number of replicas for autoscaling. Ignored if minReplicas is 0.")
    ] = 0
    resources: Annotated[ResourceSpec | None, doc("Resource requests and limits of each replica.")] = None
    gpuVendor: Annotated[
        Vendor | None,
        doc("Vendor of the GPU that each replica requests, or cpu for none. If unset, none is requested."),
    ] = None
    port: Annotated[
        int, Meta(ge=1, le=65535), schema(format="int32"), doc("Port that the replicas listen on. Defaults to 8080.")
    ] = 8080
    canary: Annotated[
        CanarySpec | None, doc("Second model that receives a part of the requests. If unset, there is no canary.")
    ] = None
    healthCheck: Annotated[HealthCheckSpec, doc("Readiness, liveness and startup probes of each replica.")] = (
        HealthCheckSpec()
    )
    image: Annotated[
        Image | None,
        doc(
            "Image of the replicas. If unset, the operator's VMAFX_SERVING_IMAGE; if that is unset, the scoring server "
            "in vmafx's own image, that of VMAFX_WORKER_IMAGE."
        ),
    ] = None

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            check="self.minReplicas == 0 || self.minReplicas <= self.maxReplicas",
            message="maxReplicas must be greater than or equal to minReplicas, unless minReplicas is 0",
            holds=lambda spec: spec.minReplicas == 0 or spec.minReplicas <= spec.maxReplicas,
        ),
        Rule(
            check="!has(self.canary) || self.canary.modelRef != self.modelRef",
            message="canary.modelRef must be different from modelRef",
            holds=lambda spec: spec.canary is None or spec.canary.modelRef != spec.modelRef,
        ),
        Rule(
            check="!has(self.gpuVendor) || !(self.gpuVendor in ['cpu', 'apple']) || !has(self.resources) || "
            "!has(self.resources.gpuMemory) || "
            "(type(self.resources.gpuMemory) == string && self.resources.gpuMemory == '')",
            message="resources.gpuMemory must be unset if gpuVendor is cpu or apple: no node label states it for them",
            holds=lambda spec: (
                spec.gpuVendor not in {"cpu", "apple"} or not (spec.resources or ResourceSpec()).gpuMemory
            ),
        ),
    )

    def validate(self) -> None:
        """Raise InvalidSpec if the API server would reject this spec."""
        from vmafx.api import validation  # noqa: PLC0415 - unused by the operator, whose specs the server validated

        validation.validate(self, "spec")


class ZerfooInferenceServiceStatus(ApiModel):
    """Observed state of a ZerfooInferenceService."""

    ready: Annotated[bool, doc("Whether all desired replicas serve the desired model.")] = False
    replicas: Annotated[SmallCount, doc("Number of running replicas, including those of the canary.")] = 0
    message: Annotated[Message | None, doc("Details of the current state, in plain text.")] = None
    url: Annotated[Url | None, doc("URL of the service: at the gateway if there is one, else inside the cluster.")] = (
        None
    )
    canaryReplicas: Annotated[SmallCount, doc("Number of running replicas of the canary.")] = 0
    canaryWeight: Annotated[
        Percent | None,
        doc("Percentage of requests that the canary actually receives. Unset without a canary."),
    ] = None
    selector: Annotated[Url | None, doc("Label selector of the replicas, for the scale subresource.")] = None
    observedGeneration: Annotated[Generation, doc("Most recent metadata.generation that the status is based on.")] = 0
    conditions: Annotated[
        Conditions,
        doc("Conditions of the service: Ready, Available, Progressing, Degraded, Schedulable, CanaryHonoured."),
    ] = ()


class ZerfooInferenceService(CustomObject, kw_only=True, tag_field="kind", tag="ZerfooInferenceService"):
    """A ZerfooInferenceService serves a model over HTTP, with an optional canary."""

    names: ClassVar[Names] = Names(
        plural="zerfooinferenceservices",
        short="zis",
        columns=(
            Column(name="Ready", path=".status.ready", type="boolean"),
            Column(name="Replicas", path=".status.replicas", type="integer"),
            Column(name="Canary", path=".status.canaryWeight", type="integer"),
            Column(name="URL", path=".status.url"),
            AGE,
        ),
        scale=Scale(spec_replicas=".spec.replicas", status_replicas=".status.replicas", selector=".status.selector"),
    )
    name_rule: ClassVar[Rule | None] = SERVICE_NAME_RULE

    spec: ZerfooInferenceServiceSpec
    status: ZerfooInferenceServiceStatus = ZerfooInferenceServiceStatus()


class InferenceStatusView(ApiModel):
    """The status, without validation."""

    ready: bool = False
    replicas: int = 0
    message: str | None = None
    url: str | None = None
    canaryReplicas: int = 0
    canaryWeight: int | None = None
    selector: str | None = None
    observedGeneration: int = 0
    conditions: tuple[Condition, ...] = ()


class InferenceView(ApiModel):
    """A ZerfooInferenceService as caches store it."""

    metadata: MetaView
    spec: ZerfooInferenceServiceSpec
    status: InferenceStatusView = InferenceStatusView()
