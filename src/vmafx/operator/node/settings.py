"""How nodes are judged: the settings of the operator that are this kind's."""

import msgspec

from vmafx.operator.node.probes import DEFAULT_ADDRESS


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True):
    controller_address: str = DEFAULT_ADDRESS
