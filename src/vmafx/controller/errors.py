"""Errors of the Kubernetes API as status errors for callers."""

from vmafx.http.errors import StatusError
from vmafx.kube.errors import ApiError, Forbidden, KubeError, ServerError, TooManyRequests, Unauthorized, Unreachable


def namespace_not_found(name: str) -> StatusError:
    return StatusError("NOT_FOUND", f"the namespace {name!r} does not exist; create it, or name another one")


def invalid_object(error: ApiError) -> StatusError:
    """List the fields that the API server rejects, without the object's name, which may be a generated one."""
    causes = [cause for cause in error.status.details.causes if cause.field not in {"", "<nil>"}]
    message = "; ".join(f"{cause.field}: {cause.message}" for cause in causes)
    return StatusError("INVALID_ARGUMENT", message or str(error))


def kube_status_error(error: KubeError) -> StatusError:
    """Translate a failure that the caller did not cause."""
    if isinstance(error, Unreachable | ServerError | TooManyRequests):
        return StatusError("UNAVAILABLE", f"the Kubernetes API is unavailable, try again later: {error}")
    if isinstance(error, Forbidden | Unauthorized):
        return StatusError(
            "INTERNAL", f"the controller lacks a permission in the cluster; ask its administrator: {error}"
        )
    return StatusError("INTERNAL", str(error))
