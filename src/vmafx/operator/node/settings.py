"""Settings of the operator for nodes."""

from typing import Annotated

from vmafx.operator.node.probes import DEFAULT_ADDRESS
from vmafx.settings import Setting, Settings


class NodeSettings(Settings):
    """The controllers that are probed."""

    # fmt: off
    controller_address: Annotated[str, Setting(
        "HTTP address of the controller to probe at /healthz; {namespace} stands for the node's namespace.",
        default=DEFAULT_ADDRESS, variable="VMAFX_CONTROLLER_HTTP_ADDR",
    )]
    # fmt: on
