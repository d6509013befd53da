"""What failures of the Kubernetes API mean for callers, whichever door they came by."""

from vmafx.http.errors import Refused
from vmafx.kube.errors import Forbidden, KubeError, ServerError, TooManyRequests, Unauthorized, Unreachable


def no_namespace(name: str) -> Refused:
    return Refused("NOT_FOUND", f"the namespace {name!r} does not exist; create it, or name another one")


def refusal(error: KubeError) -> Refused:
    """The caller is to know that it was not their fault."""
    if isinstance(error, Unreachable | ServerError | TooManyRequests):
        return Refused("UNAVAILABLE", f"the Kubernetes API does not answer: {error}")
    if isinstance(error, Forbidden | Unauthorized):
        return Refused("INTERNAL", f"the controller lacks a right in the cluster: {error}")
    return Refused("INTERNAL", str(error))
