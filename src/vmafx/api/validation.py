"""Validates objects in Python by the rules of their declaration, with the messages of the API server.

For those who use a kind without an API server, which validates by the same declaration (schema.py).
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import inspect as types

from vmafx.api.fields import (
    EXTRA_RULE,
    IS_QUANTITY,
    MESSAGE,
    POSITIVE_DURATION,
    POSITIVE_QUANTITY,
    POSITIVE_QUANTITY_OR_EMPTY,
)
from vmafx.api.meta import ApiModel, Rule
from vmafx.api.schema import struct_fields
from vmafx.api.units import MAX_NANOSECONDS, nanoseconds, quantity


class InvalidSpec(ValueError):
    """A spec that the API server would reject; `problems` has every violated rule."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


# The CEL expressions that follow a pattern, in Python.
_EXTRA_CHECKS: dict[str, Callable[[str], bool]] = {
    POSITIVE_DURATION: lambda text: 0 < nanoseconds(text) <= MAX_NANOSECONDS,
    IS_QUANTITY: lambda text: quantity(text) is not None,
    POSITIVE_QUANTITY: lambda text: quantity(text) > 0,
    POSITIVE_QUANTITY_OR_EMPTY: lambda text: not text or quantity(text) > 0,
}


_PYTHON_TYPES: dict[type[types.Type], type | tuple[type, ...]] = {
    types.NoneType: type(None),
    types.BoolType: bool,
    types.IntType: int,
    types.FloatType: (int, float),
    types.StrType: str,
    types.LiteralType: str,
    types.VarTupleType: tuple,
}


def validate(value: ApiModel, path: str) -> None:
    """Raise InvalidSpec if `value`, which stands at `path` of an object, violates its declaration."""
    if problems := tuple(_struct_problems(value, path)):
        raise InvalidSpec(problems)


def _struct_problems(value: ApiModel, path: str) -> Iterator[str]:
    found = False
    for field in struct_fields(type(value)):
        for problem in _problems(getattr(value, field.name), field.type, f"{path}.{field.encode_name}"):
            found = True
            yield problem
    rules: tuple[Rule, ...] = getattr(type(value), "rules", ())
    for rule in rules if not found else ():  # rules may assume valid fields, as on the server
        if rule.holds is None:
            raise TypeError(f"{type(value).__name__} has a rule without a check in Python: {rule.message}")
        if not rule.holds(value):
            yield f"{path}: {rule.message}"


def _problems(value: Any, kind: types.Type, path: str) -> Iterator[str]:
    match kind:
        case types.Metadata():
            yield from _metadata_problems(value, kind, path)
        case types.UnionType():
            part = next((part for part in kind.types if _accepts(part, value)), kind.types[0])
            yield from _problems(value, part, path)
        case _ if not _accepts(kind, value):
            yield f"{path}: {type(value).__name__} {value!r} is not valid"
        case types.StructType():
            yield from _struct_problems(value, path)
        case types.VarTupleType():
            if kind.max_length is not None and len(value) > kind.max_length:
                yield f"{path}: must have at most {kind.max_length} items"
            for number, item in enumerate(value):
                yield from _problems(item, kind.item_type, f"{path}[{number}]")
        case _:
            yield from _scalar_problems(value, kind, path)


def _metadata_problems(value: Any, kind: types.Metadata, path: str) -> Iterator[str]:
    """The problems of a value; a pattern with a message is reported by the message."""
    extra = kind.extra_json_schema or {}
    message: str | None = extra.get(MESSAGE)
    problems = list(_problems(value, kind.type, path))
    if not problems and isinstance(value, str) and EXTRA_RULE in extra and not _EXTRA_CHECKS[extra[EXTRA_RULE]](value):
        problems = [path]
    yield from [f"{path}: {message}"] if problems and message and isinstance(value, str) else problems


def _scalar_problems(value: Any, kind: types.Type, path: str) -> Iterator[str]:
    match kind:
        case types.LiteralType() if value not in kind.values:
            supported = ", ".join(f'"{one}"' for one in kind.values)
            yield f'{path}: Unsupported value: "{value}": supported values: {supported}'
        case types.IntType() | types.FloatType():
            if kind.ge is not None and not value >= kind.ge:  # also refuses NaN
                yield f"{path}: should be greater than or equal to {kind.ge}"
            if kind.le is not None and value > kind.le:
                yield f"{path}: should be less than or equal to {kind.le}"
        case types.StrType():
            if kind.max_length is not None and len(value) > kind.max_length:
                yield f"{path}: may not be more than {kind.max_length} characters"
            if kind.min_length is not None and len(value) < kind.min_length:
                yield f"{path}: should be at least {kind.min_length} characters"
            if kind.pattern is not None and not re.search(kind.pattern, value):
                yield f"{path}: does not match {kind.pattern}"


def _accepts(kind: types.Type, value: Any) -> bool:
    """Whether the type, regardless of its limits, is that of the value."""
    match kind:
        case types.Metadata():
            return _accepts(kind.type, value)
        case types.UnionType():
            return any(_accepts(part, value) for part in kind.types)
        case types.StructType():
            return isinstance(value, kind.cls)
        case types.IntType() | types.FloatType() if isinstance(value, bool):
            return False
    expected = _PYTHON_TYPES.get(type(kind))
    return expected is None or isinstance(value, expected)
