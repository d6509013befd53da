"""One training, and one version of its model, as a row of a listing."""

from datetime import datetime

import msgspec

from vmafx.api.meta import Condition
from vmafx.api.training import ExcludedNode, ModelCheckpoint, TrainingView, needs_attention
from vmafx.fleet.rows import ObjectRow


class TrainingRow(ObjectRow, frozen=True, kw_only=True):
    """`warnings` are conditions that need attention, as REASON: MESSAGE."""

    phase: str | None
    samples: int = 0
    samplesPerMinute: float | None = None
    loss: float | None = None
    pearson: float | None = None
    spearman: float | None = None
    learningRate: float | None = None
    lastSample: datetime | None = None
    lastCheckpoint: datetime | None = None
    versions: int = 0
    modelVersion: str | None = None
    model: str | None = None  # to score with
    message: str | None = None
    warnings: tuple[str, ...] = ()
    excludedNodes: tuple[ExcludedNode, ...] = ()


class ModelRow(ObjectRow, frozen=True, kw_only=True):
    """A version of a training's model; `name` is the training. `model` is None if it is not in a registry."""

    version: int
    digest: str
    created: datetime
    samples: int = 0
    loss: float | None = None
    pearson: float | None = None
    spearman: float | None = None
    model: str | None = None


def training_row(training: TrainingView) -> TrainingRow:
    meta, status = training.metadata, training.status
    latest = status.checkpoints[-1] if status.checkpoints else None
    return TrainingRow(
        namespace=meta.namespace,
        name=meta.name,
        phase=status.phase,
        samples=status.currentSamples,
        samplesPerMinute=samples_per_minute(training),
        loss=status.loss,
        pearson=status.pearson,
        spearman=status.spearman,
        learningRate=status.learningRate,
        lastSample=status.lastSample,
        lastCheckpoint=status.lastCheckpoint,
        versions=latest.number if latest is not None else 0,
        modelVersion=status.modelVersion,
        model=model_reference(training, latest) if latest is not None else None,
        message=status.message,
        warnings=tuple(_warning(one) for one in status.conditions if needs_attention(one.type, one.status, one.reason)),
        excludedNodes=status.excludedNodes,
    )


def model_rows(training: TrainingView) -> list[ModelRow]:
    """The versions that the status lists, the latest first."""
    meta = training.metadata
    return [
        ModelRow(
            namespace=meta.namespace,
            name=meta.name,
            version=one.number,
            digest=one.digest,
            created=one.time,
            samples=one.samples,
            loss=one.loss,
            pearson=one.pearson,
            spearman=one.spearman,
            model=model_reference(training, one),
        )
        for one in reversed(training.status.checkpoints)
    ]


def model_reference(training: TrainingView, checkpoint: ModelCheckpoint) -> str | None:
    """What `--model` and spec.model take for this version; None if it is not in a registry."""
    registry = training.spec.outputRegistry
    return f"oci://{registry}@{checkpoint.digest}" if registry is not None and checkpoint.pushed else None


def samples_per_minute(training: TrainingView) -> float | None:
    """From the latest two versions, or from the latest one until the latest sample; None if they do not tell."""
    status = training.status
    points = [(one.time, one.samples) for one in status.checkpoints[-2:]]
    if len(points) == 1 and status.lastSample is not None:
        points.append((status.lastSample, status.currentSamples))
    if len(points) < 2:
        return None
    (start, before), (end, after) = points
    minutes = (end - start).total_seconds() / 60
    return (after - before) / minutes if minutes > 0 and after >= before else None


def deleted_training(row: TrainingRow) -> TrainingRow:
    return msgspec.structs.replace(row, phase="Deleted", warnings=(), message=None)


def _warning(condition: Condition) -> str:
    name = "" if condition.type == "Ready" else f"{condition.type}, "
    return f"{name}{condition.reason}: {condition.message}"
