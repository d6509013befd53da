"""Settings of the operator for jobs."""

from typing import Annotated

from vmafx.api.hardware import HARDWARE
from vmafx.operator.job.external import poller
from vmafx.operator.job.pod import PodSettings
from vmafx.settings import Setting, Settings


class JobSettings(Settings):
    """External controllers and worker Pods."""

    # fmt: off
    external_controller: Annotated[str, Setting(
        "gRPC address of the external controller that runs jobs with a controllerJobID of its own; {namespace} stands "
        "for the job's namespace.",
        default=poller.DEFAULT_ADDRESS, variable="VMAFX_CONTROLLER_GRPC_ADDR", parse=poller.parse_address,
    )]
    worker_image: Annotated[str, Setting(
        "Image of worker Pods, unless their VmafxNode has spec.image.",
        default="vmafx:latest", variable="VMAFX_WORKER_IMAGE",
    )]
    intel_device: Annotated[str, Setting(
        "Resource name of an Intel GPU; gpu.intel.com/xe for the xe driver.",
        default=HARDWARE["intel"].resource or "", variable="VMAFX_INTEL_DEVICE",
    )]
    # fmt: on

    def pod(self) -> PodSettings:
        return PodSettings(self.worker_image, self.intel_device)
