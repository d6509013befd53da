"""The events that a new status of a training causes. Pure.

They follow from the status that the API server has: after a restart of the operator, none is emitted again.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from vmafx.api.training import ModelCheckpoint, TrainingView, needs_attention
from vmafx.operator.training.decide import TrainingDecision
from vmafx.runtime.conditions import NewCondition, find_condition

BY_REASON = frozenset({"Ready", "Published"})  # conditions whose events have their reason; others have their type


class TrainingEvent(NamedTuple):
    """An event about a training."""

    type: Literal["Normal", "Warning"]
    reason: str
    note: str


def events_of(training: TrainingView, decision: TrainingDecision) -> list[TrainingEvent]:
    """The events of the change from the status that `training` has to the one that was decided."""
    found = [event for new in decision.conditions if (event := _condition_event(training, new)) is not None]
    return [*_checkpoints(training, decision), *_data_events(training, decision), *found]


def _condition_event(training: TrainingView, new: NewCondition) -> TrainingEvent | None:
    old = find_condition(training.status.conditions, new.type)
    if old is not None and (old.status, old.reason) == (new.status, new.reason):
        return None
    if (new.type, new.status) == ("Ready", "True"):
        return TrainingEvent("Normal", new.reason, new.message)
    if not needs_attention(new.type, new.status, new.reason):
        return None
    return TrainingEvent("Warning", new.reason if new.type in BY_REASON else new.type, new.message)


def _checkpoints(training: TrainingView, decision: TrainingDecision) -> Iterator[TrainingEvent]:
    """One for every version that the status does not have yet, without those of an earlier training of the name."""
    known = max((one.number for one in training.status.checkpoints), default=decision.inherited)
    for one in decision.fields.get("checkpoints", ()):
        if one.number > known:
            yield TrainingEvent("Normal", "Checkpoint", _checkpoint_note(one))


def _checkpoint_note(checkpoint: ModelCheckpoint) -> str:
    quality = (("loss", checkpoint.loss), ("Pearson", checkpoint.pearson), ("Spearman", checkpoint.spearman))
    measured = "".join(f", {name} {value:.4g}" for name, value in quality if value is not None)
    return f"version {checkpoint.number}, {checkpoint.digest}, after {checkpoint.samples:,} samples{measured}"


def _data_events(training: TrainingView, decision: TrainingDecision) -> Iterator[TrainingEvent]:
    known = {one.name for one in training.status.excludedNodes}
    for node in decision.fields.get("excludedNodes", ()):
        if node.name not in known:
            yield TrainingEvent("Warning", "NodeExcluded", f"samples of node {node.name} are refused: {node.message}")
    damaged = decision.fields.get("damagedRecords", 0)
    if damaged > training.status.damagedRecords:
        more = damaged - training.status.damagedRecords
        note = f"skipped {more:,} damaged records or checkpoints on the volume, {damaged:,} so far"
        yield TrainingEvent("Warning", "DamagedData", note)
