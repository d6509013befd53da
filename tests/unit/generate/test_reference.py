"""docs/api.md documents everything that the schemas contain."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, get_args, get_type_hints

import pytest
from msgspec import Meta
from msgspec import inspect as types

from tests.support.objects import bare
from vmafx.api.crd import definition
from vmafx.api.fields import SmallCount, Uri, doc
from vmafx.api.job import MUTABLE, VmafxJobSpec
from vmafx.api.kinds import KINDS
from vmafx.api.meta import AGE, ApiModel, ConditionReason, CustomObject, Names
from vmafx.api.schema import struct_fields
from vmafx.generate.reference import page
from vmafx.operator.kinds import RECONCILED_KINDS as RECONCILED
from vmafx.operator.node.decide import NodeHealth
from vmafx.operator.node.kind import NODE

PAGE = page(KINDS, {kind.model: kind.reasons for kind in RECONCILED})


def section(title: str, text: str = PAGE) -> str:
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
def test_every_field_has_a_row(kind: type[CustomObject]) -> None:
    parts = {field.name: field.type for field in struct_fields(kind)}
    for name, struct in (structs(parts["spec"]) | structs(parts["status"])).items():
        rows = re.findall(r"^\| `(\w+)` \|", section(name), re.MULTILINE)
        assert rows == [field.encode_name for field in struct.fields], name


def test_every_description_and_validation_message_of_the_crds_is_on_the_page() -> None:
    def check(schema: Any) -> None:
        if isinstance(schema, list):
            for part in schema:
                check(part)
        if isinstance(schema, dict):
            for name in ("message", "description"):
                text = schema.get(name)
                if isinstance(text, str) and "is immutable" not in text:
                    assert text in PAGE or text[0].lower() + text[1:] in PAGE
            for part in schema.values():
                check(part)

    for kind in KINDS:
        check(definition(kind)["spec"]["versions"][0]["schema"])


def test_links_lead_to_headings_which_are_unique() -> None:
    anchors = [title.lower().replace(" ", "-") for title in re.findall(r"^#+ (.*)$", PAGE, re.MULTILINE)]
    assert len(anchors) == len(set(anchors))
    assert set(re.findall(r"\(#([^)]*)\)", PAGE)) <= set(anchors)


def test_mutable_fields_are_marked() -> None:
    rows = re.findall(r"^\| `(\w+)` \| [^|]* \| [^|]* \| (yes|no) \|", section("VmafxJobSpec"), re.MULTILINE)
    assert {name for name, mutable in rows if mutable == "yes"} == MUTABLE
    assert len(rows) == len(VmafxJobSpec.__struct_fields__)
    assert "- mutable after creation: the whole spec" in section("VmafxNode")


def test_condition_reasons_are_listed() -> None:
    assert {one.reason for one in NODE.reasons} == set(get_args(get_type_hints(NodeHealth)["reason"]))
    assert "| Ready | False | HeartbeatStale |" in section("VmafxNode")
    assert "| Failed | True | BadInput |" in section("VmafxJob")
    assert "| Diverged | True | RolledBack |" in section("VmafxModelTraining")
    assert "No reconciler acts" not in PAGE


class Part(ApiModel):
    """A part."""

    size: Annotated[SmallCount, doc("Size | count.")] = 3


class ThingSpec(ApiModel):
    """Desired state of a Thing."""

    link: Annotated[Uri, doc("Its address.")]
    parts: Annotated[tuple[Part, ...], Meta(max_length=4), doc("Its parts.")] = ()
    share: Annotated[float, Meta(gt=0, lt=1), doc("Its share.")] = 0.5

    immutable: ClassVar[Mapping[str, str]] = {"link": "link cannot be changed"}


class ThingStatus(ApiModel):
    """Observed state of a Thing."""

    part: Annotated[Part | None, doc("The current part.")] = None


class Thing(CustomObject, kw_only=True):
    """A Thing for this test."""

    names: ClassVar[Names] = Names(plural="things", short="th", columns=(AGE,))
    spec: ThingSpec
    status: ThingStatus = ThingStatus()


def test_the_page_of_one_kind() -> None:
    text = page((Thing,), {Thing: (ConditionReason("Ready", "True", "Healthy", "The thing is healthy."),)})
    assert "- [Thing](#thing)\n" in text
    assert text.partition("## Thing\n")[2].partition("\n## Shared types")[0] == (
        """
A Thing for this test.

- `kubectl get th` or `things`; all kinds together: `kubectl get vmafx`
- columns: Age (`metadata.creationTimestamp`)
- mutable after creation: `spec.parts`, `spec.share`

Conditions and their reasons:

| Condition | Status | Reason | Meaning |
|---|---|---|---|
| Ready | True | Healthy | The thing is healthy. |

### ThingSpec

`spec`: desired state of a Thing.

| Field | Type | Default | Mutable | Description | Limits |
|---|---|---|---|---|---|
| `link` | string | required | no | Its address. | must be a URI with a scheme and no spaces, such as """
        """file:///clips/a.mp4, https://host/a.mp4 or s3://bucket/a.mp4; at most 2,048 characters |
| `parts` | list of [Part](#part) |  | yes | Its parts. | at most 4 entries |
| `share` | number | `0.5` | yes | Its share. | more than 0; less than 1 |

Validation messages:

- FIELD cannot be changed

### ThingStatus

`status`: observed state of a Thing.

| Field | Type | Description |
|---|---|---|
| `part` | [Part](#part) | The current part. |

### Part

`spec.parts[]`, `status.part`: a part.

| Field | Type | Default | Description | Limits |
|---|---|---|---|---|
| `size` | integer | `3` | Size \\| count. | 0 to 2^31-1 |
"""
    )
