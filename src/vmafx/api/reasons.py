"""Why a condition has its status: each kind declares the reasons that are written, beside what writes them."""

from typing import Literal

from vmafx.api.meta import Model


class Reason(Model):
    """A condition has this status for this reason."""

    condition: str
    status: Literal["True", "False"]
    reason: str
    text: str
