"""Why a call is refused: gRPC's words for it, and HTTP's by them."""

from typing import Literal

from vmafx.kube.errors import Forbidden, KubeError, ServerError, TooManyRequests, Unauthorized, Unreachable

Code = Literal[
    "UNAUTHENTICATED",
    "PERMISSION_DENIED",
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "FAILED_PRECONDITION",
    "ALREADY_EXISTS",
    "RESOURCE_EXHAUSTED",
    "UNAVAILABLE",
    "ABORTED",
    "INTERNAL",
]


MESSAGE_MOST = 1000  # characters; a longer one does not fit into what gRPC sends at the end of a call


class Refused(Exception):
    """The caller is told the code and the message, and nothing else. `caller` is who it is, where that is known."""

    def __init__(self, code: Code, message: str, *, caller: str = "") -> None:
        self.code: Code = code
        self.caller = caller
        self.message = message if len(message) <= MESSAGE_MOST else f"{message[: MESSAGE_MOST - 1]}…"
        super().__init__(self.message)


def refusal(error: KubeError) -> Refused:
    """What a failure of the Kubernetes API means for the caller, who is to know that it was not their fault."""
    if isinstance(error, Unreachable | ServerError | TooManyRequests):
        return Refused("UNAVAILABLE", f"the Kubernetes API does not answer: {error}")
    if isinstance(error, Forbidden | Unauthorized):
        return Refused("INTERNAL", f"the controller lacks a right in the cluster: {error}")
    return Refused("INTERNAL", str(error))
