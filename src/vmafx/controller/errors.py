"""What failures of the Kubernetes API mean for callers, whichever door they came by."""

from vmafx.http.errors import CallRefused
from vmafx.kube.errors import ApiError, Forbidden, KubeError, ServerError, TooManyRequests, Unauthorized, Unreachable


def no_namespace(name: str) -> CallRefused:
    return CallRefused("NOT_FOUND", f"the namespace {name!r} does not exist; create it, or name another one")


def invalid(error: ApiError) -> CallRefused:
    """An object that the API server's schema rejects: which fields, and why. Its name may be one that nobody chose."""
    causes = [one for one in error.status.details.causes if one.field not in {"", "<nil>"}]
    return CallRefused("INVALID_ARGUMENT", "; ".join(f"{one.field}: {one.message}" for one in causes) or str(error))


def refusal_for(error: KubeError) -> CallRefused:
    """The caller is to know that it was not their fault."""
    if isinstance(error, Unreachable | ServerError | TooManyRequests):
        return CallRefused("UNAVAILABLE", f"the Kubernetes API is unavailable, try again later: {error}")
    if isinstance(error, Forbidden | Unauthorized):
        return CallRefused(
            "INTERNAL", f"the controller lacks a permission in the cluster; ask its administrator: {error}"
        )
    return CallRefused("INTERNAL", str(error))
