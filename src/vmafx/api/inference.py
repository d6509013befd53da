"""ZerfooInferenceService: models served over HTTP, with canaries."""

from typing import Annotated, ClassVar

from msgspec import Meta

from vmafx.api.fields import (
    Count,
    DurationOrNanoseconds,
    Generation,
    Image,
    Message,
    PositiveQuantityOrNone,
    Share,
    SmallCount,
    Url,
    doc,
    pattern,
    schema,
)
from vmafx.api.hardware import Vendor
from vmafx.api.meta import AGE, ApiModel, Column, Condition, Conditions, CustomObject, MetaView, Names, Rule, Scale
from vmafx.api.training import short_name

Replicas = Annotated[int, Meta(ge=0, le=1000), schema(format="int32")]
Correlation = Annotated[float, Meta(ge=-1, le=1)]
Percent = Annotated[int, Meta(ge=0, le=100), schema(format="int32")]
ModelRef = Annotated[
    str,
    pattern(
        r"^[A-Za-z0-9][^\x00-\x20\x7f]*\Z",
        "must be a model's name or reference without spaces, such as llama3-8b-q4 or registry.example.com/vmaf:3",
        max_length=512,
    ),
]


class ResourceSpec(ApiModel):
    """What each replica asks for, and may use at most."""

    cpu: Annotated[PositiveQuantityOrNone | None, doc("CPUs, such as 4 or 500m.")] = None
    memory: Annotated[PositiveQuantityOrNone | None, doc("Memory, such as 16Gi.")] = None
    gpuMemory: Annotated[PositiveQuantityOrNone | None, doc("Memory of the GPU, such as 24Gi.")] = None


class HealthCheckSpec(ApiModel):
    """How a replica is found to be alive and ready."""

    path: Annotated[
        str, pattern(r"^/[^\x00-\x20\x7f]*\Z", "must be a path that starts with /, such as /healthz", max_length=1024),
        doc("HTTP path to ask."),
    ] = "/healthz"  # fmt: skip
    interval: Annotated[DurationOrNanoseconds, doc("Time between two checks: 10s, or integer nanoseconds.")] = "10s"
    timeout: Annotated[DurationOrNanoseconds, doc("Time to wait for an answer: 2s, or integer nanoseconds.")] = "2s"


class CanaryStep(ApiModel):
    """One step of a gradual hand-over."""

    weight: Annotated[Percent, doc("Percent of the traffic at this step.")]
    pause: Annotated[DurationOrNanoseconds, doc("How long to stay there, such as 10m.")]


class CanaryGates(ApiModel):
    """What the canary must hold to go on; too few requests to judge are not a failure."""

    minRequests: Annotated[Count, doc("Requests to see before judging.")] = 100
    maxErrorRate: Annotated[Share | None, doc("Share of failed requests it may reach.")] = None
    maxLatencyP99: Annotated[DurationOrNanoseconds | None, doc("Latency that 99 of 100 requests keep.")] = None
    minCorrelation: Annotated[Correlation | None, doc("Correlation with the primary's scores that it must reach.")] = (
        None
    )


class CanarySpec(ApiModel):
    """A second model that gets a part of the traffic."""

    modelRef: Annotated[ModelRef, doc("The canary's model.")]
    weight: Annotated[Percent, doc("Percent of the traffic it gets; with steps, after the last of them.")] = 0
    steps: Annotated[tuple[CanaryStep, ...], Meta(max_length=16), doc("Weights to go through, in order.")] = ()
    gates: Annotated[CanaryGates | None, doc("What it must hold to go on.")] = None

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            check="!has(self.steps) || (self.steps.map(s, s.weight).isSorted() && "
            "self.steps.all(a, self.steps.exists_one(b, b.weight == a.weight)))",
            message="the weights of steps must rise from one to the next, such as 5, 25, 50",
        ),
        Rule(
            check="!has(self.steps) || self.steps.all(s, s.weight <= self.weight)",
            message="steps lead up to weight: none may have a greater one, so raise weight or lower the step",
        ),
    )


class ZerfooInferenceServiceSpec(ApiModel):
    """Which model is served, by how many replicas, with what."""

    modelRef: Annotated[ModelRef, doc("The model to serve, such as llama3-8b-q4.")]
    replicas: Annotated[int, Meta(ge=1, le=1000), schema(format="int32"), doc("How many replicas serve it.")] = 1
    minReplicas: Annotated[Replicas, doc("Fewest replicas when autoscaled; 0 means no autoscaling.")] = 0
    maxReplicas: Annotated[Replicas, doc("Most replicas when autoscaled; nothing while minReplicas is 0.")] = 0
    resources: Annotated[ResourceSpec | None, doc("What each replica asks for, and may use at most.")] = None
    gpuVendor: Annotated[Vendor | None, doc("Whose GPU each replica needs, or cpu.")] = None
    port: Annotated[int, Meta(ge=1, le=65535), schema(format="int32"), doc("Port that replicas listen on.")] = 8080
    canary: Annotated[CanarySpec | None, doc("A second model that gets a part of the traffic.")] = None
    healthCheck: Annotated[HealthCheckSpec, doc("How a replica is found alive and ready.")] = HealthCheckSpec()
    image: Annotated[Image | None, doc("Serving image, if not the usual one.")] = None

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            check="self.minReplicas == 0 || self.minReplicas <= self.maxReplicas",
            message="maxReplicas must be at least minReplicas; or set minReplicas to 0 for no autoscaling",
        ),
        Rule(
            check="!has(self.canary) || self.canary.modelRef != self.modelRef",
            message="canary.modelRef must differ from modelRef: a canary tries another model",
        ),
    )


class ZerfooInferenceServiceStatus(ApiModel):
    """How the service is doing."""

    ready: Annotated[bool, doc("Whether all replicas wanted serve the model wanted.")] = False
    replicas: Annotated[SmallCount, doc("Running replicas, the canary's included.")] = 0
    message: Annotated[Message | None, doc("What happened, for people.")] = None
    url: Annotated[Url | None, doc("Where it answers within the cluster.")] = None
    canaryReplicas: Annotated[SmallCount, doc("Running replicas of the canary.")] = 0
    canaryWeight: Annotated[Percent | None, doc("Percent of the traffic the canary really gets.")] = None
    selector: Annotated[Url | None, doc("Label selector of the replicas, for autoscalers.")] = None
    observedGeneration: Annotated[Generation, doc("The metadata.generation this status speaks of.")] = 0
    conditions: Annotated[Conditions, doc("Ready, and why not.")] = ()


class ZerfooInferenceService(CustomObject, kw_only=True, tag_field="kind", tag="ZerfooInferenceService"):
    """A ZerfooInferenceService serves a model over HTTP, and a second one as its canary."""

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
    rules: ClassVar[tuple[Rule, ...]] = (short_name("service"),)

    spec: ZerfooInferenceServiceSpec
    status: ZerfooInferenceServiceStatus = ZerfooInferenceServiceStatus()


class InferenceStatusView(ApiModel):
    """The part of the status that decisions are made from."""

    ready: bool = False
    replicas: int = 0
    canaryReplicas: int = 0
    canaryWeight: int | None = None
    observedGeneration: int = 0
    conditions: tuple[Condition, ...] = ()


class InferenceView(ApiModel):
    """A ZerfooInferenceService as caches keep it."""

    metadata: MetaView
    spec: ZerfooInferenceServiceSpec
    status: InferenceStatusView = InferenceStatusView()
