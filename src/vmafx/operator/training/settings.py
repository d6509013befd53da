"""Settings of the operator for trainings."""

from typing import Annotated

from vmafx.operator.settings import WORKER_IMAGE
from vmafx.settings import Setting, Settings, at_least
from vmafx.training.address import TRAINER_ADDRESS


class TrainingSettings(Settings):
    """Trainers: their image, and how the operator reaches them."""

    # fmt: off
    worker_image: Annotated[str, WORKER_IMAGE]
    trainer_image: Annotated[str, Setting(
        "Image of trainers (default: that of VMAFX_WORKER_IMAGE).", variable="VMAFX_TRAINER_IMAGE",
    )]
    trainer_address: Annotated[str, TRAINER_ADDRESS]
    poll_interval: Annotated[int, Setting(
        "Seconds between two reads of a trainer's status; while it starts, it is read every 2 seconds.", default="60",
        variable="VMAFX_TRAINER_POLL_SECONDS", parse=at_least(1),
    )]
    # fmt: on

    @property
    def image(self) -> str:
        return self.trainer_image or self.worker_image
