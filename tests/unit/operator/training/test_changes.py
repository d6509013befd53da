"""The events of a new status: one for each thing that is new, none for what was known."""

from datetime import timedelta
from typing import Any

from tests.unit.operator.training.training_views import NOW, view
from vmafx.api.training import TrainingView
from vmafx.operator.training.changes import TrainingEvent, events_of
from vmafx.operator.training.decide import LiveTrainer, ObservedTraining, TrainerPoll, decide
from vmafx.training.status import CheckpointInfo, Quality, TrainerStatus

SINCE = {"lastTransitionTime": NOW, "message": ""}
READY = {"type": "Ready", "status": "True", "reason": "Training", **SINCE}


def events(training: TrainingView, **status: Any) -> list[TrainingEvent]:
    trainer = LiveTrainer(1, 1, rolled_out=True)
    poll = TrainerPoll(TrainerStatus(**{"phase": "Running", **status}), trainer=trainer)
    return events_of(training, decide(ObservedTraining(training=training, trainer=trainer, poll=poll)))


def known(**status: Any) -> TrainingView:
    return view({"phase": "Running", "observedGeneration": 1, "conditions": [READY], **status})


def checkpoint(number: int, **fields: Any) -> CheckpointInfo:
    return CheckpointInfo(number, f"sha256:{number}", fields.pop("time", NOW), 10 * number, **fields)


def test_a_training_that_becomes_ready() -> None:
    assert [(one.type, one.reason) for one in events(view())] == [("Normal", "Training")]
    assert events(known()) == []


def test_checkpoints_that_the_status_does_not_have() -> None:
    found = (checkpoint(1), checkpoint(2, quality=Quality(1.25, 0.5)), checkpoint(3))
    status = {"checkpoints": [{"number": 1, "digest": "sha256:1", "time": NOW}]}
    notes = [one.note for one in events(known(**status), checkpoints=found)]
    assert notes == [
        "version 2, sha256:2, after 20 samples, loss 1.25, Pearson 0.5",
        "version 3, sha256:3, after 30 samples",
    ]


def test_checkpoints_of_an_earlier_training_are_no_events() -> None:
    found = events(known(), inherited=1, checkpoints=(checkpoint(1), checkpoint(2)))
    assert [one.note for one in found] == ["version 2, sha256:2, after 20 samples"]


def test_the_clock_of_a_trainer_does_not_matter_for_events() -> None:
    behind = checkpoint(1, time=NOW - timedelta(hours=5))
    assert [one.reason for one in events(known(), checkpoints=(behind,))] == ["Checkpoint"]


def test_data_that_is_refused_or_damaged() -> None:
    status = {"excludedNodes": [{"name": "a", "message": "x"}], "damagedRecords": 2}
    found = events(known(**status), excluded_nodes={"a": "y", "b": "garbage"}, damaged=5)
    assert found == [
        TrainingEvent("Warning", "NodeExcluded", "samples of node b are refused: garbage"),
        TrainingEvent("Warning", "DamagedData", "skipped 3 damaged records or checkpoints on the volume, 5 so far"),
    ]
    assert events(known(damagedRecords=5), damaged=5) == []


def test_conditions_that_become_bad() -> None:
    found = events(known(), stale=True, diverged="NaN", degraded="disk full")
    assert {one.type for one in found} == {"Warning"}
    assert [one.reason for one in found] == ["Stale", "Diverged", "Degraded"]
    conditions = [
        READY,
        {"type": "Stale", "status": "True", "reason": "NoNewSamples", **SINCE},
        {"type": "Diverged", "status": "True", "reason": "RolledBack", **SINCE},
    ]
    assert events(known(conditions=conditions), stale=True, diverged="NaN") == []
    assert events(known(conditions=conditions)) == []


def test_a_failure_and_a_push_that_fails() -> None:
    assert [one.reason for one in events(known(), phase="Failed", message="m")] == ["TrainerFailed"]
    training = view({"observedGeneration": 1, "conditions": [READY]}, outputRegistry="registry.example.com/a")
    assert events(training, publish_error="refused") == [TrainingEvent("Warning", "PushFailed", "refused")]


def test_a_pause_is_no_event() -> None:
    assert events(known(), phase="Paused") == []
