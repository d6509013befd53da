"""Protobuf messages as JSON in protobuf's mapping: both spellings of a field are accepted, unknown fields rejected.

Jobs also have their times as RFC 3339, beside the Unix seconds that old clients read.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any, TypeVar, cast

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from vmafx.http.errors import StatusError
from vmafx.http.strict_json import brief, json_type
from vmafx.wire import controller_pb2 as wire

MAX_NAMES = 5  # unknown fields listed in an error
TIMES = {"createTime": "created_at", "updateTime": "updated_at"}  # RFC 3339 in JSON, and the field in Unix seconds
PLAIN_TYPES: dict[int, tuple[type, str]] = {
    FieldDescriptor.TYPE_STRING: (str, "a string"),
    FieldDescriptor.TYPE_BYTES: (str, "a string in base64"),
    FieldDescriptor.TYPE_BOOL: (bool, "true or false"),
}

M = TypeVar("M", bound=Message)


def parse_message(data: dict[str, Any], message: M) -> M:
    """Fill `message` from JSON data."""
    descriptor = cast("Descriptor", message.DESCRIPTOR)
    if unknown := list(islice(_unknown_fields(data, descriptor), MAX_NAMES)):
        names, (_, parent) = ", ".join(name for name, _ in unknown), unknown[0]
        known = ", ".join(field.json_name for field in parent.fields)
        raise StatusError("INVALID_ARGUMENT", f"unknown fields: {names}; {parent.name} has {known}")
    for mismatch in _type_mismatches(data, descriptor):
        raise StatusError("INVALID_ARGUMENT", mismatch)
    try:
        return json_format.ParseDict(data, message)
    except (json_format.ParseError, ValueError, TypeError, OverflowError) as error:
        raise StatusError("INVALID_ARGUMENT", f"invalid request: {brief(error)}") from None


def message_to_json(message: Message) -> bytes:
    """On one line, with fields that are zero, false or empty; only the score of an unfinished job is left out."""
    data = json_format.MessageToDict(message, always_print_fields_with_no_presence=True)
    for job, fields in _jobs(message, data):
        if job.status != wire.COMPLETED:  # in protobuf a missing score is 0.0, which is also a valid score
            fields.pop("finalScore")
        for name, unix in TIMES.items():
            if seconds := getattr(job, unix):
                fields[name] = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()


def _jobs(message: Message, data: dict[str, Any]) -> Iterator[tuple[wire.Job, dict[str, Any]]]:
    """The jobs in a message, each with its JSON data."""
    match message:
        case wire.Job():
            yield message, data
        case wire.PullWorkResponse() if message.HasField("job"):
            yield message.job, data["job"]
        case wire.ListJobsResponse():
            yield from zip(message.jobs, data["jobs"], strict=True)


def field_names(descriptor: Descriptor, name: str) -> tuple[str, str]:
    """Both spellings of a field: snake_case and lowerCamelCase."""
    return name, descriptor.fields_by_name[name].json_name


def is_map(descriptor: Descriptor) -> bool:
    """Whether this is the generated entry type of a map field."""
    return bool(descriptor.GetOptions().map_entry)


def _fields(descriptor: Descriptor) -> dict[str, FieldDescriptor]:
    return {name: field for field in descriptor.fields for name in (field.name, field.json_name)}


def _type_mismatches(data: dict[str, Any], descriptor: Descriptor, prefix: str = "") -> Iterator[str]:
    """Wrong types, described in JSON's terms; protobuf's own errors name Python types. Numbers are left to protobuf."""
    fields = _fields(descriptor)
    for name, value in data.items():
        field, path = fields[name], f"{prefix}{name}"
        message = field.message_type
        is_list = field.is_repeated and not (message is not None and is_map(message))
        if is_list and not isinstance(value, list | None):
            yield f"{path} must be an array, not {json_type(value)}"
            continue
        for item in value or [] if is_list else [value]:
            if item is None:
                continue
            if message is not None and not isinstance(item, dict):
                yield f"{path} must be an object, not {json_type(item)}"
            elif message is not None and not is_map(message):
                yield from _type_mismatches(item, message, f"{path}.")
            elif field.type in PLAIN_TYPES and not isinstance(item, PLAIN_TYPES[field.type][0]):
                yield f"{path} must be {PLAIN_TYPES[field.type][1]}, not {json_type(item)}"


def _unknown_fields(data: Any, descriptor: Descriptor, prefix: str = "") -> Iterator[tuple[str, Descriptor]]:
    """The path of each unknown field, and the message that it is in."""
    if not isinstance(data, dict):
        return
    fields = _fields(descriptor)
    for name, value in data.items():
        field = fields.get(name)
        if field is None:
            yield f"{prefix}{name[:40]}", descriptor
        elif field.message_type is not None and not is_map(field.message_type):
            for item in value if isinstance(value, list) else [value]:
                yield from _unknown_fields(item, field.message_type, f"{prefix}{name}.")
