"""Settings of the operator for trainings."""

import re
from typing import Annotated

from vmafx.operator.settings import PULL_SECRETS, WORKER_IMAGE
from vmafx.operator.training.manifests import TrainerOptions
from vmafx.settings import Setting, Settings, at_least
from vmafx.training.address import TRAINER_ADDRESS
from vmafx.training.config import CONFIG_VARIABLE, KEY_VARIABLE


def _environment(text: str) -> dict[str, str]:
    environment = {}
    for entry in filter(None, text.split(";")):
        name, equals, value = entry.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or name in {CONFIG_VARIABLE, KEY_VARIABLE}:
            raise ValueError(f"{entry!r} is not a variable of trainers: use NAME=VALUE, separated by semicolons")
        environment[name] = value
    return environment


class TrainingSettings(Settings):
    """Trainers: their image, and how the operator reaches them."""

    # fmt: off
    worker_image: Annotated[str, WORKER_IMAGE]
    pull_secrets: Annotated[tuple[str, ...], PULL_SECRETS]
    trainer_image: Annotated[str, Setting(
        "Image of trainers (default: that of VMAFX_WORKER_IMAGE).", variable="VMAFX_TRAINER_IMAGE",
    )]
    trainer_environment: Annotated[dict[str, str], Setting(
        "Environment variables of trainers, as NAME=VALUE separated by semicolons, such as "
        "VMAFX_INSECURE_REGISTRIES=registry:5000.",
        variable="VMAFX_TRAINER_ENV", parse=_environment,
    )]
    trainer_address: Annotated[str, TRAINER_ADDRESS]
    poll_interval: Annotated[int, Setting(
        "Seconds between two reads of a trainer's status; while it starts, it is read every 2 seconds.", default="60",
        variable="VMAFX_TRAINER_POLL_SECONDS", parse=at_least(1),
    )]
    # fmt: on

    @property
    def options(self) -> TrainerOptions:
        return TrainerOptions(self.trainer_image or self.worker_image, self.trainer_environment, self.pull_secrets)
