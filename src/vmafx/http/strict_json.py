"""JSON from strangers, read strictly: what two readers could understand in two ways is refused."""

import json
import re
from typing import Any, NoReturn

from vmafx.http.errors import CallRefused

MAX_DEPTH = 16  # of objects and lists in each other; ours have four
TYPES = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
MAX_REASON = 200  # characters of why a body is refused
# Strings are passed over whole, also one without an end: to look at it again from each of its quotes would take hours.
_BRACKETS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)


def loads(body: bytes) -> dict[str, Any]:
    """A JSON object: no names twice, no NaN, not too deep."""
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH and _too_deep(body):
        raise CallRefused("INVALID_ARGUMENT", f"the body is nested deeper than {MAX_DEPTH} levels")
    try:
        value = json.loads(body.decode(), object_pairs_hook=_once, parse_constant=_no_constant)
    except ValueError as error:
        raise CallRefused("INVALID_ARGUMENT", f"the body is not JSON: {brief(error)}") from None
    if not isinstance(value, dict):
        raise CallRefused("INVALID_ARGUMENT", f"the body is not a JSON object but {json_type(value)}")
    return value


def json_type(value: Any) -> str:
    """What JSON calls it."""
    return TYPES.get(type(value), "a number")


def brief(error: Exception) -> str:
    """An error's text on one line, and no longer than a caller needs."""
    text = " ".join(str(error).split())
    return text if len(text) <= MAX_REASON else f"{text[:MAX_REASON]}…"


def _too_deep(body: bytes) -> bool:
    depth = 0
    for found in _BRACKETS.finditer(body):
        match found[0]:
            case b"[" | b"{":
                depth += 1
                if depth > MAX_DEPTH:
                    return True
            case b"]" | b"}":
                depth -= 1
    return False


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"{name[:40]!r} stands twice in one object")
            seen.add(name)
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f'{name} is no JSON; send the string "{name}"')
