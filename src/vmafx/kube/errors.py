"""What can go wrong between us and the API server.

    KubeError
    ├── ConfigError             a kubeconfig, or the in-cluster files, missing, broken or expired
    ├── Unreachable             no answer: refused, reset, or timed out
    │   └── Untrusted           the server's certificate is not one we trust
    ├── UnreadableAnswer        an answer that is not what the type says
    ├── UnknownKind             the server has no such kind
    └── ApiError                the server said no
        ├── BadRequest          400  malformed, or with unknown fields
        ├── Unauthorized        401  it does not know who we are
        ├── Forbidden           403  it knows, and we may not
        ├── NotFound            404
        ├── Conflict            409  somebody else wrote first
        │   └── AlreadyExists   409  the name is taken
        ├── Expired             410  the resourceVersion or continue token is too old: list again
        ├── Invalid             422  the object breaks a rule of its schema
        ├── TooManyRequests     429  still, after waiting as told
        └── ServerError         5xx

What goes wrong on the wire is translated in transport.py; nobody else catches it.
"""

from typing import Any

import msgspec


class KubeError(Exception):
    """Any failure of a call to the Kubernetes API; its text is fit for people."""

    tries = 1  # how often the call was made before this came of it


class ConfigError(KubeError):
    """A kubeconfig, or the in-cluster files, missing, broken or expired."""


class Unreachable(KubeError):
    """No answer. `sent` tells whether the request may have been carried out all the same."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class Untrusted(Unreachable):
    """The server's certificate is not one we trust; trying again does not help."""

    def __init__(self, message: str) -> None:
        super().__init__(message, sent=False)


class UnreadableAnswer(KubeError):
    """An answer that is not what the type says."""


class UnknownKind(KubeError):
    """The server has no such kind."""


class Cause(msgspec.Struct, frozen=True):
    """One thing that is wrong with an object."""

    reason: str = ""
    message: str = ""
    field: str = ""


class Details(msgspec.Struct, frozen=True):
    name: str = ""
    kind: str = ""
    causes: tuple[Cause, ...] = ()
    retryAfterSeconds: int = 0


class Status(msgspec.Struct, frozen=True):
    """metav1.Status: how the server says no."""

    message: str = ""
    reason: str = ""
    code: int = 0
    details: Details = Details()
    metadata: dict[str, Any] = {}


class ApiError(KubeError):
    """The server said no; `status` is what it said."""

    def __init__(self, status: Status, retry_after: float | None = None) -> None:
        super().__init__(status.message or f"HTTP {status.code} {status.reason}".strip())
        self.status = status
        self.retry_after = retry_after


class BadRequest(ApiError):
    """400: malformed, or with unknown fields."""


class Unauthorized(ApiError):
    """401: the server does not know who we are."""


class Forbidden(ApiError):
    """403: the server knows who we are, and we may not."""


class NotFound(ApiError):
    """404: no such object, or no such kind."""


class Conflict(ApiError):
    """409: somebody else wrote first."""


class AlreadyExists(Conflict):
    """409: the name is taken."""


class Expired(ApiError):
    """410: the resourceVersion or continue token is too old; list again."""


class Invalid(ApiError):
    """422: the object breaks a rule of its schema."""


class TooManyRequests(ApiError):
    """429: still, after waiting as told."""


class ServerError(ApiError):
    """5xx: the server itself is in trouble."""


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
    """The error that a Status stands for."""
    if status.code == 409 and status.reason == "AlreadyExists":
        return AlreadyExists(status, retry_after)
    return _BY_CODE.get(status.code, ServerError if status.code >= 500 else ApiError)(status, retry_after)


def error_from_answer(code: int, body: bytes, retry_after: float | None) -> ApiError:
    """The error in an HTTP answer, whoever wrote it: the API server, or a proxy that knows no Status."""
    try:
        status = _decode_status(body)
    except msgspec.DecodeError:
        status = Status(message=body[:200].decode(errors="replace").strip())
    return error_for(msgspec.structs.replace(status, code=code), retry_after)
