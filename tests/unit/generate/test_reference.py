"""docs/api.md says everything that the schemas say, in words."""

import re
from typing import Annotated, Any, ClassVar, get_args, get_type_hints

import pytest
from msgspec import Meta
from msgspec import inspect as types

from tests.support.objects import bare
from vmafx.api import KINDS
from vmafx.api.crd import definition
from vmafx.api.fields import SmallCount, Uri, doc
from vmafx.api.job import MUTABLE, VmafxJobSpec
from vmafx.api.meta import AGE, ApiModel, ConditionReason, CustomObject, Names, Rule
from vmafx.api.schema import struct_fields
from vmafx.generate.reference import page
from vmafx.operator.kinds import RECONCILED_KINDS as RECONCILED
from vmafx.operator.node.decide import NodeHealth
from vmafx.operator.node.kind import NODE

WHOLE = page(KINDS, {kind.model: kind.reasons for kind in RECONCILED})


def section(title: str, text: str = WHOLE) -> str:
    found = re.search(rf"^(#+) {title}\n(.*?)(?=^#{{1,3}} |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, title
    return found[2]


def structs(kind: types.Type) -> dict[str, types.StructType]:
    """Every Struct in a type, by name."""
    kind = bare(kind)
    match kind:
        case types.StructType():
            found = {kind.cls.__name__: kind}
            for field in kind.fields:
                found |= structs(field.type)
            return found
        case types.VarTupleType():
            return structs(kind.item_type)
        case types.DictType():
            return structs(kind.value_type)
    return {}


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_has_its_row(kind: type[CustomObject]) -> None:
    parts = {field.name: field.type for field in struct_fields(kind)}
    for name, struct in (structs(parts["spec"]) | structs(parts["status"])).items():
        rows = re.findall(r"^\| `(\w+)` \|", section(name), re.MULTILINE)
        assert rows == [field.encode_name for field in struct.fields], name


def test_what_the_schema_says_of_a_field_is_there() -> None:
    """Descriptions and the sentences that answer wrong values, from the CRDs themselves."""

    def look(schema: Any) -> None:
        if isinstance(schema, list):
            for part in schema:
                look(part)
        if isinstance(schema, dict):
            for name in ("message", "description"):
                text = schema.get(name)
                if isinstance(text, str) and "is immutable" not in text:
                    assert text in WHOLE or text[0].lower() + text[1:] in WHOLE
            for part in schema.values():
                look(part)

    for kind in KINDS:
        look(definition(kind)["spec"]["versions"][0]["schema"])


def test_links_lead_to_headings_and_no_two_are_alike() -> None:
    anchors = [title.lower().replace(" ", "-") for title in re.findall(r"^#+ (.*)$", WHOLE, re.MULTILINE)]
    assert len(anchors) == len(set(anchors))
    assert set(re.findall(r"\(#([^)]*)\)", WHOLE)) <= set(anchors)


def test_what_may_change_is_told() -> None:
    rows = re.findall(r"^\| `(\w+)` \| [^|]* \| [^|]* \| (yes|no) \|", section("VmafxJobSpec"), re.MULTILINE)
    assert {name for name, may in rows if may == "yes"} == MUTABLE
    assert len(rows) == len(VmafxJobSpec.__struct_fields__)
    assert "- what may be changed after creation: all of its spec" in section("VmafxNode")


def test_the_reasons_of_a_node_are_those_that_are_written() -> None:
    assert {one.reason for one in NODE.reasons} == set(get_args(get_type_hints(NodeHealth)["reason"]))
    assert "| Ready | False | HeartbeatStale |" in section("VmafxNode")
    assert "| Failed | True | BadInput |" in section("VmafxJob")
    assert "Nothing acts on it in this version" in section("VmafxModelTraining")
    assert "Nothing acts" not in section("VmafxJob")


class Part(ApiModel):
    """A part."""

    size: Annotated[SmallCount, doc("How much | how many.")] = 3


class ThingSpec(ApiModel):
    """What it is."""

    link: Annotated[Uri, doc("Where.")]
    parts: Annotated[tuple[Part, ...], Meta(max_length=4), doc("Its parts.")] = ()
    share: Annotated[float, Meta(gt=0, lt=1), doc("How much of it.")] = 0.5

    rules: ClassVar[tuple[Rule, ...]] = (Rule("true", "link cannot be changed", keeps="link"),)


class ThingStatus(ApiModel):
    """How it is."""

    part: Annotated[Part | None, doc("The part that it has.")] = None


class Thing(CustomObject, kw_only=True):
    """A Thing is a thing."""

    names: ClassVar[Names] = Names(plural="things", short="th", columns=(AGE,))
    spec: ThingSpec
    status: ThingStatus = ThingStatus()


def test_a_page() -> None:
    text = page((Thing,), {Thing: (ConditionReason("Ready", "True", "Fine", "All is well."),)})
    assert "- [Thing](#thing)\n" in text
    assert text.partition("## Thing\n")[2].partition("\n## Common")[0] == (
        """
A Thing is a thing.

- `kubectl get th`, or things; with the other kinds, `kubectl get vmafx`
- columns: Age (`metadata.creationTimestamp`)
- what may be changed after creation: `spec.parts`, `spec.share`

Its conditions, and the reasons they give:

| Condition | Status | Reason | What it means |
|---|---|---|---|
| Ready | True | Fine | All is well. |

### ThingSpec

`spec`: what it is.

| Field | Type | Default | May change | What it is | Limits |
|---|---|---|---|---|---|
| `link` | string | required | no | Where. | must be a URI with a scheme and no spaces, such as """
        """file:///clips/a.mp4, https://host/a.mp4 or s3://bucket/a.mp4; at most 2,048 characters |
| `parts` | list of [Part](#part) |  | yes | Its parts. | at most 4 entries |
| `share` | number | `0.5` | yes | How much of it. | more than 0; less than 1 |

Refused with:

- FIELD cannot be changed

### ThingStatus

`status`: how it is.

| Field | Type | What it is |
|---|---|---|
| `part` | [Part](#part) | The part that it has. |

### Part

`spec.parts[]`, `status.part`: a part.

| Field | Type | Default | What it is | Limits |
|---|---|---|---|---|
| `size` | integer | `3` | How much \\| how many. | 0 to 2^31-1 |
"""
    )
