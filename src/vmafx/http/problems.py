"""Errors as problem details (RFC 9457): the body of every response that reports one."""

import json
import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, NamedTuple

from vmafx.http.errors import UNTYPED, StatusError
from vmafx.http.responses import PROBLEM, Response

HEADERS = {401: {"WWW-Authenticate": "Bearer"}}
RETRY_AFTER = {429: 3.0, 503: 3.0}  # seconds, unless the error says otherwise


class ProblemDetails(NamedTuple):
    """An error for a caller. `code` and `message` are members too: callers read them."""

    status: int
    code: str
    message: str
    request_id: str
    type: str = UNTYPED
    retry_after: float | None = None
    extensions: Mapping[str, Any] = {}

    @classmethod
    def of(cls, error: StatusError, request_id: str) -> "ProblemDetails":
        return cls(error.status, error.code, error.message, request_id, error.type, error.retry_after, error.extensions)

    def body(self) -> bytes:
        """On one line, so that it can end a stream."""
        members = {
            "type": self.type,
            "title": _phrase(self.status),
            "status": self.status,
            "detail": self.message,
            "instance": f"urn:request:{self.request_id}",
            "code": self.code,
            "message": self.message,
        }
        return json.dumps({**members, **self.extensions, **members}).encode()

    def response(self) -> Response:
        headers = dict(HEADERS.get(self.status, {}))
        seconds = RETRY_AFTER.get(self.status) if self.retry_after is None else self.retry_after
        if seconds is not None:
            headers["Retry-After"] = str(max(math.ceil(seconds), 0))
        return Response(self.status, PROBLEM, self.body(), headers)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Error"
