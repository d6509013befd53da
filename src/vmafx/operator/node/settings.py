"""Settings of the operator for nodes."""

from vmafx.operator.settings import ControllerAddress


class NodeSettings(ControllerAddress):
    """The controllers that are probed."""
