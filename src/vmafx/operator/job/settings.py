"""How the operator runs jobs."""

from typing import Annotated

from vmafx.api.hardware import HARDWARE
from vmafx.operator.job import foreign_jobs
from vmafx.operator.job.pod import PodSettings
from vmafx.settings import Setting, Settings


class JobSettings(Settings):
    """Those of the operator's settings that are about jobs."""

    # fmt: off
    controllers: Annotated[str, Setting(
        "Where another controller is asked about the jobs it has, by gRPC; {namespace} is filled in.",
        default=foreign_jobs.DEFAULT_ADDRESS, variable="VMAFX_CONTROLLER_GRPC_ADDR", parse=foreign_jobs.parse_address,
    )]
    worker_image: Annotated[str, Setting(
        "The image that jobs run in, where their VmafxNode names none.",
        default="vmafx:latest", variable="VMAFX_WORKER_IMAGE",
    )]
    intel_device: Annotated[str, Setting(
        "What the cluster calls an Intel GPU; gpu.intel.com/xe for the newer driver.",
        default=HARDWARE["intel"].resource or "", variable="VMAFX_INTEL_DEVICE",
    )]
    # fmt: on

    def pod(self) -> PodSettings:
        return PodSettings(self.worker_image, self.intel_device)
