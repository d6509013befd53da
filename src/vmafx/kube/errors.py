"""Errors of the Kubernetes client.

    KubeError
    ├── ConfigError             the kubeconfig or service account is missing, invalid or expired
    ├── Unreachable             no response: connection refused, reset or timed out
    │   └── Untrusted           the server's certificate is not trusted
    ├── UnreadableResponse      the response does not match the expected type
    ├── UnknownKind             the server does not serve this kind
    └── ApiError                the server rejected the request
        ├── BadRequest          400  malformed, or has unknown fields
        ├── Unauthorized        401  the credentials are missing or not accepted
        ├── Forbidden           403  the user lacks permission
        ├── NotFound            404  no such object or resource
        ├── Conflict            409  the object was modified, or a precondition failed
        │   └── AlreadyExists   409  an object with this name exists
        ├── Expired             410  the resourceVersion or continue token is too old: list again
        ├── Invalid             422  the object violates its schema
        ├── TooManyRequests     429  still throttled after all retries
        └── ServerError         5xx

transport.py translates the OSError and TimeoutError of a connection into Unreachable; no caller sees them.
"""

from typing import Any

import msgspec


class KubeError(Exception):
    """A call to the Kubernetes API failed. The message is meant for users and contains no secrets."""

    tries = 1  # how many times the request was sent


class ConfigError(KubeError):
    """The kubeconfig or service account is missing, invalid or expired."""


class Unreachable(KubeError):
    """No response. With `sent`, the server may have carried out the request nevertheless."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class Untrusted(Unreachable):
    """The server's certificate is not trusted; never retried."""

    def __init__(self, message: str) -> None:
        super().__init__(message, sent=False)


class UnreadableResponse(KubeError):
    """The response does not match the expected type."""


class UnknownKind(KubeError):
    """The server does not serve this kind."""


class Cause(msgspec.Struct, frozen=True):
    """metav1.StatusCause: one invalid field."""

    reason: str = ""
    message: str = ""
    field: str = ""


class Details(msgspec.Struct, frozen=True):
    """metav1.StatusDetails."""

    name: str = ""
    kind: str = ""
    causes: tuple[Cause, ...] = ()
    retryAfterSeconds: int = 0


class Status(msgspec.Struct, frozen=True):
    """metav1.Status: the body of an error response."""

    message: str = ""
    reason: str = ""
    code: int = 0
    details: Details = Details()
    metadata: dict[str, Any] = {}


class ApiError(KubeError):
    """The server rejected the request; `status` is its response body, or its message."""

    def __init__(self, status: Status | str, retry_after: float | None = None) -> None:
        if isinstance(status, str):
            status = Status(message=status)
        super().__init__(status.message or f"HTTP {status.code} {status.reason}".strip())
        self.status = status
        self.retry_after = retry_after


class BadRequest(ApiError):
    """400: the request is malformed, or has unknown fields."""


class Unauthorized(ApiError):
    """401: the credentials are missing or not accepted."""


class Forbidden(ApiError):
    """403: the user lacks permission."""


class NotFound(ApiError):
    """404: no such object or resource."""


class Conflict(ApiError):
    """409: the object was modified, or a precondition failed."""


class AlreadyExists(Conflict):
    """409: an object with this name exists."""


class Expired(ApiError):
    """410: the resourceVersion or continue token is too old; list again."""


class Invalid(ApiError):
    """422: the object violates its schema."""


class TooManyRequests(ApiError):
    """429: still throttled after all retries."""


class ServerError(ApiError):
    """5xx: the server failed."""


_BY_CODE: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
    422: Invalid,
    429: TooManyRequests,
}
_decode_status = msgspec.json.Decoder(Status).decode


def error_for(status: Status, retry_after: float | None = None) -> ApiError:
    """The error type for a Status."""
    if status.code == 409 and status.reason == "AlreadyExists":
        return AlreadyExists(status, retry_after)
    return _BY_CODE.get(status.code, ServerError if status.code >= 500 else ApiError)(status, retry_after)


def error_from_response(code: int, body: bytes, retry_after: float | None) -> ApiError:
    """The error type for an HTTP response; its body may come from a proxy and not be a Status."""
    try:
        status = _decode_status(body)
    except msgspec.DecodeError:
        status = Status(message=body[:200].decode(errors="replace").strip())
    return error_for(msgspec.structs.replace(status, code=code), retry_after)
