"""Structs converted to structural schemas."""

from typing import Annotated, Any

import pytest
from msgspec import Meta
from msgspec import inspect as types

from vmafx.api.crd import definition
from vmafx.api.fields import Duration, DurationOrNanoseconds, Uri, doc, schema
from vmafx.api.kinds import KINDS
from vmafx.api.meta import ApiModel, CustomObject, Rule
from vmafx.api.schema import object_schema, type_schema


class Inner(ApiModel):
    """A nested Struct."""

    size: Annotated[int, Meta(ge=1, le=9), schema(format="int32"), doc("Size.")] = 3


class Outer(ApiModel):
    link: Annotated[Uri, doc("Link.")]
    inner: Annotated[Inner, doc("Inner.")] = Inner()
    ratio: Annotated[float, Meta(gt=0, lt=1)] | None = None

    rules = (Rule(check="self.inner.size > 0", message="too small"),)


def schema_of(struct: type[ApiModel], *, defaults: bool = True) -> dict[str, Any]:
    info = types.type_info(struct)
    assert isinstance(info, types.StructType)
    return object_schema(info, defaults=defaults)


def test_a_struct_becomes_an_object_with_descriptions_bounds_defaults_and_rules() -> None:
    assert schema_of(Outer)["properties"]["inner"] == {
        "type": "object",
        "description": "Inner.",
        "default": {},
        "properties": {
            "size": {
                "type": "integer",
                "minimum": 1,
                "maximum": 9,
                "format": "int32",
                "description": "Size.",
                "default": 3,
            }
        },
    }
    assert schema_of(Outer)["required"] == ["link"]
    assert schema_of(Outer)["x-kubernetes-validations"] == [{"rule": "self.inner.size > 0", "message": "too small"}]


def test_a_docstring_is_not_inherited() -> None:
    assert "description" not in schema_of(Outer)
    assert ApiModel.__doc__
    for kind in KINDS:
        assert ApiModel.__doc__ not in str(definition(kind))


def test_a_status_has_no_defaults() -> None:
    assert "default" not in str(schema_of(Outer, defaults=False))


def test_gt_and_lt_become_exclusive_bounds() -> None:
    ratio = schema_of(Outer)["properties"]["ratio"]
    assert ratio == {"type": "number", "minimum": 0, "maximum": 1, "exclusiveMinimum": True, "exclusiveMaximum": True}


def test_a_pattern_with_a_message_becomes_a_cel_rule() -> None:
    link = schema_of(Outer)["properties"]["link"]
    assert "pattern" not in link
    (rule,) = link["x-kubernetes-validations"]
    assert rule["rule"].startswith("self.matches('^[a-z]")
    assert rule["rule"].endswith("$')")
    assert "such as" in rule["message"]


def test_the_rule_of_an_int_or_string_applies_to_strings_only() -> None:
    both = type_schema(types.type_info(DurationOrNanoseconds), defaults=True)
    assert both["x-kubernetes-int-or-string"] is True
    assert both["x-kubernetes-validations"][0]["rule"].startswith("type(self) != string || (self.matches(")
    text = type_schema(types.type_info(Duration), defaults=True)
    assert text["x-kubernetes-validations"][0]["rule"].startswith("self.matches(")


def test_a_type_without_a_structural_schema_is_rejected() -> None:
    with pytest.raises(TypeError, match="no CRD schema"):
        type_schema(types.type_info(int | list[int]), defaults=True)
    with pytest.raises(TypeError, match="no CRD schema"):
        type_schema(types.type_info(bytes), defaults=True)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_status_subresource_conditions_and_a_category(kind: type[CustomObject]) -> None:
    spec = definition(kind)["spec"]
    (version,) = spec["versions"]
    status = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    assert version["subresources"]["status"] == {}
    assert "observedGeneration" in status
    assert status["conditions"]["x-kubernetes-list-map-keys"] == ["type"]
    assert spec["names"]["categories"] == ["vmafx"]
    assert spec["names"]["shortNames"]


class Fixed(ApiModel):
    required: int
    defaulted: int = 1
    optional: int | None = None
    changing: int = 2

    rules = (Rule(check="self >= oldSelf", message="too small", field="changing"),)
    immutable = {"required": "no. 1", "defaulted": "no. 2", "optional": "no. 3"}


def test_a_rule_about_one_field_stands_on_it_and_one_on_the_object_only_where_the_field_can_be_absent() -> None:
    fixed = schema_of(Fixed)
    assert {name: part["x-kubernetes-validations"] for name, part in fixed["properties"].items()} == {
        "required": [{"rule": "self == oldSelf", "message": "no. 1"}],
        "defaulted": [{"rule": "self == oldSelf", "message": "no. 2"}],
        "optional": [{"rule": "self == oldSelf", "message": "no. 3"}],
        "changing": [{"rule": "self >= oldSelf", "message": "too small"}],
    }
    assert fixed["x-kubernetes-validations"] == [
        {"rule": "has(self.optional) == has(oldSelf.optional)", "message": "no. 3"}
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_no_rule_stands_at_the_root_where_it_would_read_everything_at_every_update(kind: type[CustomObject]) -> None:
    assert "x-kubernetes-validations" not in definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


@pytest.mark.parametrize("kind", KINDS)
def test_no_field_is_validated_by_a_bare_pattern(kind: type[CustomObject]) -> None:
    assert "'pattern'" not in str(definition(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_of_a_spec_and_status_has_a_description(kind: type[CustomObject]) -> None:
    properties = definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    for part in ("spec", "status"):
        undescribed = [name for name, field in properties[part]["properties"].items() if "description" not in field]
        assert undescribed == [], part
