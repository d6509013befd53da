"""Error bodies: problem details with the members that every error of the HTTP servers has."""

from http import HTTPStatus
from typing import Any

import aiohttp


def checked_problem(response: aiohttp.ClientResponse, body: Any) -> dict[str, Any]:
    """Check an error response; return its code and message, and further members if it has any."""
    assert response.headers["Content-Type"] == "application/problem+json"
    assert body["instance"] == f"urn:request:{response.headers['X-Request-Id']}"
    assert body["status"] == response.status
    return checked_members(body)


def checked_members(body: dict[str, Any]) -> dict[str, Any]:
    """The same for the problem at the end of a stream."""
    assert body.pop("type") == "about:blank"
    assert body.pop("title") == HTTPStatus(body.pop("status")).phrase
    assert body.pop("detail") == body["message"]
    assert body.pop("instance").startswith("urn:request:")
    return body
