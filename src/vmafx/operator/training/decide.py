"""Decides the status of a VmafxModelTraining from its children and what its trainer reports. Pure.

A trainer that cannot be reached changes neither the numbers in the status nor the conditions about learning: they keep
what was last known. After a change of the spec, Ready is False until the new trainer has answered.
"""

from typing import Any, Literal, NamedTuple

import msgspec

from vmafx.api.training import (
    MAX_CHECKPOINTS,
    MAX_EXCLUDED,
    ExcludedNode,
    ModelCheckpoint,
    TrainingPhase,
    TrainingView,
    VmafxModelTrainingStatus,
)
from vmafx.runtime.conditions import NewCondition
from vmafx.text import one_line
from vmafx.training.status import TrainerStatus

QUICK_INTERVAL, QUICK_PERIOD = 2.0, 300.0  # seconds between reads of a status that is about to change, and for how long
STARTING = "the trainer is starting"
MIN_FAILURES = 2  # reads in a row that fail before a trainer counts as unreachable
REPORTED = (  # fields of the status that the trainer reports
    "currentSamples", "loss", "pearson", "spearman", "learningRate", "damagedRecords", "lastSample", "lastCheckpoint",
    "modelVersion", "checkpoints", "excludedNodes",
)  # fmt: skip
ProblemReason = Literal["NoImage", "NameTaken", "Refused"]


class TrainingProblem(NamedTuple):
    """Why a child is not as it should be."""

    reason: ProblemReason
    message: str


class LiveTrainer(msgspec.Struct, frozen=True):
    """The Deployment of a trainer, as observed."""

    generation: int = 0
    ready: int = 0  # Pods
    rolled_out: bool = False  # the Pod of this generation has been ready
    problem: str = ""  # why it makes no progress


class TrainerPoll(msgspec.Struct, frozen=True):
    """The status that a trainer last reported, and the reads that failed since."""

    status: TrainerStatus | None = None
    failures: int = 0  # in a row
    error: str = ""  # of the last read, if it failed
    trainer: LiveTrainer | None = None  # as it was before `status` was read

    @property
    def reachable(self) -> bool:
        return self.status is not None and self.failures < MIN_FAILURES


class ObservedTraining(msgspec.Struct, frozen=True, kw_only=True):
    """All that the status depends on."""

    training: TrainingView
    trainer: LiveTrainer | None = None
    poll: TrainerPoll = TrainerPoll()
    problems: tuple[TrainingProblem, ...] = ()
    notes: tuple[str, ...] = ()  # what the user should know although nothing is wrong
    waiting: str = ""  # what the children wait for
    deleting: bool = False  # the volume: that is what they wait for

    @property
    def answered(self) -> bool:
        """Whether the last answer is from the trainer that is wanted: after a change, the one before ends first."""
        now, then = self.trainer, self.poll.trainer
        return (
            now is not None
            and now.rolled_out
            and then is not None
            and then.rolled_out
            and then.generation == now.generation
        )


class TrainingDecision(msgspec.Struct, frozen=True):
    """The fields of the status, without those that keep their value; and the conditions."""

    fields: dict[str, Any]
    conditions: tuple[NewCondition, ...]
    inherited: int = 0  # number of the latest checkpoint that an earlier training of the same name has left


def decide(state: ObservedTraining) -> TrainingDecision:
    phase, ready = _readiness(state)
    fields: dict[str, Any] = {
        "phase": phase,
        "message": ready.message or None,
        "observedGeneration": state.training.metadata.generation,
    }
    reported = state.poll.status if state.poll.reachable else None
    if reported is None:
        return TrainingDecision(fields, (ready,))
    numbers = reported_fields(reported)
    fields |= {name: getattr(numbers, name) for name in REPORTED}
    conditions = (
        ready,
        _stale(reported),
        _diverged(reported),
        _published(state.training, reported),
        _degraded(reported, state.waiting if state.deleting else ""),
    )
    return TrainingDecision(fields, conditions, reported.inherited)


def poll_interval(poll: TrainerPoll, quick_for: float, interval: float, *, changing: bool) -> float:
    """Seconds until the next read: soon while a change is expected, but not for ever."""
    starts = poll.status is None or poll.status.phase == "Initializing" or poll.failures > 0
    return QUICK_INTERVAL if (starts or changing) and quick_for < QUICK_PERIOD else interval


def is_changing(state: ObservedTraining) -> bool:
    """Whether the trainer is about to report something else: it is replaced, paused or resumed."""
    if not state.answered:
        return True
    status = state.poll.status
    return status is not None and (status.phase == "Paused") != state.training.spec.paused and status.phase != "Failed"


def reported_fields(status: TrainerStatus) -> VmafxModelTrainingStatus:
    """What a trainer reports, as fields of the status. Raises ValueError if the API server would refuse them."""
    checkpoints = tuple(
        ModelCheckpoint(
            number=one.number,
            digest=one.digest,
            time=one.time,
            samples=one.samples,
            loss=one.quality.loss,
            pearson=one.quality.pearson,
            spearman=one.quality.spearman,
            pushed=one.pushed,
        )
        for one in status.checkpoints[-MAX_CHECKPOINTS:]
    )
    excluded = sorted(status.excluded_nodes.items())[:MAX_EXCLUDED]
    latest = checkpoints[-1] if checkpoints else None
    fields = VmafxModelTrainingStatus(
        currentSamples=status.samples,
        loss=status.quality.loss,
        pearson=status.quality.pearson,
        spearman=status.quality.spearman,
        learningRate=status.learning_rate,
        damagedRecords=status.damaged,
        lastSample=status.last_sample,
        lastCheckpoint=latest.time if latest is not None else None,
        modelVersion=latest.digest if latest is not None else None,
        checkpoints=checkpoints,
        excludedNodes=tuple(ExcludedNode(name=name, message=one_line(why)) for name, why in excluded),
    )
    if [one.number for one in checkpoints] != sorted({one.number for one in checkpoints}):
        raise ValueError("the numbers of its checkpoints do not increase")
    return msgspec.convert(msgspec.to_builtins(fields), VmafxModelTrainingStatus)


def is_undecided(state: ObservedTraining) -> bool:
    """Whether the trainer has not been asked yet, so that the status that is known still holds."""
    asked = state.poll.status is not None or state.poll.failures >= MIN_FAILURES
    return not asked and not state.problems and state.trainer is not None and state.trainer.rolled_out


def _readiness(state: ObservedTraining) -> tuple[TrainingPhase, NewCondition]:
    phase, reason, message = _reported_state(state) if state.poll.reachable else _silent_state(state)
    if state.problems:
        reason, message = state.problems[0].reason, "; ".join(one.message for one in state.problems)
        if not state.poll.reachable and phase == "Initializing":
            phase = "Failed"
    message = "; ".join(filter(None, (message, state.waiting, *state.notes)))
    return phase, NewCondition("Ready", "True" if reason == "Training" else "False", reason, message)


def _reported_state(state: ObservedTraining) -> tuple[TrainingPhase, str, str]:
    """Phase, reason and message of a training whose trainer answers."""
    status = state.poll.status or TrainerStatus(phase="Initializing")
    message = one_line(status.message)
    match status.phase:
        case "Failed":
            return "Failed", "TrainerFailed", message or "the trainer failed"
        case "Initializing":
            return "Initializing", "Starting", message or STARTING
        case _ if not state.answered:
            problem = state.trainer.problem if state.trainer is not None else ""
            return status.phase, "RolloutStuck" if problem else "Starting", problem or STARTING
        case "Paused":
            return "Paused", "Paused", message or "training is paused; samples are stored"
    return "Running", "Training", message or "the trainer learns from the samples that arrive"


def _silent_state(state: ObservedTraining) -> tuple[TrainingPhase, str, str]:
    """The same of a training whose trainer does not answer: it keeps its phase, unless it cannot go on."""
    known, trainer = state.training.status.phase, state.trainer
    if trainer is not None and trainer.rolled_out:
        before: TrainingPhase = known or "Initializing"
        return before, "TrainerUnreachable", f"the trainer does not answer: {state.poll.error}"
    if trainer is not None and trainer.problem:
        return "Failed", "RolloutStuck", trainer.problem
    phase: TrainingPhase = known if known in {"Running", "Paused"} else "Initializing"
    return phase, "Starting", "" if state.waiting else STARTING


def _stale(status: TrainerStatus) -> NewCondition:
    since = f" since {status.last_sample:%Y-%m-%dT%H:%M:%SZ}" if status.last_sample is not None else ""
    if status.stale:
        return NewCondition("Stale", "True", "NoNewSamples", f"no new samples{since}")
    if status.last_sample is None:
        return NewCondition("Stale", "False", "NoSamplesYet", "no samples received yet")
    return NewCondition("Stale", "False", "SamplesArriving", "new samples arrive")


def _diverged(status: TrainerStatus) -> NewCondition:
    if status.diverged:
        return NewCondition("Diverged", "True", "RolledBack", one_line(status.diverged))
    return NewCondition("Diverged", "False", "AsExpected", "the loss does not rise")


def _published(training: TrainingView, status: TrainerStatus) -> NewCondition:
    registry, latest = training.spec.outputRegistry, status.checkpoints[-1] if status.checkpoints else None
    if registry is None:
        message = "spec.outputRegistry is not set: versions of the model stay on the volume"
        return NewCondition("Published", "False", "NoRegistry", message)
    if status.publish_error:
        return NewCondition("Published", "False", "PushFailed", one_line(status.publish_error))
    if latest is None:
        return NewCondition("Published", "False", "NoCheckpoint", "there is no version of the model yet")
    if not latest.pushed:
        return NewCondition("Published", "False", "Pushing", f"{registry}@{latest.digest} is being pushed")
    return NewCondition("Published", "True", "Pushed", f"{registry}@{latest.digest}")


def _degraded(status: TrainerStatus, volume: str) -> NewCondition:
    problem = "; ".join(filter(None, (one_line(status.degraded), volume)))
    if problem:
        return NewCondition("Degraded", "True", "StorageProblem", problem)
    return NewCondition("Degraded", "False", "AsExpected", "samples and versions can be stored")
