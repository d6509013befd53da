"""VmafxModelTraining: a model that keeps learning from what the fleet scores."""

from datetime import datetime
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from vmafx.api.fields import (
    Count,
    Duration,
    Generation,
    Identifier,
    Labels,
    Message,
    ModelName,
    ObjectName,
    Positive,
    PositiveQuantity,
    Time,
    doc,
    pattern,
    schema,
)
from vmafx.api.meta import AGE, ApiModel, Column, Condition, Conditions, CustomObject, MetaView, Names, Rule

TrainingPhase = Literal["Initializing", "Running", "Paused", "Failed"]
NAME_MAX = 40  # its children's names end in -trainer and a hash

Repository = Annotated[
    str,
    pattern(
        r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+\Z",
        "must be a repository in an OCI registry, without a tag, such as registry.example.com/models/vmaf",
        max_length=512,
    ),
]


def short_name(kind: str) -> Rule:
    """Children are Services and Deployments: names must be DNS-1035 labels and leave room for a suffix."""
    return Rule(
        check=f"size(self.metadata.name) <= {NAME_MAX} && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        message=f"metadata.name of a {kind} must start with a letter, have only lower-case letters, digits and '-', "
        f"and at most {NAME_MAX} characters, since Services are named after it",
    )


class DataSource(ApiModel):
    """Which of the fleet's scores are learned from."""

    nodeSelector: Annotated[Labels, doc("Labels of the VmafxNodes whose scores count; all where empty.")] = {}


class Checkpoint(ApiModel):
    """When a new version of the model is written."""

    interval: Annotated[Duration, doc("At most this often.")] = "10m"
    minSamples: Annotated[Positive, doc("Only after this many new samples.")] = 1000


class Storage(ApiModel):
    """The volume that keeps samples and checkpoints."""

    size: Annotated[PositiveQuantity, doc("How much to ask for.")] = "1Gi"
    className: Annotated[ObjectName | None, doc("StorageClass; the cluster's default where it is not said.")] = None


class VmafxModelTrainingSpec(ApiModel):
    """What to learn from, how, and where the model goes."""

    baseModel: Annotated[ModelName, doc("The model to start from: a built-in one's name, or a URI.")]
    dataSource: Annotated[DataSource | None, doc("Which of the fleet's scores are learned from.")] = None
    algorithm: Annotated[
        Literal["online-sgd-ema"], doc("How to learn: stochastic gradient descent with an averaged model.")
    ] = "online-sgd-ema"
    learningRate: Annotated[float, Meta(gt=0, le=1), doc("Step of the gradient descent.")] = 0.001
    emaDecay: Annotated[float, Meta(ge=0, lt=1), doc("Weight of the past in the averaged model.")] = 0.999
    batchSize: Annotated[int, Meta(ge=1, le=65536), schema(format="int32"), doc("Samples per step.")] = 32
    checkpoint: Annotated[Checkpoint, doc("When a new version of the model is written.")] = Checkpoint()
    outputRegistry: Annotated[Repository | None, doc("OCI repository that versions are pushed to.")] = None
    paused: Annotated[bool, doc("Stop learning until this is false again.")] = False
    storage: Annotated[Storage, doc("The volume that keeps samples and checkpoints.")] = Storage()
    retainPolicy: Annotated[
        Literal["Retain", "Delete"], doc("What becomes of the volume when the training is deleted.")
    ] = "Retain"


class VmafxModelTrainingStatus(ApiModel):
    """How far the model has come."""

    phase: Annotated[TrainingPhase | None, doc("Initializing, Running, Paused or Failed.")] = None
    currentSamples: Annotated[Count, doc("Samples learned from so far.")] = 0
    lastCheckpoint: Annotated[Time | None, doc("When the last version was written.")] = None
    modelVersion: Annotated[Identifier | None, doc("The last version, by digest.")] = None
    loss: Annotated[float | None, doc("Running loss.")] = None
    message: Annotated[Message | None, doc("What happened, for people.")] = None
    observedGeneration: Annotated[Generation, doc("The metadata.generation this status speaks of.")] = 0
    conditions: Annotated[Conditions, doc("Ready, Stale and Diverged.")] = ()


class VmafxModelTraining(CustomObject, kw_only=True, tag_field="kind", tag="VmafxModelTraining"):
    """A VmafxModelTraining keeps a model learning from what the fleet scores."""

    names: ClassVar[Names] = Names(
        plural="vmafxmodeltrainings",
        short="vmtrain",
        columns=(
            Column(name="Phase", path=".status.phase"),
            Column(name="Samples", path=".status.currentSamples", type="integer"),
            Column(name="ModelVersion", path=".status.modelVersion"),
            AGE,
        ),
    )
    rules: ClassVar[tuple[Rule, ...]] = (short_name("training"),)

    spec: VmafxModelTrainingSpec
    status: VmafxModelTrainingStatus = VmafxModelTrainingStatus()


class TrainingStatusView(ApiModel):
    """The part of the status that decisions are made from."""

    phase: TrainingPhase | None = None
    currentSamples: int = 0
    lastCheckpoint: datetime | None = None
    modelVersion: str | None = None
    observedGeneration: int = 0
    conditions: tuple[Condition, ...] = ()


class TrainingView(ApiModel):
    """A VmafxModelTraining as caches keep it."""

    metadata: MetaView
    spec: VmafxModelTrainingSpec
    status: TrainingStatusView = TrainingStatusView()
