"""Converts Structs to the structural OpenAPI schemas of CRDs."""

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import inspect as types

from vmafx.api.fields import EXTRA_RULE, MESSAGE, RULES
from vmafx.api.meta import ApiModel, Rule

Schema = dict[str, Any]
CRD_KEYWORDS = ("x-vmafx-", "x-kubernetes-")


def object_schema(struct: types.StructType, *, defaults: bool) -> Schema:
    """The schema of a Struct. With `defaults`, it has the defaults of the fields, and the server fills them in."""
    out: Schema = {"type": "object"}
    if text := description_of(struct.cls):
        out["description"] = text
    if required := [field.encode_name for field in struct.fields if field.required]:
        out["required"] = required
    rules = [*getattr(struct.cls, "rules", ()), *_immutability_rules(struct)]
    out["properties"] = {
        field.encode_name: _with_rules(
            _field_schema(field, defaults=defaults), [rule for rule in rules if rule.field == field.encode_name]
        )
        for field in struct.fields
    }
    return _with_rules(out, [rule for rule in rules if not rule.field])


def description_of(cls: type) -> str:
    """The docstring of a Struct; not an inherited one."""
    return inspect.cleandoc(cls.__doc__ or "")


def struct_fields(cls: type) -> tuple[types.Field, ...]:
    """The fields of a Struct, as msgspec describes them."""
    struct = types.type_info(cls)
    if not isinstance(struct, types.StructType):
        raise TypeError(f"{cls} is not a Struct")
    return struct.fields


def field_schema(cls: type, name: str) -> Schema:
    """The schema of one field of a Struct."""
    return next(type_schema(field.type, defaults=False) for field in struct_fields(cls) if field.name == name)


def expected(schema: Schema) -> str:
    """What a value must be, as a phrase to put after the field's name; empty if the schema has no such limit."""
    if rules := schema.get(RULES):
        message: str = rules[0]["message"]
        return message
    if values := schema.get("items", {}).get("enum"):
        return f"must be some of {', '.join(values)}"
    if {"minimum", "maximum"} <= schema.keys():
        return f"must be {schema['minimum']} to {schema['maximum']}"
    return ""


def portable(schema: Any) -> Any:
    """A schema of msgspec without the keywords of CRDs, and with patterns as JSON Schema writes them."""
    if isinstance(schema, list):
        return [portable(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: portable(value) for name, value in schema.items() if not name.startswith(CRD_KEYWORDS)}
    if isinstance(kept.get("pattern"), str):
        kept["pattern"] = kept["pattern"].replace("\\Z", "$")
    return kept


def cel_rules(rules: Iterable[Rule]) -> list[dict[str, str]]:
    """CEL rules in the form of the schema."""
    return [{"rule": rule.check, "message": rule.message} for rule in rules]


def _with_rules(schema: Schema, rules: Sequence[Rule]) -> Schema:
    return {**schema, RULES: [*schema.get(RULES, ()), *cel_rules(rules)]} if rules else schema


def _immutability_rules(struct: types.StructType) -> Iterator[Rule]:
    """The rules on the fields that a Struct declares as `immutable`, with the message for each."""
    immutable: Mapping[str, str] = getattr(struct.cls, "immutable", {})
    for field in struct.fields:
        if message := immutable.get(field.encode_name):
            name = field.encode_name
            yield Rule(check="self == oldSelf", message=message, field=name)
            if not field.required and _default(field) is None:  # can be absent, and then the rule above does not run
                yield Rule(check=f"has(self.{name}) == has(oldSelf.{name})", message=message)


def _field_schema(field: types.Field, *, defaults: bool) -> Schema:
    out = type_schema(field.type, defaults=defaults)
    if defaults and "default" not in out and (default := _default(field)) is not None:
        out["default"] = default
    return out


def _default(field: types.Field) -> Any:
    value = field.default if field.default is not msgspec.NODEFAULT else None
    if isinstance(value, ApiModel):
        return msgspec.to_builtins(value)
    return None if value == () else value


def type_schema(kind: types.Type, *, defaults: bool) -> Schema:
    """The schema of a field's type."""
    match kind:
        case types.Metadata():
            return _pattern_to_rule({**type_schema(kind.type, defaults=defaults), **(kind.extra_json_schema or {})})
        case types.UnionType():
            return _union_schema(kind, defaults=defaults)
        case types.StructType():
            return object_schema(kind, defaults=defaults)
        case types.DictType() | types.VarTupleType():
            return _container_schema(kind, defaults=defaults)
    return _scalar_schema(kind)


def _container_schema(kind: types.DictType | types.VarTupleType, *, defaults: bool) -> Schema:
    match kind:
        case types.DictType():
            return {
                "type": "object",
                "additionalProperties": type_schema(kind.value_type, defaults=defaults),
                **_bounds(minProperties=kind.min_length, maxProperties=kind.max_length),
            }
        case types.VarTupleType():
            return {
                "type": "array",
                "items": type_schema(kind.item_type, defaults=defaults),
                **_bounds(minItems=kind.min_length, maxItems=kind.max_length),
            }


def _scalar_schema(kind: types.Type) -> Schema:
    match kind:
        case types.LiteralType():
            return {"type": "string", "enum": list(kind.values)}
        case types.StrType():
            text = _bounds(minLength=kind.min_length, maxLength=kind.max_length)
            return {"type": "string", **text, **_bounds(pattern=_server_pattern(kind.pattern))}
        case types.BoolType():
            return {"type": "boolean"}
        case types.DateTimeType():
            return {"type": "string", "format": "date-time"}
        case types.IntType() | types.FloatType():
            number: Schema = {"type": "integer" if isinstance(kind, types.IntType) else "number"}
            number |= _bounds(minimum=kind.ge if kind.ge is not None else kind.gt)
            number |= _bounds(maximum=kind.le if kind.le is not None else kind.lt)
            number |= _bounds(
                exclusiveMinimum=kind.gt is not None or None, exclusiveMaximum=kind.lt is not None or None
            )
            return number
    raise TypeError(f"no CRD schema for {kind}")


def _union_schema(union: types.UnionType, *, defaults: bool) -> Schema:
    """`X | None` is an optional X, and `int | str` an int-or-string; other unions are not structural."""
    parts = [part for part in union.types if not isinstance(part, types.NoneType)]
    if len(parts) == 1:
        return type_schema(parts[0], defaults=defaults)
    merged: Schema = {}
    for part in parts:
        if not isinstance(part, types.IntType | types.StrType):
            raise TypeError(f"no CRD schema for a union with {part}")
        merged |= _scalar_schema(part)
    merged.pop("type")
    return {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}], **merged}


def _pattern_to_rule(schema: Schema) -> Schema:
    """Replace a pattern that has a message with a CEL rule, so that an invalid value is rejected with the message."""
    message, extra_rule = schema.pop(MESSAGE, None), schema.pop(EXTRA_RULE, None)
    if message is None:
        return schema
    check = f"self.matches({_cel_string(schema.pop('pattern'))})"
    if extra_rule:
        check += f" && {extra_rule}"
    if "anyOf" in schema:
        check = f"type(self) != string || ({check})"
    schema[RULES] = [*schema.get(RULES, []), {"rule": check, "message": message}]
    return schema


def _server_pattern(pattern: str | None) -> str | None:
    """Translate a Python pattern to RE2, where `\\Z` is `$`."""
    return pattern.replace(r"\Z", "$") if pattern else None


def _cel_string(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _bounds(**limits: Any) -> Schema:
    return {name: value for name, value in limits.items() if value is not None}
