"""Protobuf messages as JSON, by protobuf's own mapping: both spellings of a field accepted, unknown fields refused."""

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any, TypeVar, cast

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from vmafx.http.errors import CallRefused
from vmafx.http.strict_json import brief, json_type
from vmafx.wire import controller_pb2 as wire

MAX_NAMES = 5  # unknown fields that are named
PLAIN_TYPES: dict[int, tuple[type, str]] = {
    FieldDescriptor.TYPE_STRING: (str, "a string"),
    FieldDescriptor.TYPE_BOOL: (bool, "true or false"),
}

M = TypeVar("M", bound=Message)


def parse_message(said: dict[str, Any], message: M) -> M:
    """Fill `message` with what was said."""
    kind = cast("Descriptor", message.DESCRIPTOR)
    if unknown := list(islice(_unknown(said, kind), MAX_NAMES)):
        names, (_, inside) = ", ".join(name for name, _ in unknown), unknown[0]
        known = ", ".join(field.json_name for field in inside.fields)
        raise CallRefused("INVALID_ARGUMENT", f"unknown fields: {names}; {inside.name} has {known}")
    for wrong in _wrong_types(said, kind):
        raise CallRefused("INVALID_ARGUMENT", wrong)
    try:
        return json_format.ParseDict(said, message)
    except (json_format.ParseError, ValueError, TypeError, OverflowError) as error:
        raise CallRefused("INVALID_ARGUMENT", f"the request cannot be read: {brief(error)}") from None


def message_to_json(message: Message) -> bytes:
    """In one line. Fields that are zero, false or empty are shown too; only a job without a score shows none."""
    said = json_format.MessageToDict(message, always_print_fields_with_no_presence=True)
    _drop_missing_score(message, said)
    return json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode()


def field_names(kind: Descriptor, name: str) -> tuple[str, str]:
    """What a field may be called."""
    return name, kind.fields_by_name[name].json_name


def _drop_missing_score(message: Message, said: dict[str, Any]) -> None:
    """protobuf's 0.0 stands for no score too, and 0.0 is a score: only a job that has completed has one."""
    if isinstance(message, wire.Job) and message.status != wire.COMPLETED:
        said.pop("finalScore")
    elif isinstance(message, wire.PullWorkResponse) and message.HasField("job"):
        _drop_missing_score(message.job, said["job"])


def is_map(kind: Descriptor) -> bool:
    """Whether it is no message of its own, but an entry of a map."""
    return bool(kind.GetOptions().map_entry)


def _fields(kind: Descriptor) -> dict[str, FieldDescriptor]:
    return {name: field for field in kind.fields for name in (field.name, field.json_name)}


def _wrong_types(said: dict[str, Any], kind: Descriptor, above: str = "") -> Iterator[str]:
    """What protobuf would refuse in the words of Python. Of numbers there are many spellings, which it knows best."""
    fields = _fields(kind)
    for name, value in said.items():
        field, path = fields[name], f"{above}{name}"
        message = field.message_type
        listed = field.is_repeated and not (message is not None and is_map(message))
        if listed and not isinstance(value, list | None):
            yield f"{path} must be an array, not {json_type(value)}"
            continue
        for one in value or [] if listed else [value]:
            if one is None:
                continue
            if message is not None and not isinstance(one, dict):
                yield f"{path} must be an object, not {json_type(one)}"
            elif message is not None and not is_map(message):
                yield from _wrong_types(one, message, f"{path}.")
            elif field.type in PLAIN_TYPES and not isinstance(one, PLAIN_TYPES[field.type][0]):
                yield f"{path} must be {PLAIN_TYPES[field.type][1]}, not {json_type(one)}"


def _unknown(said: Any, kind: Descriptor, above: str = "") -> Iterator[tuple[str, Descriptor]]:
    if not isinstance(said, dict):
        return
    fields = _fields(kind)
    for name, value in said.items():
        field = fields.get(name)
        if field is None:
            yield f"{above}{name[:40]}", kind
        elif field.message_type is not None and not is_map(field.message_type):
            for one in value if isinstance(value, list) else [value]:
                yield from _unknown(one, field.message_type, f"{above}{name}.")
