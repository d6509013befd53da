"""Compares what `vmafx serve` sends with its OpenAPI document."""

import json
import re
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from vmafx.http.openapi import PROBLEM_RESPONSE
from vmafx.serving import openapi

STREAMS = {"application/x-ndjson"}
_PARAMETER = re.compile(r"\\{\w+\\}")


@cache
def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(openapi.document(), default=str))
    return found


def violations(method: str, path: str, status: int, content_type: str, body: bytes) -> list[str]:
    """What is wrong with a response. Paths that are not in the document have only errors."""
    operation = described(method, path)
    responses = {"default": PROBLEM_RESPONSE} if operation is None else operation["responses"]
    if status == 304:
        return [] if not body else [f"{method} {path}: 304 has a body"]
    response = responses.get(str(status), responses.get("default"))
    if response is None:
        return [f"{method} {path}: the status {status} is not described"]
    if not body and "content" not in response:
        return []
    content = response.get("content", {})
    if content_type not in content:
        return [f"{method} {path}: {status} with {content_type} is not described"]
    if not content_type.endswith("json"):
        return []
    schema = content[content_type]["schema"]
    documents = body.splitlines() if content_type in STREAMS else [body]
    return [problem for one in documents for problem in invalid(json.loads(one), schema)]


def described(method: str, path: str) -> dict[str, Any] | None:
    """The operation of a request."""
    for template, methods in document()["paths"].items():
        pattern = _PARAMETER.sub("[^/.]+", re.escape(template))
        if re.fullmatch(pattern, path.partition("?")[0]) and method.lower() in methods:
            found: dict[str, Any] = methods[method.lower()]
            return found
    return None


def invalid(value: Any, schema: dict[str, Any]) -> list[str]:
    """What makes a value invalid by a schema of the document."""
    validator = Draft202012Validator({**schema, "components": document()["components"]})
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(value)]
