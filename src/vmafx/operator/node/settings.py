"""How the operator judges nodes."""

from typing import Annotated

from vmafx.operator.node.probes import DEFAULT_ADDRESS
from vmafx.settings import Setting, Settings


class NodeSettings(Settings):
    """Those of the operator's settings that are about nodes."""

    # fmt: off
    controller_address: Annotated[str, Setting(
        "Where the controller of a namespace answers /healthz; {namespace} is filled in.",
        default=DEFAULT_ADDRESS, variable="VMAFX_CONTROLLER_HTTP_ADDR",
    )]
    # fmt: on
