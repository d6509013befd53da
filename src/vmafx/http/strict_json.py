"""Strict JSON: input that two parsers could read differently is rejected."""

import json
import re
from typing import Any, NoReturn

from vmafx.http.errors import StatusError

MAX_DEPTH = 16  # of nested objects and arrays; the messages of vmafx have four
TYPES = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
MAX_REASON = 200  # characters of a parser's error
# Strings match as a whole, even an unterminated one: retrying from each quote would take quadratic time.
_BRACKETS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)


def loads(body: bytes) -> dict[str, Any]:
    """Parse a JSON object without duplicate names or NaN, nested at most MAX_DEPTH levels."""
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH and _is_too_deep(body):
        raise StatusError("INVALID_ARGUMENT", f"the body is nested deeper than {MAX_DEPTH} levels")
    try:
        value = _DECODER.decode(body.decode())
    except ValueError as error:
        raise StatusError("INVALID_ARGUMENT", f"the body is not JSON: {brief(error)}") from None
    if not isinstance(value, dict):
        raise StatusError("INVALID_ARGUMENT", f"the body must be a JSON object, not {json_type(value)}")
    return value


def json_type(value: Any) -> str:
    """The JSON name of a value's type, with its article."""
    return TYPES.get(type(value), "a number")


def brief(error: Exception) -> str:
    """The error's text on one line, shortened to MAX_REASON."""
    text = " ".join(str(error).split())
    return text if len(text) <= MAX_REASON else f"{text[:MAX_REASON]}…"


def _is_too_deep(body: bytes) -> bool:
    depth = 0
    for token in _BRACKETS.finditer(body):
        match token[0]:
            case b"[" | b"{":
                depth += 1
                if depth > MAX_DEPTH:
                    return True
            case b"]" | b"}":
                depth -= 1
    return False


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"duplicate name {name[:40]!r}")
            seen.add(name)
    return value


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f'{name} is not valid; send the string "{name}"')


_DECODER = json.JSONDecoder(object_pairs_hook=_unique_names, parse_constant=_reject_constant)
