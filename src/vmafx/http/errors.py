"""The error that ends a call: a gRPC status code, the HTTP status of each code, and a message for the caller."""

from collections.abc import Mapping
from typing import Any, Literal

Code = Literal[
    "UNAUTHENTICATED",
    "PERMISSION_DENIED",
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "FAILED_PRECONDITION",
    "ALREADY_EXISTS",
    "RESOURCE_EXHAUSTED",
    "UNAVAILABLE",
    "DEADLINE_EXCEEDED",
    "ABORTED",
    "INTERNAL",
]
HTTP_STATUS: dict[Code, int] = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "ABORTED": 409,
    "RESOURCE_EXHAUSTED": 429,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}

UNTYPED = "about:blank"  # the type of a problem that its status describes
MAX_MESSAGE = 1000  # characters; gRPC limits the size of its trailers


class StatusError(Exception):
    """Ends a call with a status code and a message, which are all that the caller sees.

    `caller` is the authenticated user, for the log. The others are for HTTP: `status` replaces the status of the code
    by a more specific one, such as 413; `retry_after` is in seconds; `extensions` are further members of the problem,
    as JSON; `type` is the URI of a page about this kind of problem.
    """

    def __init__(
        self,
        code: Code,
        message: str,
        *,
        caller: str = "",
        status: int | None = None,
        retry_after: float | None = None,
        extensions: Mapping[str, Any] | None = None,
        type: str = UNTYPED,  # noqa: A002 - as RFC 9457 calls it
    ) -> None:
        self.code: Code = code
        self.retry_after, self.extensions, self.type = retry_after, extensions or {}, type
        self.status = HTTP_STATUS[code] if status is None else status
        self.caller = caller
        self.message = message if len(message) <= MAX_MESSAGE else f"{message[: MAX_MESSAGE - 1]}…"
        super().__init__(self.message)


class Overload(StatusError):
    """A call is refused because of the calls of others, and not for anything that its caller does."""

    def __init__(self, message: str, *, caller: str = "") -> None:
        super().__init__("RESOURCE_EXHAUSTED", message, caller=caller)
