"""How jobs are run: the settings of the operator that are this kind's."""

import msgspec

from vmafx.api.hardware import HARDWARE
from vmafx.operator.job.following import DEFAULT_ADDRESS
from vmafx.operator.job.pod import PodSettings


class JobSettings(msgspec.Struct, frozen=True, kw_only=True):
    worker_image: str = "vmafx:latest"
    intel_device: str = HARDWARE["intel"].resource or ""
    controllers: str = DEFAULT_ADDRESS

    def pod(self) -> PodSettings:
        return PodSettings(self.worker_image, self.intel_device)
