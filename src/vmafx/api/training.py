"""VmafxModelTraining: trains a model online on the scores of VmafxNodes."""

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

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
from vmafx.api.meta import (
    AGE,
    SERVICE_NAME_RULE,
    ApiModel,
    Column,
    Conditions,
    CustomObject,
    LocalSecretRef,
    MetaView,
    Names,
    Rule,
)
from vmafx.api.views import unchecked

MAX_CHECKPOINTS = 50  # in the status
MAX_EXCLUDED = 100
TrainingPhase = Literal["Initializing", "Running", "Paused", "Failed"]
# Conditions that need attention with this status, except with one of these reasons.
_ATTENTION = {"Ready": "False", "Stale": "True", "Diverged": "True", "Published": "False", "Degraded": "True"}
_EXPECTED_REASONS = frozenset({"Starting", "Paused", "NoCheckpoint", "NoRegistry", "Pushing"})

Repository = Annotated[
    str,
    pattern(
        r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+\Z",
        "must be a repository in an OCI registry, without a tag, such as registry.example.com/models/vmaf",
        max_length=512,
    ),
]


class DataSource(ApiModel):
    """Selects the scores to train on."""

    nodeSelector: Annotated[Labels, doc("Labels of the VmafxNodes whose scores are used. If unset, all.")] = {}


class Checkpoint(ApiModel):
    """Conditions for writing a new version of the model."""

    interval: Annotated[Duration, doc("Minimum time between two versions. Defaults to 10m.")] = "10m"
    minSamples: Annotated[Positive, doc("Minimum number of new samples in a version. Defaults to 1000.")] = 1000


class Storage(ApiModel):
    """Volume for samples and checkpoints."""

    size: Annotated[PositiveQuantity, doc("Requested size of the volume. Defaults to 1Gi.")] = "1Gi"
    className: Annotated[ObjectName | None, doc("Name of the StorageClass. If unset, the cluster's default.")] = None


class VmafxModelTrainingSpec(ApiModel):
    """Desired state of a VmafxModelTraining: the data, the algorithm, and where the model is stored."""

    baseModel: Annotated[ModelName, doc("Model to start from: the name of a built-in model, or a URI.")]
    dataSource: Annotated[
        DataSource | None, doc("Selects the scores to train on. If unset, those of all VmafxNodes.")
    ] = None
    algorithm: Annotated[
        Literal["online-sgd-ema"],
        doc("Training algorithm. online-sgd-ema: online stochastic gradient descent with an averaged model."),
    ] = "online-sgd-ema"
    learningRate: Annotated[float, Meta(gt=0, le=1), doc("Learning rate. Defaults to 0.001.")] = 0.001
    emaDecay: Annotated[
        float, Meta(ge=0, lt=1), doc("Decay of the exponential moving average of the weights. Defaults to 0.999.")
    ] = 0.999
    batchSize: Annotated[
        int, Meta(ge=1, le=65536), schema(format="int32"), doc("Number of samples per step. Defaults to 32.")
    ] = 32
    checkpoint: Annotated[Checkpoint, doc("When to write a new version of the model.")] = Checkpoint()
    outputRegistry: Annotated[
        Repository | None, doc("OCI repository to push versions to. If unset, versions are not pushed.")
    ] = None
    credentialsSecretRef: Annotated[
        LocalSecretRef | None,
        doc("Image pull secret (kubernetes.io/dockerconfigjson) with the credentials to push with."),
    ] = None
    paused: Annotated[bool, doc("If true, training is paused. Defaults to false.")] = False
    storage: Annotated[Storage, doc("Volume for samples and checkpoints.")] = Storage()
    retainPolicy: Annotated[
        Literal["Retain", "Delete"],
        doc("Whether the volume is kept or deleted with the VmafxModelTraining. Defaults to Retain."),
    ] = "Retain"


class ModelCheckpoint(ApiModel):
    """A version of the model, and how well it predicts scores that it was not trained on."""

    number: Annotated[Count, doc("Number of the version, from 1.")]
    digest: Annotated[Identifier, doc("Digest of its OCI manifest.")]
    time: Annotated[Time, doc("Time when it was written.")]
    samples: Annotated[Count, doc("Number of samples used until then.")] = 0
    loss: Annotated[float | None, doc("Mean squared error on the held-out samples.")] = None
    pearson: Annotated[float | None, doc("Pearson correlation on the held-out samples.")] = None
    spearman: Annotated[float | None, doc("Spearman correlation on the held-out samples.")] = None
    pushed: Annotated[bool, doc("Whether it is in the output registry.")] = False


class ExcludedNode(ApiModel):
    """A VmafxNode whose samples are refused."""

    name: Annotated[Identifier, doc("Name of the VmafxNode.")]
    message: Annotated[Message, doc("Why its samples are refused, in plain text.")]


class VmafxModelTrainingStatus(ApiModel):
    """Observed state of a VmafxModelTraining."""

    phase: Annotated[TrainingPhase | None, doc("Phase of the training: Initializing, Running, Paused or Failed.")] = (
        None
    )
    currentSamples: Annotated[Count, doc("Number of samples used so far.")] = 0
    lastCheckpoint: Annotated[Time | None, doc("Time when the latest version was written.")] = None
    modelVersion: Annotated[Identifier | None, doc("Digest of the latest version.")] = None
    loss: Annotated[float | None, doc("Mean squared error on the held-out samples.")] = None
    pearson: Annotated[float | None, doc("Pearson correlation on the held-out samples.")] = None
    spearman: Annotated[float | None, doc("Spearman correlation on the held-out samples.")] = None
    learningRate: Annotated[float | None, doc("Learning rate in force, which is lowered after a divergence.")] = None
    lastSample: Annotated[Time | None, doc("Time when the latest samples came.")] = None
    checkpoints: Annotated[
        tuple[ModelCheckpoint, ...], Meta(max_length=MAX_CHECKPOINTS), doc("The latest versions, the oldest first.")
    ] = ()
    excludedNodes: Annotated[
        tuple[ExcludedNode, ...], Meta(max_length=MAX_EXCLUDED), doc("VmafxNodes whose samples are refused.")
    ] = ()
    damagedRecords: Annotated[
        Count, doc("Number of stored records and versions that were skipped because they were damaged.")
    ] = 0
    message: Annotated[Message | None, doc("Details of the current state, in plain text.")] = None
    observedGeneration: Annotated[Generation, doc("Most recent metadata.generation that the status is based on.")] = 0
    conditions: Annotated[
        Conditions, doc("Conditions of the training: Ready, Stale, Diverged, Published and Degraded.")
    ] = ()


class VmafxModelTraining(CustomObject, kw_only=True, tag_field="kind", tag="VmafxModelTraining"):
    """A VmafxModelTraining trains a model online on the scores of VmafxNodes."""

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
    name_rule: ClassVar[Rule | None] = SERVICE_NAME_RULE

    spec: VmafxModelTrainingSpec
    status: VmafxModelTrainingStatus = VmafxModelTrainingStatus()


if TYPE_CHECKING:
    TrainingStatusView = VmafxModelTrainingStatus
else:
    TrainingStatusView = unchecked(VmafxModelTrainingStatus, "TrainingStatusView")


class TrainingView(ApiModel):
    """A VmafxModelTraining as caches store it."""

    metadata: MetaView
    spec: VmafxModelTrainingSpec
    status: TrainingStatusView = TrainingStatusView()


def needs_attention(condition: str, status: str, reason: str) -> bool:
    """Whether someone should look at a training with this condition."""
    return _ATTENTION.get(condition) == status and reason not in _EXPECTED_REASONS
