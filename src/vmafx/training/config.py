"""What to train and how: the spec of a VmafxModelTraining, as its trainer is given it in an environment variable."""

import msgspec

# Variables of a trainer.
CONFIG_VARIABLE = "VMAFX_TRAINING"
FOLDER_VARIABLE, LISTEN_VARIABLE, KEY_VARIABLE = "VMAFX_TRAINER_DIR", "VMAFX_TRAINER_LISTEN", "VMAFX_SAMPLES_KEY"


class TrainingConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The fields have the meaning of those in VmafxModelTrainingSpec; durations in seconds, sizes in bytes."""

    name: str
    namespace: str
    uid: str = ""  # of the VmafxModelTraining: another one may have had its name, and left its volume
    base_model: str
    learning_rate: float = 0.001
    ema_decay: float = 0.999
    batch_size: int = 32
    checkpoint_interval: float = 600.0
    min_samples: int = 1000
    output_registry: str = ""
    paused: bool = False
    storage: int = 1 << 30
