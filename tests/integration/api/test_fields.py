"""Every field of every kind against a real API server: stored, and validated as msgspec validates it."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import inspect as types

from tests.support.objects import Json, every_field, fields_of, fit, leaves, put, valid
from vmafx.api.kinds import KINDS, VmafxJob, VmafxModelTraining, VmafxNode, ZerfooInferenceService
from vmafx.api.meta import API_VERSION, CustomObject
from vmafx.kube import Client, ObjectKey, Resource
from vmafx.kube.errors import BadRequest, Invalid
from vmafx.kube.resources import UntypedObject, resource_for

SMALLEST: dict[type[CustomObject], Json] = {
    VmafxJob: {"reference": "file:///a.mp4", "distorted": "file:///b.mp4"},
    VmafxNode: {"gpuVendor": "cpu"},
    VmafxModelTraining: {"baseModel": "vmaf_v0.6.1"},
    ZerfooInferenceService: {"modelRef": "llama3-8b-q4"},
}
on_server = settings(suppress_health_check=list(HealthCheck))
each_kind = pytest.mark.parametrize("kind", KINDS)


def untyped(kind: type[CustomObject]) -> Resource[UntypedObject]:
    return resource_for(kind).decoded_as(dict)


async def create(client: Client, namespace: str, kind: type[CustomObject], spec: Json) -> UntypedObject:
    body = {"apiVersion": API_VERSION, "kind": kind.__name__, "metadata": {"generateName": "x-"}, "spec": spec}
    return await client.create(untyped(kind), body, namespace)


async def write_status(client: Client, kind: type[CustomObject], made: UntypedObject, status: Json) -> UntypedObject:
    """Write a status and read the object again, as another client would."""
    key = ObjectKey(made["metadata"]["namespace"], made["metadata"]["name"])
    await client.patch_status(untyped(kind), key, status)
    return await client.get(untyped(kind), key)


def lost(written: Json, read: Json, path: str = "") -> Iterator[str]:
    """The paths of values that were written and are missing or different."""
    if isinstance(written, dict) and isinstance(read, dict):
        for name, part in written.items():
            if name in read:
                yield from lost(part, read[name], f"{path}.{name}")
            elif part not in ({}, []):
                yield f"{path}.{name} is missing"
    elif isinstance(written, list) and isinstance(read, list) and len(written) == len(read):
        for index, pair in enumerate(zip(written, read, strict=True)):
            yield from lost(*pair, f"{path}[{index}]")
    elif written != read:
        yield f"{path}: {written!r} became {read!r}"


@each_kind
async def test_every_spec_field_is_stored(client: Client, namespace: str, kind: type[CustomObject]) -> None:
    spec = fit(kind, every_field(fields_of(kind, "spec")))
    made = await create(client, namespace, kind, spec)
    assert list(lost(spec, made["spec"])) == []


@each_kind
async def test_every_status_field_is_stored(client: Client, namespace: str, kind: type[CustomObject]) -> None:
    made = await create(client, namespace, kind, SMALLEST[kind])
    for name, value in every_field(fields_of(kind, "status")).items():
        if name == "phase":
            continue  # a finished phase cannot be changed any more
        read = await write_status(client, kind, made, {name: value})
        assert list(lost({name: value}, read["status"])) == []
    if "phase" in every_field(fields_of(kind, "status")):
        assert (await write_status(client, kind, made, {"phase": "Running"}))["status"]["phase"] == "Running"


async def test_a_controller_job_id_is_stored(client: Client, namespace: str) -> None:
    made = await create(client, namespace, VmafxJob, SMALLEST[VmafxJob])
    read = await write_status(client, VmafxJob, made, {"controllerJobID": "external-1"})
    assert read["status"] == {"phase": "Pending", "controllerJobID": "external-1"}


@each_kind
@given(data=st.data())
@on_server
async def test_any_valid_object_is_read_as_written(
    client: Client, namespace: str, kind: type[CustomObject], data: st.DataObject
) -> None:
    spec = fit(kind, data.draw(valid(fields_of(kind, "spec"))))
    status = fit(kind, data.draw(valid(fields_of(kind, "status"))))
    made = await create(client, namespace, kind, spec)
    read = await write_status(client, kind, made, status)
    assert list(lost({"spec": spec, "status": status}, read)) == []

    typed = msgspec.convert({**made, "spec": spec, "status": status}, kind)
    assert msgspec.convert(read, kind).spec == typed.spec  # type: ignore[attr-defined]
    encoded = msgspec.json.decode(msgspec.json.encode(msgspec.convert(read, kind)))
    assert list(lost(encoded, {**read, "kind": kind.__name__})) == []


@each_kind
@pytest.mark.parametrize("part", ["spec", "status"])
@given(data=st.data())
@settings(on_server, max_examples=settings().max_examples // 10)
async def test_the_server_and_msgspec_reject_the_same_values(
    client: Client, namespace: str, kind: type[CustomObject], part: str, data: st.DataObject
) -> None:
    """At every place of the schema, with values at the limits."""
    struct = fields_of(kind, part)
    good = fit(kind, every_field(struct))
    made = await create(client, namespace, kind, good if part == "spec" else SMALLEST[kind])
    for path, leaf in leaves(struct, good):
        changed = put(good, path, data.draw(boundary_values(leaf)))
        decoded, accepted = decodes(changed, struct.cls), await accepts(client, kind, made, part, changed)
        if accepted or not has_rule_across_fields(path):
            assert decoded == accepted, f"{path} = {changed}: decoded {decoded}, accepted {accepted}"


async def accepts(client: Client, kind: type[CustomObject], made: UntypedObject, part: str, value: Json) -> bool:
    try:
        if part == "spec":
            await create(client, made["metadata"]["namespace"], kind, value)
        else:
            fresh = await create(client, made["metadata"]["namespace"], kind, SMALLEST[kind])
            await write_status(client, kind, fresh, value)
    except (BadRequest, Invalid):
        return False
    return True


def has_rule_across_fields(path: tuple[str | int, ...]) -> bool:
    """Whether a CEL rule relates the field to others, so that the server may reject what the type allows."""
    related = {"modelRef", "minReplicas", "maxReplicas", "weight", "name", "mountPath", "reference", "distorted"}
    related |= {"interval", "timeout", "gpuVendor", "gpuMemory"}
    return bool(related & set(path))


def decodes(value: Json, model: type[Any]) -> bool:
    try:
        msgspec.json.decode(msgspec.json.encode(value), type=model)
    except msgspec.ValidationError:
        return False
    return True


def boundary_values(kind: types.Type) -> st.SearchStrategy[Json]:
    """Values of a type that are valid, just invalid, or of another type."""
    if isinstance(kind, types.Metadata):
        return boundary_values(kind.type)
    if isinstance(kind, types.UnionType):
        return st.one_of([boundary_values(part) for part in kind.types if not isinstance(part, types.NoneType)])
    return _boundary_scalars(kind)


def _boundary_scalars(kind: types.Type) -> st.SearchStrategy[Json]:
    wrong_type = st.sampled_from([[], {}, [1], {"a": 1}])
    match kind:
        case types.LiteralType():
            values = st.sampled_from(
                [*kind.values, "", "nope", f"{kind.values[0]}\n", str(kind.values[0]).upper(), 1, True]
            )
        case types.BoolType():
            values = st.sampled_from([True, False, "true", 0, 1])
        case types.IntType():
            values = st.sampled_from([kind.ge, kind.le, (kind.ge or 0) - 1, (kind.le or 0) + 1, "1x", True, 1.5])
        case types.FloatType():
            edges = [edge for edge in (kind.ge, kind.gt, kind.le, kind.lt) if edge is not None]
            values = st.sampled_from(
                [0.5, *edges, *(edge + 1 for edge in edges), *(edge - 1 for edge in edges), "x", True]
            )
        case types.DateTimeType():
            values = st.sampled_from(
                ["2026-05-28T12:30:15Z", "2026-05-28T12:30:15.123456Z", "2026-05-28T12:30:15+02:00", "", "yesterday",
                 "2026-13-28T12:30:15Z", "2026-05-28", "2026-05-28T12:30:15", 5, True]
            )  # fmt: skip
        case types.StrType():
            values = _boundary_strings(kind)
        case _:
            raise AssertionError(f"no boundary values for {kind}")
    return st.one_of(values, wrong_type)


def _boundary_strings(kind: types.StrType) -> st.SearchStrategy[Json]:
    valid_strings = valid(kind)
    edges: list[Json] = [
        "",
        "a b",
        "a\n",
        "file:///a\n",
        "FILE:///a",
        "a/b",
        "-a",
        "a" * ((kind.max_length or 0) + 1),
        5,
        True,
    ]
    return st.one_of(
        st.sampled_from(edges),
        valid_strings,
        valid_strings.map(lambda text: f"{text}\n"),
        valid_strings.map(lambda text: f" {text}"),
    )
