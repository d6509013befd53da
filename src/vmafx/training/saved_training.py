"""The state of a training that a snapshot has."""

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

import msgspec

from vmafx.training.config import TrainingConfig
from vmafx.training.distillation import StartingModel
from vmafx.training.exclusion import NodeExclusion
from vmafx.training.human_scores import HumanScores
from vmafx.training.learner import Learner
from vmafx.training.learner_state import InvalidState


class DamageCounter(msgspec.Struct):
    """Counts what was found damaged, each time once: records stay in the log and are found again, files are not."""

    total: int = 0
    known: set[int] = msgspec.field(default_factory=set)  # positions in the log at which damage was counted

    def add_records(self, found: Mapping[int, int]) -> None:
        """Count what is damaged in the log: positions, and the number of records at each."""
        self.total += sum(count for position, count in found.items() if position not in self.known)
        self.known = set(found)

    def add_files(self, count: int) -> None:
        self.total += count


class LearningProgress(msgspec.Struct, frozen=True):
    """What was learned from the records of the log up to a position."""

    position: int
    learner: bytes
    human_scores: bytes
    samples: int = 0


class SavedTraining(msgspec.Struct, kw_only=True):
    """Everything that a training continues with after a restart."""

    uid: str  # of the VmafxModelTraining
    inherited: int = 0  # number of the latest version that an earlier training has left on the volume
    base_model: str
    start: StartingModel
    progress: LearningProgress
    good: LearningProgress  # to return to after a divergence: at the last checkpoint, or at the start
    exclusion: bytes
    learning_rate: float  # as configured
    checkpoint_samples: int = 0  # at the last checkpoint
    rollbacks: int = 0  # since the last checkpoint
    parent: str | None = None  # digest of the last version
    started: datetime
    last_sample: datetime | None = None
    diverged: str = ""
    damage: DamageCounter = msgspec.field(default_factory=DamageCounter)
    version: Literal[1] = 1


def new_training(config: TrainingConfig, start: StartingModel, position: int, now: datetime) -> SavedTraining:
    """A training that starts with the records behind a position."""
    progress = LearningProgress(position, Learner(start, config).state(), HumanScores().state())
    return SavedTraining(
        uid=config.uid, base_model=config.base_model, start=start, progress=progress, good=progress,
        exclusion=NodeExclusion().state(), learning_rate=config.learning_rate, started=now,
    )  # fmt: skip


def decode_saved(content: bytes, config: TrainingConfig) -> SavedTraining:
    """Raises InvalidState."""
    try:
        state = msgspec.msgpack.decode(content, type=SavedTraining)
        for progress in (state.progress, state.good):
            Learner.restore(progress.learner, config)
            HumanScores.restore(progress.human_scores)
        NodeExclusion.restore(state.exclusion)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidState(f"not the state of a training: {error}") from error
    return state
