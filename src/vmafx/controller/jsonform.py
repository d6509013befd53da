"""Messages as JSON, by protobuf's own mapping: lowerCamelCase out, both spellings in, and nothing silently dropped."""

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, NoReturn, TypeVar, cast

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from vmafx.http.errors import Refused

DEPTH_MOST = 16  # of objects and lists in each other; ours have four
NAMES_MOST = 5  # unknown fields that are named
SAID_MOST = 200  # characters of what protobuf says
# Strings are passed over whole, also one without an end: to look at it again from each of its quotes would take hours.
_BRACKETS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)

M = TypeVar("M", bound=Message)


def loads(body: bytes) -> dict[str, Any]:
    """A JSON object, strictly: no names twice, no NaN, not too deep."""
    if body.count(b"[") + body.count(b"{") > DEPTH_MOST and _too_deep(body):
        raise Refused("INVALID_ARGUMENT", f"the body is nested deeper than {DEPTH_MOST}")
    try:
        said = json.loads(body.decode(), object_pairs_hook=_once, parse_constant=_no_constant)
    except ValueError as error:
        raise Refused("INVALID_ARGUMENT", f"the body is not JSON: {_brief(error)}") from None
    if not isinstance(said, dict):
        raise Refused("INVALID_ARGUMENT", "the body is not a JSON object")
    return said


def parse(said: dict[str, Any], message: M) -> M:
    """Fill `message` with what was said."""
    if unknown := list(islice(_unknown(said, cast("Descriptor", message.DESCRIPTOR)), NAMES_MOST)):
        raise Refused("INVALID_ARGUMENT", f"unknown fields: {', '.join(unknown)}")
    try:
        return json_format.ParseDict(said, message)
    except (json_format.ParseError, ValueError, TypeError, OverflowError) as error:
        raise Refused("INVALID_ARGUMENT", _brief(error)) from None


def dumps(message: Message) -> bytes:
    """In one line. What is zero, false or empty is said too: a job that waits says so."""
    said = json_format.MessageToDict(message, always_print_fields_with_no_presence=True)
    return json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode()


def spellings(kind: Descriptor, name: str) -> tuple[str, str]:
    """What a field may be called."""
    return name, kind.fields_by_name[name].json_name


def is_map(kind: Descriptor) -> bool:
    """Whether it is no message of its own, but an entry of a map."""
    return bool(kind.GetOptions().map_entry)


def _unknown(said: Any, kind: Descriptor, above: str = "") -> Iterator[str]:
    if not isinstance(said, dict):
        return  # which protobuf will say
    fields = {name: field for field in kind.fields for name in (field.name, field.json_name)}
    for name, value in said.items():
        field = fields.get(name)
        if field is None:
            yield f"{above}{name[:40]}"
        elif field.message_type is not None and not is_map(field.message_type):
            for one in value if isinstance(value, list) else [value]:
                yield from _unknown(one, field.message_type, f"{above}{name}.")


def _too_deep(body: bytes) -> bool:
    depth = 0
    for found in _BRACKETS.finditer(body):
        match found[0]:
            case b"[" | b"{":
                depth += 1
                if depth > DEPTH_MOST:
                    return True
            case b"]" | b"}":
                depth -= 1
    return False


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    said = dict(pairs)
    if len(said) < len(pairs):
        raise ValueError("a name stands twice in one object")
    return said


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON; a number that is none is a string")


def _brief(error: Exception) -> str:
    said = " ".join(str(error).split())
    return said if len(said) <= SAID_MOST else f"{said[:SAID_MOST]}…"
