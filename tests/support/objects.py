"""JSON values for any Struct: one with every field set, arbitrary valid ones, and slightly invalid ones."""

import copy
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st
from msgspec import inspect as types

from vmafx.api.fields import Duration, PositiveQuantity, PositiveQuantityOrNone
from vmafx.api.kinds import ZerfooInferenceService
from vmafx.api.meta import CustomObject
from vmafx.api.pod import VOLUME_SOURCES, EnvSource, EnvVar, Volume
from vmafx.api.schema import struct_fields
from vmafx.api.units import nanoseconds

Json = Any
Path = tuple[str | int, ...]
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=20)


def pattern_of(annotated: Any) -> str:
    """The pattern of a string type, or of the string in an int-or-string."""
    kind = types.type_info(annotated)
    kind = kind.type if isinstance(kind, types.Metadata) else kind
    parts = kind.types if isinstance(kind, types.UnionType) else (kind,)
    return next(part.pattern for part in parts if isinstance(part, types.StrType) and part.pattern)


def bare(kind: types.Type) -> types.Type:
    """A type without its documentation, and without `| None`."""
    if isinstance(kind, types.Metadata):
        return bare(kind.type)
    if isinstance(kind, types.UnionType):
        return bare(next(part for part in kind.types if not isinstance(part, types.NoneType)))
    return kind


def every_field(kind: types.Type) -> Json:
    """A value in which every field is set, at every level."""
    kind = bare(kind)
    match kind:
        case types.StructType() if kind.cls is Volume:
            raise AssertionError("volumes are made by their list, one for each source")
        case types.StructType():
            return {field.encode_name: every_field(field.type) for field in kind.fields}
        case types.VarTupleType():
            item = bare(kind.item_type)
            if isinstance(item, types.StructType) and item.cls is Volume:
                return [_volume(item, source) for source in VOLUME_SOURCES]
            if isinstance(item, types.StructType) and item.cls is EnvVar:
                return [{**every_field(item), "valueFrom": source} for source in _env_sources()]
            return [every_field(item)]
        case types.DictType():
            return {"some-key": every_field(kind.value_type)}
    return _scalar(kind)


def _volume(kind: types.StructType, source: str) -> Json:
    fields = {field.encode_name: field.type for field in kind.fields}
    return {"name": f"volume-{source.lower()}", source: every_field(fields[source])}


def _env_sources() -> list[Json]:
    source = types.type_info(EnvSource)
    assert isinstance(source, types.StructType)
    return [{field.encode_name: every_field(field.type)} for field in source.fields]


SAMPLES = ("a", "2m", "abc", "file:///a.mp4", "/a", "mean", "registry.example.com/a/b")


def _scalar(kind: types.Type) -> Json:
    match kind:
        case types.LiteralType():
            return kind.values[-1]
        case types.BoolType():
            return True
        case types.IntType():
            return (kind.ge or 0) + 1
        case types.FloatType():
            return 0.5
        case types.DateTimeType():
            return "2026-05-28T12:30:15Z"
        case types.StrType():
            return next(text for text in SAMPLES if _fits(text, kind))
    raise AssertionError(f"no sample of {kind}")


def _fits(text: str, kind: types.StrType) -> bool:
    long_enough = len(text) >= (kind.min_length or 0)
    return long_enough and (kind.pattern is None or re.search(kind.pattern, text) is not None)


def valid(kind: types.Type) -> st.SearchStrategy[Json]:
    """Any value that the type's own limits allow."""
    match kind:
        case types.Metadata():
            return valid(kind.type)
        case types.UnionType():
            return st.one_of([valid(part) for part in kind.types if not isinstance(part, types.NoneType)])
        case types.StructType():
            return _objects(kind)
        case types.VarTupleType():
            most = min(kind.max_length or 3, 3)
            unique = repr if isinstance(bare(kind.item_type), types.StrType | types.LiteralType) else None
            return st.lists(valid(kind.item_type), min_size=kind.min_length or 0, max_size=most, unique_by=unique)
        case types.DictType():
            return st.dictionaries(valid(kind.key_type), valid(kind.value_type), max_size=3)
    return _valid_scalar(kind)


def _valid_scalar(kind: types.Type) -> st.SearchStrategy[Json]:
    match kind:
        case types.LiteralType():
            return st.sampled_from(kind.values)
        case types.BoolType():
            return st.booleans()
        case types.IntType():
            return st.integers(kind.ge, kind.le)
        case types.FloatType():
            return _floats(kind)
        case types.DateTimeType():
            moments = st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1))  # noqa: DTZ001 - made aware below
            return moments.map(lambda when: when.replace(tzinfo=UTC).isoformat().replace("+00:00", "Z"))
        case types.StrType():
            return _texts(kind)
    raise AssertionError(f"no strategy for {kind}")


def _objects(kind: types.StructType) -> st.SearchStrategy[Json]:
    given = {field.encode_name: valid(field.type) for field in kind.fields}
    return st.fixed_dictionaries(
        {field.encode_name: given[field.encode_name] for field in kind.fields if field.required},
        optional={field.encode_name: given[field.encode_name] for field in kind.fields if not field.required},
    )


def _floats(kind: types.FloatType) -> st.SearchStrategy[float]:
    low, high = (kind.ge if kind.ge is not None else kind.gt), (kind.le if kind.le is not None else kind.lt)
    return st.floats(
        -1e12 if low is None else low,
        1e12 if high is None else high,
        allow_nan=False,
        exclude_min=kind.gt is not None,
        exclude_max=kind.lt is not None,
        allow_subnormal=False,
    )


AMOUNTS = st.integers(1, 999).map(str)
QUANTITIES = st.builds(str.__add__, AMOUNTS, st.sampled_from(["", "m", "k", "Gi", "e3"]))
# Types whose pattern allows more than their CEL rule: generated so that both accept them.
BY_PATTERN: dict[str, st.SearchStrategy[str]] = {
    pattern_of(Duration): st.builds(str.__add__, AMOUNTS, st.sampled_from(["ns", "us", "µs", "ms", "s", "m", "h"])),
    pattern_of(PositiveQuantity): QUANTITIES,
    pattern_of(PositiveQuantityOrNone): st.just("") | QUANTITIES,
}


def _texts(kind: types.StrType) -> st.SearchStrategy[str]:
    if kind.pattern in BY_PATTERN:
        return BY_PATTERN[kind.pattern]
    longest = min(kind.max_length or 40, 40)
    if kind.pattern is None:
        return TEXT.filter(lambda text: (kind.min_length or 0) <= len(text) <= longest)
    alphabet = st.characters(codec="utf-8")
    return st.from_regex(kind.pattern, alphabet=alphabet).filter(lambda text: len(text) <= longest)


def leaves(kind: types.Type, value: Json, path: Path = ()) -> Iterator[tuple[Path, types.Type]]:
    """Every scalar of a value, with its type."""
    kind = kind.type if isinstance(kind, types.Metadata) else kind
    match bare(kind), value:
        case types.StructType() as struct, dict():
            fields = {field.encode_name: field.type for field in struct.fields}
            for name, part in value.items():
                yield from leaves(fields[name], part, (*path, name))
        case types.VarTupleType() as array, list():
            for index, part in enumerate(value):
                yield from leaves(array.item_type, part, (*path, index))
        case types.DictType() as mapping, dict():
            for key, part in value.items():
                yield from leaves(mapping.value_type, part, (*path, key))
        case _:
            yield path, kind


def put(value: Json, path: Path, part: Json) -> Json:
    """A copy of `value` with `part` at `path`."""
    out = copy.deepcopy(value)
    at = out
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = part
    return out


def fields_of(kind: type[CustomObject], part: str) -> types.StructType:
    """The spec or status of a kind."""
    struct = next(bare(field.type) for field in struct_fields(kind) if field.name == part)
    assert isinstance(struct, types.StructType)
    return struct


def fit(kind: type[CustomObject], value: Json) -> Json:
    """Adjust an arbitrary spec or status to the rules between fields."""
    value = copy.deepcopy(value)
    for clip in ("reference", "distorted"):
        if str(value.get(clip, "")).lower().endswith(".yuv"):
            value[clip] += "x"
    if kind is ZerfooInferenceService and "modelRef" in value:
        _fit_service(value)
    if overlay := value.get("podTemplate"):
        _fit_overlay(overlay)
    if conditions := value.get("conditions"):
        value["conditions"] = list({one["type"]: one for one in conditions}.values())
    return value


def _fit_service(value: Json) -> None:
    low, high = sorted((value.get("minReplicas", 0), value.get("maxReplicas", 0)))
    value |= {"minReplicas": low, "maxReplicas": high if low else 0}
    if value.get("gpuVendor") in {"cpu", "apple"}:
        value.get("resources", {}).pop("gpuMemory", None)
    if health := value.get("healthCheck"):
        times = [health.pop("timeout", "2s"), health.pop("interval", "10s")]
        health["timeout"], health["interval"] = sorted(times, key=nanoseconds)
    if canary := value.get("canary"):
        if canary["modelRef"] == value["modelRef"]:
            canary["modelRef"] += "x"
        steps = {step["weight"]: step for step in canary.get("steps", ())}
        canary["steps"] = [steps[weight] for weight in sorted(steps)]
        canary["weight"] = max([canary.get("weight", 0), *steps])


def _fit_overlay(overlay: Json) -> None:
    volumes = {volume["name"]: volume for volume in overlay.get("volumes", ())}
    for volume in volumes.values():
        given = [source for source in VOLUME_SOURCES if source in volume]
        for source in given[1:]:
            del volume[source]
        if not given:
            volume["emptyDir"] = {}
    mounts = {mount["mountPath"]: mount for mount in overlay.get("volumeMounts", ()) if volumes}
    for mount in mounts.values():
        mount["name"] = next(iter(volumes))
    for variable in overlay.get("env", ()):
        if "valueFrom" in variable:
            first = dict(list(variable["valueFrom"].items())[:1])
            variable["valueFrom"] = first or {"fieldRef": {"fieldPath": "metadata.name"}}
    overlay |= {"volumes": list(volumes.values()), "volumeMounts": list(mounts.values())}
