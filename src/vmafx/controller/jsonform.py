"""Messages as JSON, by protobuf's own mapping: lowerCamelCase out, both spellings in, and nothing silently dropped."""

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any, TypeVar, cast

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from vmafx.http.errors import Refused
from vmafx.http.strict_json import brief
from vmafx.wire import controller_pb2 as wire

NAMES_MOST = 5  # unknown fields that are named

M = TypeVar("M", bound=Message)


def parse(said: dict[str, Any], message: M) -> M:
    """Fill `message` with what was said."""
    if unknown := list(islice(_unknown(said, cast("Descriptor", message.DESCRIPTOR)), NAMES_MOST)):
        raise Refused("INVALID_ARGUMENT", f"unknown fields: {', '.join(unknown)}")
    try:
        return json_format.ParseDict(said, message)
    except (json_format.ParseError, ValueError, TypeError, OverflowError) as error:
        raise Refused("INVALID_ARGUMENT", brief(error)) from None


def dumps(message: Message) -> bytes:
    """In one line. Fields that are zero, false or empty are shown too; only a job without a score shows none."""
    said = json_format.MessageToDict(message, always_print_fields_with_no_presence=True)
    _drop_missing_score(message, said)
    return json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode()


def spellings(kind: Descriptor, name: str) -> tuple[str, str]:
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
