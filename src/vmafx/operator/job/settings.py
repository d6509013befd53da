"""Settings of the operator for jobs."""

from typing import Annotated

from vmafx.api.units import quantity
from vmafx.operator.job.external import poller
from vmafx.operator.settings import PULL_SECRETS, WORKER_IMAGE, ControllerAddress
from vmafx.settings import Setting


def _parse_quantity(text: str) -> str:
    """A quantity; empty for 0, which stands for none."""
    return text if quantity(text) else ""


class JobSettings(ControllerAddress):
    """External controllers and worker Pods."""

    # fmt: off
    external_controller: Annotated[str, Setting(
        "gRPC address of the external controller that runs jobs with a controllerJobID of its own; {namespace} stands "
        "for the job's namespace.",
        default=poller.DEFAULT_ADDRESS, variable="VMAFX_CONTROLLER_GRPC_ADDR", parse=poller.parse_address,
    )]
    worker_image: Annotated[str, WORKER_IMAGE]
    pull_secrets: Annotated[tuple[str, ...], PULL_SECRETS]
    # Enough for 1080p with the four threads of a job by default, and small, so that as many Pods as a node's capacity
    # fit. There is no limit by default: memory grows with threads and with the size of the picture (docs/sizing.md).
    worker_cpu_request: Annotated[str, Setting(
        "CPU that each worker Pod requests, unless podTemplate.resources of its VmafxNode does; 0 for none.",
        default="500m", variable="VMAFX_WORKER_CPU_REQUEST", parse=_parse_quantity,
    )]
    worker_memory_request: Annotated[str, Setting(
        "Memory that each worker Pod requests, unless podTemplate.resources of its VmafxNode does; 0 for none.",
        default="1Gi", variable="VMAFX_WORKER_MEMORY_REQUEST", parse=_parse_quantity,
    )]
    worker_memory_limit: Annotated[str, Setting(
        "Memory limit of each worker Pod, unless podTemplate.resources of its VmafxNode has one; 0 for none.",
        default="0", variable="VMAFX_WORKER_MEMORY_LIMIT", parse=_parse_quantity,
    )]
    # Two clips of the size that VMAFX_MEDIA_MAX_BYTES allows, and room for logs and a report.
    worker_scratch_limit: Annotated[str, Setting(
        "Maximum size of the scratch volume of each worker Pod, unless podTemplate of its VmafxNode sets one or limits "
        "ephemeral-storage; 0 for none.",
        default="130Gi", variable="VMAFX_WORKER_SCRATCH_LIMIT", parse=_parse_quantity,
    )]
    # fmt: on
