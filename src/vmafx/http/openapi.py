"""The parts of an OpenAPI document that every server shares: errors, request IDs, and parameters of lists."""

from typing import Any

from vmafx.http.lists import DEFAULT_LIMIT, MAX_LIMIT
from vmafx.http.request import ID_HEADER
from vmafx.http.responses import PROBLEM

EXAMPLE_ID = "encode-42.retry-1"
PROBLEM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "Problem details (RFC 9457). A stream that fails ends with one, too.",
    "required": ["type", "title", "status", "detail", "instance", "code", "message"],
    "properties": {
        "type": {"type": "string", "format": "uri-reference", "description": "`about:blank`: the status says it all."},
        "title": {"type": "string", "description": "The name of the HTTP status."},
        "status": {"type": "integer", "description": "The HTTP status."},
        "detail": {"type": "string", "description": "What is wrong, and what to do."},
        "instance": {"type": "string", "format": "uri", "description": "`urn:request:` and the ID of the request."},
        "code": {"type": "string", "description": "The gRPC status code, such as NOT_FOUND."},
        "message": {"type": "string", "description": "The same as `detail`."},
    },
}
PROBLEM_EXAMPLE = {
    "type": "about:blank",
    "title": "Bad Request",
    "status": 400,
    "detail": "limit must be a number from 1 to 500, not 'many'",
    "instance": f"urn:request:{EXAMPLE_ID}",
    "code": "INVALID_ARGUMENT",
    "message": "limit must be a number from 1 to 500, not 'many'",
}
# Merge these into the components of the document.
COMPONENTS: dict[str, dict[str, Any]] = {
    "schemas": {"Problem": PROBLEM_SCHEMA},
    "parameters": {
        "RequestId": {
            "name": ID_HEADER,
            "in": "header",
            "description": "ID of the request for logs; without one, or if it is not valid, the server makes one.",
            "schema": {"type": "string", "pattern": "^[A-Za-z0-9._:-]{1,128}$"},
            "example": EXAMPLE_ID,
        },
    },
    "headers": {
        "RequestId": {
            "description": "ID of the request, as it was sent, or a new one.",
            "schema": {"type": "string"},
            "example": EXAMPLE_ID,
        },
        "RetryAfter": {
            "description": "Seconds to wait before a retry; with 429 and 503.",
            "schema": {"type": "integer"},
            "example": 3,
        },
    },
}
REQUEST_ID_PARAMETER = {"$ref": "#/components/parameters/RequestId"}
RESPONSE_HEADERS = {ID_HEADER: {"$ref": "#/components/headers/RequestId"}}
PROBLEM_RESPONSE: dict[str, Any] = {
    "description": "An error.",
    "headers": {**RESPONSE_HEADERS, "Retry-After": {"$ref": "#/components/headers/RetryAfter"}},
    "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}, "example": PROBLEM_EXAMPLE}},
}


def list_parameters(*, streams: bool) -> list[dict[str, Any]]:
    """The query parameters that `vmafx.http.lists.list_query` reads; `streams` as there."""
    if streams:
        otherwise = (
            "Without it, `limit`, `continue`, or an Accept header that prefers application/json to "
            "application/x-ndjson ask for a list; anything else is a stream."
        )
    else:
        otherwise = (
            "Without it, an Accept header that prefers application/x-ndjson to application/json asks for a stream."
        )
    limit = {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT}
    return [
        _query("limit", "Objects on the page, at most.", limit, 50),
        _query(
            "continue",
            "`continue` of the page before; left out for the first page.",
            {"type": "string"},
            "eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ",
        ),
        _query("watch", f"true: a stream of all objects and their changes; false: a list. {otherwise}",
               {"type": "boolean"}, False),
    ]  # fmt: skip


def _query(name: str, description: str, schema: dict[str, Any], example: object) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": description, "schema": schema, "example": example}
