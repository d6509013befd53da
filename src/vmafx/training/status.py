"""What a trainer reports about its training, at /status."""

from datetime import datetime

import msgspec

from vmafx.api.training import TrainingPhase

STATUS_PORT = 9091


class Quality(msgspec.Struct, frozen=True):
    """How well a model predicts the held-out window: mean squared error of scores from 0 to 100, and correlations."""

    loss: float | None = None
    pearson: float | None = None
    spearman: float | None = None


class CheckpointInfo(msgspec.Struct, frozen=True):
    """A version of the model."""

    number: int  # from 1, increasing
    digest: str  # of its OCI manifest: sha256:...
    time: datetime
    samples: int  # used for training until then
    quality: Quality = Quality()
    pushed: bool = False  # to the output registry


class TrainerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a training."""

    uid: str = ""  # of the VmafxModelTraining
    phase: TrainingPhase
    message: str = ""
    degraded: str = ""  # why samples or versions cannot be stored
    samples: int = 0  # used for training
    pending: int = 0  # stored, but not used yet
    held_out: int = 0  # in the window that quality is measured on
    quality: Quality = Quality()
    base_error: float | None = None  # root mean square error of the distilled base model, in points of score
    learning_rate: float = 0.0  # in force: lowered after each divergence
    last_sample: datetime | None = None  # when the last samples came
    stale: bool = False  # no new samples for a while
    diverged: str = ""  # why, from a divergence until the next checkpoint
    rollbacks: int = 0
    checkpoints: tuple[CheckpointInfo, ...] = ()  # the latest last, at most MAX_CHECKPOINTS
    inherited: int = 0  # number of the latest checkpoint that an earlier training of the same name has left
    publish_error: str = ""  # why the latest checkpoint is not in the registry
    excluded_nodes: dict[str, str] = {}  # VmafxNodes whose samples are refused, and why
    damaged: int = 0  # stored records and checkpoints that were found damaged so far, and skipped
