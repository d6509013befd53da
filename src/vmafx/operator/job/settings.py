"""Settings of the operator for jobs."""

from typing import Annotated

from vmafx.operator.job.external import poller
from vmafx.operator.settings import WORKER_IMAGE, ControllerAddress
from vmafx.settings import Setting


class JobSettings(ControllerAddress):
    """External controllers and worker Pods."""

    # fmt: off
    external_controller: Annotated[str, Setting(
        "gRPC address of the external controller that runs jobs with a controllerJobID of its own; {namespace} stands "
        "for the job's namespace.",
        default=poller.DEFAULT_ADDRESS, variable="VMAFX_CONTROLLER_GRPC_ADDR", parse=poller.parse_address,
    )]
    worker_image: Annotated[str, WORKER_IMAGE]
    # fmt: on
