"""The settings of `vmafx trainer`."""

from pathlib import Path
from typing import Annotated

import msgspec

from vmafx.http.address import ListenAddress
from vmafx.logs import LEVELS, LogFormat, LogLevel
from vmafx.settings import Setting, Settings, one_of
from vmafx.training.config import CONFIG_VARIABLE, FOLDER_VARIABLE, KEY_VARIABLE, LISTEN_VARIABLE, TrainingConfig

PROGRAM = "vmafx trainer"
ABOUT = """Train a model online on the scores of a fleet.

The operator starts a trainer for each VmafxModelTraining. Each setting is a flag, an environment variable, or both; the
flag takes precedence. Serves /status, /metrics, /healthz and /readyz, and receives samples from the controller."""


def _config(text: str) -> TrainingConfig:
    if not text:
        raise ValueError("required; the operator sets it from the spec of a VmafxModelTraining")
    try:
        return msgspec.json.decode(text, type=TrainingConfig)
    except msgspec.DecodeError as error:
        raise ValueError(f"it is not valid ({error}); the trainer may be older than the operator") from error


class TrainerSettings(Settings):
    """The flags and environment variables of `vmafx trainer`."""

    # fmt: off
    config: Annotated[TrainingConfig, Setting(
        "What to train and how, as JSON.", variable=CONFIG_VARIABLE, parse=_config,
    )]
    folder: Annotated[Path, Setting(
        "Folder for samples and checkpoints, used by this trainer only.", default="/var/lib/vmafx",
        flag="--state-dir", variable=FOLDER_VARIABLE, parse=Path, metavar="FOLDER",
    )]
    address: Annotated[ListenAddress | None, Setting(
        "Address to serve on; 0 to disable.", default=":9091",
        flag="--address", variable=LISTEN_VARIABLE, parse=ListenAddress.parse, metavar="ADDRESS",
    )]
    key: Annotated[str, Setting(
        "Key that verifies the senders of samples; without it, no samples are accepted.",
        variable=KEY_VARIABLE,
    )]
    log_level: Annotated[LogLevel, Setting(
        "Minimum level to log: debug, info, warn or error.", default="info",
        flag="--log-level", variable="VMAFX_LOG_LEVEL", parse=one_of(*LEVELS), metavar="LEVEL",
    )]
    log_format: Annotated[LogFormat, Setting(
        "Log format: json or console.", default="json",
        flag="--log-format", variable="VMAFX_TRAINER_LOG_FORMAT", parse=one_of("json", "console"), metavar="FORMAT",
    )]
    # fmt: on
